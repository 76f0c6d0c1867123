#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Losses of training under torch.autocast("cpu", bfloat16), really run, for tests/policy.

Each network trains with SGD from the weights in its ONNX file. Other runs compute the same numbers
in another order: the samples of every batch are permuted, and oneDNN is off in every other one. The
largest distance from the first run up to a step, relative to its loss, is the noise of that step.

  torch_autocast_losses.py --out DIR    writes NAME.onnx, NAME.INPUT.npy and losses.json
  torch_autocast_losses.py --zip FILE   writes the same as one archive, which is committed
"""
import argparse
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Dict, List

import numpy as np
import torch
from torch import nn

from onnx_network import Network, image, rows
import torch_dtype_networks as networks
from torch_dtypes import export, loss_of

BATCH, STEPS, RATE, ORDERS = 8, 12, 0.05, 6
NETWORKS: Dict[str, Network] = {
    "mlp": Network("losses", lambda: nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5)), rows(16)),
    "cnn": Network("losses", networks.Resnet, image(3, 12)),
    "transformer": Network("losses", networks.Vit, image(3, 8)),
}


def train(network: Network, inputs: torch.Tensor, labels: torch.Tensor, order: int,
          low: bool = True) -> List[float]:
    """Order 0 is the given one; odd orders turn oneDNN off."""
    torch.manual_seed(7)
    model = network.make().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    mixer = torch.Generator().manual_seed(order)
    losses = []
    with torch.backends.mkldnn.flags(enabled=order % 2 == 0):
        for step in range(STEPS):
            part = torch.arange(step * BATCH, (step + 1) * BATCH)
            if order:
                part = part[torch.randperm(BATCH, generator=mixer)]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                loss = loss_of(network, model(inputs[part]), labels[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def case_of(name: str, files: Dict[str, bytes]) -> dict:
    network = NETWORKS[name]
    torch.manual_seed(8)
    inputs = network.inputs(BATCH * STEPS)["x"]
    labels = torch.randint(0, 5, (BATCH * STEPS,))
    torch.manual_seed(7)
    # The optimizer would fold batch normalizations into convolutions.
    proto = export(network, network.make().eval(), {"x": inputs[:BATCH]}, True, optimize=False)
    files.update({f"{name}.onnx": proto.SerializeToString(), f"{name}.x.npy": npy(inputs.numpy()),
                  f"{name}.labels.npy": npy(labels.numpy().astype(np.int32))})
    losses = np.array(train(network, inputs, labels, 0))
    others = np.array([train(network, inputs, labels, order) for order in range(1, ORDERS)])
    noise = np.maximum.accumulate(np.max(np.abs(others - losses) / losses, 0))
    wide = np.array(train(network, inputs, labels, 0, low=False))
    print(f"{name}: noise {noise[0]:.2g} to {noise[-1]:.2g}; float32 is "
          f"{abs(wide[0] / losses[0] - 1):.2g} away at first; last loss {losses[-1]:.4g}")
    return {"losses": losses.tolist(), "noise": noise.tolist(), "batch": BATCH, "rate": RATE}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--zip", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    files: Dict[str, bytes] = {}
    result = {"torch": torch.__version__.split("+")[0],
              "cases": {name: case_of(name, files) for name in NETWORKS}}
    files["losses.json"] = (json.dumps(result, indent=1, sort_keys=True) + "\n").encode()
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (options.out / name).write_bytes(content)
    if options.zip:
        with zipfile.ZipFile(options.zip, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(files.items()):
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return 0


if __name__ == "__main__":
    sys.exit(main())
