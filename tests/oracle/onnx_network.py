# SPDX-License-Identifier: MIT
"""The networks of onnx_matrix.py, and common kinds of inputs."""
from typing import Callable, Dict, NamedTuple

import torch
from torch import nn

Inputs = Callable[[int], Dict[str, torch.Tensor]]


class Network(NamedTuple):
    """A network: how to create it, n samples for it, and how it trains."""

    family: str
    make: Callable[[], nn.Module]
    inputs: Inputs
    loss: str = "cross-entropy"  # or "mse"
    lr: float = 0.05             # of ten steps of SGD
    # ONNX's recurrent operators hold several parameters in one tensor: only elements are counted.
    packed: bool = False
    # Exports that have the network's parameters at all: where weights are computed from others,
    # most exports hold the result.
    variants: str = "*"


def rows(width: int) -> Inputs:
    return lambda n: {"x": torch.randn(n, width)}


def image(channels: int, side: int) -> Inputs:
    return lambda n: {"x": torch.randn(n, channels, side, side)}


def line(channels: int, length: int) -> Inputs:
    return lambda n: {"x": torch.randn(n, channels, length)}


def sequence(length: int, width: int) -> Inputs:
    return lambda n: {"x": torch.randn(n, length, width)}


def tokens(length: int, vocabulary: int, name: str = "input_ids", low: int = 0) -> Inputs:
    return lambda n: {name: torch.randint(low, vocabulary, (n, length))}
