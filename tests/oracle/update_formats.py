# SPDX-License-Identifier: MIT
"""Optimizers, clipping and moving averages with every operation rounded to a format, by PyTorch.

    update_formats.py [--out vectors/update_formats.json]

Every operation is PyTorch's in float32, its result is converted to the format and back by PyTorch
(to nearest even); scalars are float32. Numbers are the bits of float32 as integers.
  - optimizers: torch.optim's formulas, one operation after the other: `weight`, 5 `gradients` that
    are multiplied by `inverse_scale`, then `clip`; `weights` and states after each step. The new
    weight is rounded to `storage` alone. Decoupled decay is subtracted before the rest.
  - clipping: torch.nn.utils.clip_grad_norm_ of three tensors; with `stagewise` squares and sums are
    rounded, too. Gradients are small multiples of powers of two, so no order of sums matters.
  - averages: `weights` of 6 steps, the averages after each, kept in `storage`, and what was to be
    added.
"""
import argparse
import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import torch

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Round = Callable[[torch.Tensor], torch.Tensor]
OPTIMIZERS: Dict[str, Dict[str, float]] = {
    "sgd:lr=0.1": {"lr": 0.1},
    "sgd:lr=0.1,momentum=0.9,weight_decay=0.01": {"lr": 0.1, "mu": 0.9, "decay": 0.01},
    "adam:lr=0.01,weight_decay=0.01": {"lr": 0.01, "decay": 0.01},
    "adamw:lr=0.01,weight_decay=0.1": {"lr": 0.01, "decay": 0.1},
    "rmsprop:lr=0.01": {"lr": 0.01},
    "rmsprop:lr=0.01,momentum=0.5": {"lr": 0.01, "mu": 0.5},
}
MORE_OPTIMIZERS: Dict[str, Dict[str, float]] = {
    "sgd:lr=0.1,momentum=0.9,dampening=0.5": {"lr": 0.1, "mu": 0.9, "dampening": 0.5},
    "rmsprop:lr=0.01,alpha=0.9,centered=true": {"lr": 0.01, "alpha": 0.9, "centered": True},
    "adam:lr=0.01,weight_decay=0.01,maximize=true": {"lr": 0.01, "decay": 0.01, "maximize": True},
}


def rounder(name: str) -> Round:
    return lambda x: x.to(FORMATS[name]).to(torch.float32)


def scalar(x: float) -> torch.Tensor:
    return torch.tensor(np.float32(x))


def bits(x: torch.Tensor) -> List[int]:
    return np.atleast_1d(x.numpy().astype(np.float32)).view(np.uint32).tolist()


def train(name: str, options: Dict[str, float], weight: torch.Tensor, gradients: torch.Tensor,
          storage: str, compute: str) -> Dict[str, Any]:
    r, stored = rounder(compute), rounder(storage)
    lr, mu, decay = options["lr"], options.get("mu", 0.0), options.get("decay", 0.0)
    b1, b2, alpha, eps = 0.9, 0.999, options.get("alpha", 0.99), 1e-8
    inverse_scale, clip = 1.0 / 512.0, 0.75
    w = stored(weight)
    m = v = torch.zeros_like(w)
    history: Dict[str, List[List[int]]] = {"weights": [], "first": [], "second": []}
    for step, gradient in enumerate(gradients, start=1):
        g = r(r(gradient * scalar(inverse_scale)) * scalar(clip))
        if options.get("maximize"):
            g = -g
        if decay and not name.startswith("adamw"):
            g = r(g + r(w * scalar(decay)))
        if name.startswith("sgd"):
            if mu:
                share = 1.0 if step == 1 else 1.0 - options.get("dampening", 0.0)
                m = r(r(m * scalar(mu)) + r(g * scalar(share)))
            change = r((m if mu else g) * scalar(lr))
        elif name.startswith("rmsprop"):
            v = r(r(v * scalar(alpha)) + r(r(g * g) * scalar(1 - alpha)))
            square = v
            if options.get("centered"):
                m = r(r(m * scalar(alpha)) + r(g * scalar(1 - alpha)))
                square = r(v - r(m * m))
            change = r(g / r(r(torch.sqrt(square)) + scalar(eps)))
            if mu:
                change = m = r(r(m * scalar(mu)) + change)
            change = r(change * scalar(lr))
        else:
            if name.startswith("adamw"):
                w = stored(w - r(w * (scalar(lr) * scalar(decay))))
            m = r(r(m * scalar(b1)) + r(g * scalar(1 - b1)))
            v = r(r(v * scalar(b2)) + r(r(g * g) * scalar(1 - b2)))
            step_size = scalar(lr) / scalar(1 - b1**step)
            root_2 = torch.sqrt(scalar(1 - b2**step))
            divisor = r(r(r(torch.sqrt(v)) / root_2) + scalar(eps))
            change = r(r(m / divisor) * step_size)
        w = stored(w - change)
        history["weights"].append(bits(w))
        history["first"].append(bits(m))
        history["second"].append(bits(v))
    return {"optimizer": name, "storage": storage, "compute": compute, "weight": bits(weight),
            "gradients": [bits(g) for g in gradients], **history}


