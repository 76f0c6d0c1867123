# SPDX-License-Identifier: MIT
"""PyTorch's side of onnx_matrix.py: exports of a network, and how PyTorch itself trains it.

A network's folder gets `data.npz` (40 samples with labels or targets), `input.npz` (the first
batch), `torch.json` (losses, parameters) and a folder for every variant: `net.onnx`,
`expected.npy` (outputs in inference) and `result.json` (exported or not, batch norms).
"""
import fcntl
import json
import os
import warnings
from pathlib import Path
from typing import Dict, List, Optional

import numpy as np
import onnx
import torch
from torch import nn
import torch.nn.functional as F

from onnx_network import Network

BATCH, STEPS, ADAM_RATE, OPSET = 4, 10, 1e-3, 17
VARIANTS = ("dynamo-fixed", "dynamo-open", "dynamo-one", "script-fixed", "script-open",
            "script-one", "script-training")


def make(net: Network, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(7)
    return net.make().to(dtype)


def samples(net: Network) -> Dict[str, torch.Tensor]:
    torch.manual_seed(8)
    return net.inputs(BATCH * STEPS)


def part(inputs: Dict[str, torch.Tensor], begin: int, dtype: torch.dtype = torch.float32,
         count: int = BATCH) -> List[torch.Tensor]:
    cut = [value[begin:begin + count] for value in inputs.values()]
    return [value.to(dtype) if value.is_floating_point() else value for value in cut]


def answers(net: Network, inputs: Dict[str, torch.Tensor]) -> torch.Tensor:
    """Labels or targets for all samples."""
    with torch.no_grad():
        shape = make(net).eval()(*part(inputs, 0)).shape
    torch.manual_seed(9)
    count = next(iter(inputs.values())).shape[0]
    if net.loss == "mse":
        return torch.randn(count, *shape[1:])
    return torch.randint(0, shape[-1], (count, *shape[1:-1]))


def loss_of(net: Network, output: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    if net.loss == "mse":
        return F.mse_loss(output, answer.to(output.dtype))
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), answer.reshape(-1))


def train(net: Network, how: Optional[str], dtype: torch.dtype, inputs: Dict[str, torch.Tensor],
          answer: torch.Tensor, model: Optional[nn.Module] = None) -> List[float]:
    """Ten losses; `how` is sgd, adam, or None for a network that stays as it is."""
    model = (model or make(net, dtype)).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = {"sgd": lambda: torch.optim.SGD(trained, lr=net.lr),
                 "adam": lambda: torch.optim.Adam(trained, lr=ADAM_RATE),
                 None: lambda: None}[how]()
    losses = []
    for step in range(STEPS):
        loss = loss_of(net, model(*part(inputs, step * BATCH, dtype)),
                       answer[step * BATCH:(step + 1) * BATCH])
        losses.append(loss.item())
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return losses


def gap(ours: List[float], theirs: List[float]) -> float:
    """The worst relative difference; infinite if a loss is missing or not finite."""
    if len(ours) != len(theirs) or not np.isfinite(ours).all():
        return float("inf")
    return float(max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(ours, theirs)))


def used(value: torch.Tensor) -> int:
    """Elements up to the last row that gets a gradient."""
    if value.dim() < 2:
        return value.numel()
    rows = value.grad.flatten(1).abs().amax(1).nonzero()
    return (int(rows.max()) + 1 if len(rows) else 0) * value[0].numel()


def parameters(model: nn.Module) -> List[dict]:
    """Returns the parameters that training changed, those with a gradient, with all their names."""
    found: Dict[int, dict] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        if value.requires_grad and value.grad is not None:
            entry = found.setdefault(id(value), {"names": [], "shape": list(value.shape),
                                                 "elements": value.numel(), "used": used(value)})
            entry["names"].append(name)
    return list(found.values())


def reference(net: Network, folder: Path) -> None:
    """Data, and PyTorch's losses in float32 and float64."""
    inputs = samples(net)
    answer = answers(net, inputs)
    arrays = {name: value.numpy() for name, value in inputs.items()}
    np.savez(folder / "input.npz", **{name: value[:BATCH] for name, value in arrays.items()})
    arrays["targets" if net.loss == "mse" else "labels"] = answer.numpy()
    np.savez(folder / "data.npz", **arrays)
    model = make(net)
    result = {"sgd": train(net, "sgd", torch.float32, inputs, answer, model)}
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    result.update({
        "parameters": parameters(model), "batch_norms": len(norms),
        "sgd64": train(net, "sgd", torch.float64, inputs, answer),
        "adam": train(net, "adam", torch.float32, inputs, answer),
        "adam64": train(net, "adam", torch.float64, inputs, answer),
        "still": train(net, None, torch.float64, inputs, answer)})
    write_json(folder / "torch.json", result)


def write_json(file: Path, value: object) -> None:
    """At once or not at all: a worker may be stopped at any time."""
    part_file = file.with_suffix(".part")
    part_file.write_text(json.dumps(value, indent=1), encoding="ascii")
    part_file.rename(file)


def export(model: nn.Module, inputs: Dict[str, torch.Tensor], variant: str, file: Path,
           one_file: bool = False) -> None:
    exporter, batch = variant.split("-")
    arguments = tuple(part(inputs, 0, count=1 if batch == "one" else BATCH))
    names = list(inputs)
    more: dict = {"input_names": names, "output_names": ["output"]}
    if exporter == "dynamo":
        more.update(dynamo=True, external_data=not one_file)
        if batch == "open":
            more["dynamic_shapes"] = tuple({0: "batch"} for _ in names)
    else:
        more.update(dynamo=False, opset_version=OPSET)
        if batch == "open":
            more["dynamic_axes"] = {name: {0: "batch"} for name in [*names, "output"]}
        if batch == "training":
            more.update(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    model.train(batch == "training")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, arguments, str(file), **more)


def batch_norms(graph) -> int:
    count = 0
    for node in graph.node:
        count += node.op_type == "BatchNormalization"
        for attribute in node.attribute:
            count += batch_norms(attribute.g) if attribute.HasField("g") else 0
    return count


def export_variant(net: Network, variant: str, folder: Path, one_file: bool = False) -> None:
    """Exports into `folder`; what the exporter says against it is kept in result.json."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = samples(net)
    model = make(net)
    try:
        export(model, inputs, variant, folder / "net.onnx", one_file)
        file = onnx.load(folder / "net.onnx", load_external_data=False)
    except Exception as error:  # whatever the exporter throws
        first = (str(error).strip().splitlines() or [""])[0]
        write_json(folder / "result.json", {"exported": False,
                                            "error": ascii(f"{type(error).__name__}: {first}")})
        return
    # An export in training mode moves running statistics on, and the file has them like that.
    with torch.no_grad():
        np.save(folder / "expected.npy", model.eval()(*part(inputs, 0)).numpy())
    write_json(folder / "result.json", {
        "exported": True, "opset": max(o.version for o in file.opset_import if o.domain == ""),
        "batch_norms": batch_norms(file.graph) + sum(batch_norms(f) for f in file.functions)})


def work(net: Network, folder: Path, variants: List[str]) -> None:
    """All of a network that is not there yet. What exporters print goes to export.log."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "export.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    lock = open(folder / "lock", "w", encoding="ascii")  # others may use the same folder
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not (folder / "torch.json").exists():
        reference(net, folder)
    for variant in variants:
        if not (folder / variant / "result.json").exists():
            export_variant(net, variant, folder / variant)
