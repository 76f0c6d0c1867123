# SPDX-License-Identifier: MIT
"""Prints PyTorch's loss of the small networks in networks_test.cpp, with the same weights and data.

    python3 tests/gpu/torch_networks.py

The weights are those of initial_weights() (core/models/models.h), the data those of
bench/networks.cpp, both from splitmix64. The loss is computed in float64.
"""
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from torch_gpu_step import build  # noqa: E402

WORD = (1 << 64) - 1


def splitmix64(counter: int) -> int:
    x = (counter + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & WORD
    return x ^ x >> 31


def draw(seed: int, count: int, end: int) -> torch.Tensor:
    return torch.tensor([splitmix64((seed << 40) + i) % end for i in range(count)])


def set_weights(name: str, model: torch.nn.Module) -> None:
    number = 0
    for path, parameter in model.named_parameters():
        if name.startswith("gpt2"):
            # Layers that add to the residual stream start smaller.
            layers = len(model.h) * 2.0 if "c_proj" in path else 1.0
            bound = 0.02 * math.sqrt(3.0 / layers) if parameter.dim() > 1 else 0.0
        elif parameter.dim() == 4:
            bound = math.sqrt(6.0 / (parameter.shape[0] * parameter.shape[2] ** 2))
        else:
            bound = 1.0 / math.sqrt(model.fc.in_features) if path.startswith("fc") else 0.0
        if bound == 0.0:
            value = 1.0 if path.endswith("weight") else 0.0
            parameter.data.fill_(value)
            continue
        base = (1 << 32) + (number << 26)
        number += 1
        bits = [splitmix64(base + i) >> 40 for i in range(parameter.numel())]
        unit = torch.tensor(bits, dtype=torch.float64) * 2.0 ** -23 - 1.0
        parameter.data.copy_((unit * bound).reshape(parameter.shape))


def loss(name: str, batch: int) -> float:
    network = build(name)
    model = network.model.double()
    set_weights(name, model)
    shape = (batch,) + network.sample
    count = math.prod(shape)
    if network.tokens:
        x, y = draw(3, count, network.classes), draw(4, count, network.classes)
    else:
        x, y = draw(1, count, 256).double() / 255.0, draw(2, batch, network.classes)
    return torch.nn.functional.cross_entropy(model(x.reshape(shape)), y).item()


if __name__ == "__main__":
    for network_name, samples in (("resnet50:image=64:width=8:depth=1:classes=10", 4),
                                  ("gpt2:layers=2:width=32:heads=2:sequence=16:vocabulary=61", 2)):
        print(f"{network_name} {loss(network_name, samples):.9f}")
