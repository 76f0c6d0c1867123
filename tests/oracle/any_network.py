# SPDX-License-Identifier: MIT
"""Trainings of small networks of several kinds by PyTorch in float64, for tests/train.

    any_network.py --out vectors/any_network.json

Every case has arrays (float32 numbers, exactly), starting weights (the same), the losses of every
step, and the weights after the last one. Batches come in file order.

  regression   3-8-2 with ReLU, mean squared error, SGD with momentum
  two_inputs   fc_out(relu(fc_a(a) + fc_b(b))), cross entropy, Adam
  sequence     one linear layer on every position of [n, t, f], mean cross entropy, SGD
  own_loss     mean of (fc(x) - x)^4 made by the graph itself, RMSprop

Cases with a schedule have the values that PyTorch's schedulers gave to the optimizer in each step,
by the names of the arrays of halfscope train --schedule file:FILE.

Cases of classes train the network of `sequence` with other losses, all others the network of
`regression` with other optimizers.
"""
import argparse
import json
from pathlib import Path
from typing import Callable, Dict, List

import numpy as np
import torch
import torch.nn.functional as F

Arrays = Dict[str, np.ndarray]
Parameters = Dict[str, torch.Tensor]


def linear(rng: np.random.Generator, path: str, inputs: int, outputs: int) -> Arrays:
    bound = inputs ** -0.5
    return {
        f"{path}.weight": rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32),
        f"{path}.bias": rng.uniform(-bound, bound, outputs).astype(np.float32),
    }


