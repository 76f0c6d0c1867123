# SPDX-License-Identifier: MIT
"""Flax networks for onnx_frameworks.py: each a function that makes a module which returns scores."""
from typing import Callable, Dict, NamedTuple, Tuple

import jax
import jax.numpy as jnp
from flax import nnx


class Network(NamedTuple):
    make: Callable[..., nnx.Module]
    sample: Tuple[int, ...]  # shape of one sample; of integers if `tokens` is not 0
    loss: str  # "cross-entropy" or "mse"
    lr: float
    tokens: int = 0


class Mlp(nnx.Module):
    def __init__(self, **options) -> None:
        self.first = nnx.Linear(8, 12, **options)
        self.second = nnx.Linear(12, 12, **options)
        self.scores = nnx.Linear(12, 4, **options)

    def __call__(self, x):
        return self.scores(nnx.silu(self.second(nnx.relu(self.first(x)))))


class Block(nnx.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, **options) -> None:
        self.norm = nnx.LayerNorm(width, **options)
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, **options)
        self.norm2 = nnx.RMSNorm(width, **options)
        self.up = nnx.Linear(width, 2 * width, **options)
        self.down = nnx.Linear(2 * width, width, **options)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class Transformer(nnx.Module):
    def __init__(self, **options) -> None:
        self.tokens = nnx.Embed(12, 8, **options)
        self.blocks = nnx.List([Block(8, **options), Block(8, **options)])
        self.scores = nnx.Linear(8, 4, **options)

    def __call__(self, x):
        y = self.tokens(x)
        for block in self.blocks:
            y = block(y)
        return self.scores(y.mean(axis=1))


class Cnn(nnx.Module):
    """Convolutions, channels last, with a group normalization."""

    def __init__(self, **options) -> None:
        self.first = nnx.Conv(2, 4, (3, 3), **options)
        self.norm = nnx.GroupNorm(4, num_groups=2, **options)
        self.second = nnx.Conv(4, 6, (3, 3), strides=2, **options)
        self.scores = nnx.Linear(6, 4, **options)

    def __call__(self, x):
        y = nnx.relu(self.norm(self.first(x)))
        return self.scores(nnx.tanh(self.second(y)).mean(axis=(1, 2)))


NETWORKS: Dict[str, Network] = {
    "flax_mlp": Network(Mlp, (8,), "cross-entropy", 0.1),
    "flax_transformer": Network(Transformer, (6,), "cross-entropy", 0.05, tokens=12),
    "flax_cnn": Network(Cnn, (8, 8, 2), "cross-entropy", 0.05),
}