def clip(gradients: List[torch.Tensor], limit: float, name: str, stagewise: bool) -> Dict[str, Any]:
    r = rounder(name)
    inner = r if stagewise else rounder("fp32")
    unscaled = [r(g * scalar(0.5)) for g in gradients]

    def norm(x: torch.Tensor, squares: Round) -> torch.Tensor:
        return r(torch.sqrt(squares(squares(x * x).sum())))

    norms = [norm(u, inner) for u in unscaled]
    total = torch.tensor(np.float32(0))
    for each in norms:
        total = inner(total + inner(each * each))
    whole = r(torch.sqrt(total))
    factor = torch.minimum(r(scalar(limit) / r(whole + scalar(1e-6))), scalar(1.0))
    return {"format": name, "stagewise": stagewise, "limit": limit,
            "gradients": [bits(g) for g in gradients], "norm": bits(whole),
            "clipped": [bits(r(u * factor)) for u in unscaled]}


def average(weights: torch.Tensor, decay: float, form: str, storage: str,
            compute: str) -> Dict[str, Any]:
    r, stored = rounder(compute), rounder(storage)
    keep, rate = scalar(decay), scalar(1 - decay)
    e = stored(weights[0])
    averages, updates = [], []
    for w in weights[1:]:
        update = r(rate * r(w - e))
        e = stored(e + update) if form == "lerp" else stored(r(keep * e) + r(rate * w))
        averages.append(bits(e))
        updates.append(bits(update))
    return {"decay": decay, "form": form, "storage": storage, "compute": compute,
            "weights": [bits(w) for w in weights], "averages": averages, "updates": updates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="vectors/update_formats.json")
    out = Path(parser.parse_args().out)
    random = np.random.default_rng(7)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(random.standard_normal(shape).astype(np.float32))

    def grid(n: int, step: float) -> torch.Tensor:
        return torch.from_numpy((random.integers(-8, 9, n) * step).astype(np.float32))

    result: Dict[str, Any] = {"optimizers": [], "clipping": [], "averages": []}

    def add_trainings(optimizers: Dict[str, Dict[str, float]]) -> None:
        for name, options in optimizers.items():
            for compute in ("bf16", "fp16"):
                for storage in ("fp32", compute):
                    gradients = normal(5, 24) * 50
                    gradients[:, ::5] *= 1e-3  # squares that fp16 flushes
                    result["optimizers"].append(
                        train(name, options, normal(24), gradients, storage, compute))

    add_trainings(OPTIMIZERS)
    for name in ("fp16", "bf16"):
        for stagewise in (False, True):
            # Small ones, a norm beyond fp16, squares that overflow fp16 and squares it flushes.
            for step, limit in ((0.25, 1.0), (16384.0, 1.0), (64.0, 3.0), (2.0**-17, 1e-4),
                                (2.0**-4, 100.0)):
                gradients = [grid(n, step) for n in (7, 12, 30)]
                result["clipping"].append(clip(gradients, limit, name, stagewise))
    weights = normal(7, 16)
    weights[1:] = weights[0] + 0.3 * torch.cumsum(weights[1:], 0)
    for decay in (0.5, 0.9, 0.999):
        for form in ("lerp", "average"):
            for storage in ("fp32", "bf16", "fp16"):
                for compute in ("fp32", "bf16", "fp16"):
                    result["averages"].append(average(weights, decay, form, storage, compute))
    add_trainings(MORE_OPTIMIZERS)
    text = json.dumps(result)
    out.write_text(text.replace('{"optimizer"', '\n{"optimizer"').replace('{"format"', '\n{"format"')
                   .replace('{"decay"', '\n{"decay"') + "\n")


if __name__ == "__main__":
    main()