def train(case: Dict, arrays: Arrays, weights: Arrays, batch: int, steps: int,
          make_optimizer: Callable[[List[torch.Tensor]], torch.optim.Optimizer],
          loss_of: Callable[[Parameters, Dict[str, torch.Tensor]], torch.Tensor],
          make_scheduler: Callable = None, globs: List[str] = ()) -> Dict:
    parameters = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True)
                  for k, v in weights.items()}
    data = {k: torch.tensor(v, dtype=torch.int64 if v.dtype.kind == "i" else torch.float64)
            for k, v in arrays.items()}
    optimizer = make_optimizer(list(parameters.values()))
    samples = len(next(iter(data.values())))
    scheduler = make_scheduler(optimizer) if make_scheduler else None
    losses, values = [], {}
    for step in range(steps):
        for glob, group in zip(("", *globs), optimizer.param_groups) if scheduler else ():
            now = {"lr": group["lr"], "momentum": group.get("momentum"),
                   "beta1": group.get("betas", [None])[0]}
            for key, value in now.items():
                values.setdefault(f"{glob}:{key}" if glob else key, []).append(value)
        first = step * batch % (samples // batch * batch)
        loss = loss_of(parameters, {k: v[first:first + batch] for k, v in data.items()})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if scheduler:
            scheduler.step()
    if scheduler:
        # Without an array, an option stays as it is.
        case = dict(case, schedule={name: each for name, each in values.items()
                                    if name.endswith("lr") or len(set(each)) > 1})
    def plain(table):
        return {k: {"shape": list(v.shape), "data": v.reshape(-1).tolist()}
                for k, v in table.items()}
    return dict(case, batch=batch, steps=steps, arrays=plain(arrays), weights=plain(weights),
                losses=losses,
                trained=plain({k: v.detach().numpy() for k, v in parameters.items()}))


def layer(p: Parameters, path: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, p[f"{path}.weight"], p[f"{path}.bias"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    rng = np.random.default_rng(2024)

    def noise(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    cases = {}
    cases["regression"] = train(
        {"optimizer": "sgd:lr=0.05,momentum=0.9"},
        {"input": noise(20, 3), "targets": noise(20, 2)},
        {**linear(rng, "fc1", 3, 8), **linear(rng, "fc2", 8, 2)}, 8, 12,
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p, d: F.mse_loss(layer(p, "fc2", F.relu(layer(p, "fc1", d["input"]))),
                                d["targets"]))
    cases["two_inputs"] = train(
        {"optimizer": "adam:lr=0.01"},
        {"a": noise(12, 3), "b": noise(12, 5), "labels": rng.integers(0, 4, 12).astype(np.int32)},
        {**linear(rng, "fc_a", 3, 6), **linear(rng, "fc_b", 5, 6), **linear(rng, "fc_out", 6, 4)},
        4, 10, lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p, d: F.cross_entropy(
            layer(p, "fc_out", F.relu(layer(p, "fc_a", d["a"]) + layer(p, "fc_b", d["b"]))),
            d["labels"]))
    cases["sequence"] = train(
        {"optimizer": "sgd:lr=0.5"},
        {"x": noise(6, 5, 3), "labels": rng.integers(0, 4, (6, 5)).astype(np.int32)},
        linear(rng, "head", 3, 4), 2, 9, lambda p: torch.optim.SGD(p, lr=0.5),
        lambda p, d: F.cross_entropy(layer(p, "head", d["x"]).reshape(-1, 4),
                                     d["labels"].reshape(-1)))
    cases["own_loss"] = train(
        {"optimizer": "rmsprop:lr=0.01"}, {"x": noise(8, 3)}, linear(rng, "fc", 3, 3), 4, 8,
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p, d: ((layer(p, "fc", d["x"]) - d["x"]) ** 4).mean())
    # The second moments fall within a few steps, so their largest values count.
    def regression(case: Dict, make_optimizer: Callable, *schedule) -> Dict:
        return train(
            case, {"input": noise(20, 3), "targets": noise(20, 2)},
            {**linear(rng, "fc1", 3, 8), **linear(rng, "fc2", 8, 2)}, 8, 12, make_optimizer,
            lambda p, d: F.mse_loss(layer(p, "fc2", F.relu(layer(p, "fc1", d["input"]))),
                                    d["targets"]), *schedule)

    cases["largest_moments"] = regression(
        {"optimizer": "adamw:lr=0.05,beta2=0.5,amsgrad=true"},
        lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.9, 0.5), amsgrad=True))
    # The parameters are weight, bias, weight, bias.
    cases["betas_of_groups"] = regression(
        {"optimizer": "adamw:lr=0.05",
         "groups": ["*.bias:beta1=0.5,beta2=0.9,eps=0.01", "fc2.*:lr=0.02,beta2=0.5,amsgrad=true"]},
        lambda p: torch.optim.AdamW(
            [{"params": p[:1]}, {"params": p[1::2], "betas": (0.5, 0.9), "eps": 0.01},
             {"params": p[2:3], "lr": 0.02, "betas": (0.9, 0.5), "amsgrad": True}], lr=0.05))
    cases["momenta_of_groups"] = regression(
        {"optimizer": "sgd:lr=0.05,momentum=0.9,nesterov=true",
         "groups": ["fc1.weight:momentum=0.5", "fc1.bias:nesterov=false",
                    "fc2.bias:momentum=0,nesterov=false"]},
        lambda p: torch.optim.SGD(
            [{"params": p[:1], "momentum": 0.5}, {"params": p[1:2], "nesterov": False},
             {"params": p[2:3]}, {"params": p[3:], "momentum": 0.0, "nesterov": False}],
            lr=0.05, momentum=0.9, nesterov=True))
    cases["dampened"] = regression(
        {"optimizer": "sgd:lr=0.05,momentum=0.9,dampening=0.5,weight_decay=0.01",
         "groups": ["*.bias:momentum=0.5,dampening=0.25"]},
        lambda p: torch.optim.SGD(
            [{"params": p[::2]}, {"params": p[1::2], "momentum": 0.5, "dampening": 0.25}],
            lr=0.05, momentum=0.9, dampening=0.5, weight_decay=0.01))
    cases["centered"] = regression(
        {"optimizer": "rmsprop:lr=0.01,alpha=0.9,momentum=0.5,weight_decay=0.1,centered=true",
         "groups": ["*.bias:momentum=0", "fc2.weight:centered=false"]},
        lambda p: torch.optim.RMSprop(
            [{"params": p[:1]}, {"params": p[1::2], "momentum": 0.0},
             {"params": p[2:3], "centered": False}],
            lr=0.01, alpha=0.9, momentum=0.5, weight_decay=0.1, centered=True))
    cases["maximized"] = regression(
        {"optimizer": "adamw:lr=0.01,weight_decay=0.5,maximize=true"},
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5, maximize=True))
    # As in adversarial training.
    cases["maximized_groups"] = regression(
        {"optimizer": "sgd:lr=0.05,momentum=0.9,weight_decay=0.01",
         "groups": ["fc1.weight:maximize=true", "fc1.bias:momentum=0,maximize=true"]},
        lambda p: torch.optim.SGD(
            [{"params": p[:1], "maximize": True},
             {"params": p[1:2], "momentum": 0.0, "maximize": True}, {"params": p[2:]}],
            lr=0.05, momentum=0.9, weight_decay=0.01))
    weights = [0.25, 2.0, 0.0, 1.5]  # of classes
    labels = rng.integers(0, 4, (6, 5)).astype(np.int32)
    cases["weighted_classes"] = train(
        {"optimizer": "sgd:lr=0.5"}, {"x": noise(6, 5, 3), "labels": labels},
        linear(rng, "head", 3, 4), 2, 9, lambda p: torch.optim.SGD(p, lr=0.5),
        lambda p, d: F.cross_entropy(layer(p, "head", d["x"]).reshape(-1, 4),
                                     d["labels"].reshape(-1),
                                     torch.tensor(weights, dtype=torch.float64)))
    labels = labels.copy()
    labels[::2, 1:3] = -100
    cases["weighted_smoothed_classes"] = train(
        {"optimizer": "sgd:lr=0.5"}, {"x": noise(6, 5, 3), "labels": labels},
        linear(rng, "head", 3, 4), 2, 9, lambda p: torch.optim.SGD(p, lr=0.5),
        lambda p, d: F.cross_entropy(layer(p, "head", d["x"]).reshape(-1, 4),
                                     d["labels"].reshape(-1),
                                     torch.tensor(weights, dtype=torch.float64),
                                     label_smoothing=0.25))
    rates = torch.optim.lr_scheduler
    # The momentum of one group and the learning rate of the other stay as they are.
    cases["cycled_momenta"] = regression(
        {"optimizer": "sgd:lr=0.05,momentum=0.9,dampening=0.5,weight_decay=0.01",
         "groups": ["*.bias:lr=0.02,dampening=0,nesterov=true", "fc2.*:momentum=0.5"]},
        lambda p: torch.optim.SGD(
            [{"params": p[:1]}, {"params": p[1::2], "lr": 0.02, "dampening": 0.0,
                                 "nesterov": True}, {"params": p[2:3], "momentum": 0.5}],
            lr=0.05, momentum=0.9, dampening=0.5, weight_decay=0.01),
        lambda o: rates.CyclicLR(o, [0.01, 0.02, 0.03], [0.2, 0.02, 0.1], 4,
                                 base_momentum=[0.6, 0.3, 0.5], max_momentum=[0.95, 0.8, 0.5]),
        ["*.bias", "fc2.*"])
    cases["cycled_betas"] = regression(
        {"optimizer": "adamw:lr=0.01", "groups": ["fc2.*:lr=0.02,amsgrad=true"]},
        lambda p: torch.optim.AdamW([{"params": p[:2]}, {"params": p[2:], "amsgrad": True}],
                                    lr=0.01),
        lambda o: rates.OneCycleLR(o, [0.1, 0.05], total_steps=12, max_momentum=[0.95, 0.9],
                                   base_momentum=[0.5, 0.85]), ["fc2.*"])
    cases["cycled_rms_momenta"] = regression(
        {"optimizer": "rmsprop:lr=0.01,alpha=0.9,momentum=0.5"},
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.5),
        lambda o: rates.OneCycleLR(o, 0.02, total_steps=12))
    cases["rates_of_groups"] = regression(
        {"optimizer": "adam:lr=0.05", "groups": ["fc2.*:lr=0.02"]},
        lambda p: torch.optim.Adam([{"params": p[:2]}, {"params": p[2:], "lr": 0.02}], lr=0.05),
        lambda o: rates.LambdaLR(o, [lambda step: 0.75 ** step, lambda step: 1.0]), ["fc2.*"])
    out.write_text(json.dumps(cases, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
