# SPDX-License-Identifier: MIT
"""Helpers of the oracle programs: MNIST batches and the reproducible initial weights.

Initial weights. Tensors are numbered in the order fc1.weight, fc1.bias, fc2.weight, fc2.bias, ...
(index 0, 1, 2, ...); element i counts in row-major order. With all integers modulo 2^64:

    splitmix64(x): z = x + 0x9E3779B97F4A7C15
                   z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
                   z = (z ^ (z >> 27)) * 0x94D049BB133111EB
                   return z ^ (z >> 31)

    bits    = splitmix64(seed * 2^32 + index * 2^26 + i) >> 40       (24 bits)
    unit    = float32(bits * 2^-24 * 2 - 1)                          (exact, in [-1, 1))
    bound   = float32(1 / sqrt(double(fan_in)))                      (division in double)
    element = unit * bound                                           (one float32 product)

fan_in is the layer's number of inputs, for its bias too. This is PyTorch's default for Linear
(uniform in +-1/sqrt(fan_in)) with another generator.
"""
import gzip
import struct
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import numpy as np

DEFAULT_SIZES = (784, 512, 512, 10)


def splitmix64(x: np.ndarray) -> np.ndarray:
    """One splitmix64 step of every element of a uint64 array."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def make_init(seed: int, sizes: Tuple[int, ...] = DEFAULT_SIZES) -> Dict[str, np.ndarray]:
    """Initial weights of an MLP as the module's docstring defines them."""
    tensors: Dict[str, np.ndarray] = {}
    index = 0
    for layer in range(1, len(sizes)):
        fan_in, fan_out = sizes[layer - 1], sizes[layer]
        bound = np.float32(1.0 / np.sqrt(np.float64(fan_in)))
        for name, shape in (("weight", (fan_out, fan_in)), ("bias", (fan_out,))):
            start = (seed * 2**32 + index * 2**26) % 2**64
            count = int(np.prod(shape))
            with np.errstate(over="ignore"):
                counter = np.uint64(start) + np.arange(count, dtype=np.uint64)
            bits = (splitmix64(counter) >> np.uint64(40)).astype(np.float64)
            unit = (bits * 2.0**-24 * 2.0 - 1.0).astype(np.float32)
            tensors[f"fc{layer}.{name}"] = (unit * bound).reshape(shape)
            index += 1
    return tensors


def load_init(path: Path) -> Dict[str, np.ndarray]:
    """Reads an initial-weights file as float32."""
    with np.load(path) as archive:
        return {key: archive[key].astype(np.float32) for key in archive.files}


def layer_count(tensors: Dict[str, np.ndarray]) -> int:
    """Number of layers fc1, fc2, ... in an initial-weights dictionary."""
    count = 0
    while f"fc{count + 1}.weight" in tensors:
        count += 1
    if count == 0:
        raise SystemExit("error: the initial weights have no fc1.weight")
    return count


def _read_idx(folder: Path, stem: str) -> np.ndarray:
    """Reads an IDX file of bytes, gzipped or not."""
    for path, opener in ((folder / f"{stem}.gz", gzip.open), (folder / stem, open)):
        if path.exists():
            with opener(path, "rb") as stream:
                data = stream.read()
            zero, kind, rank = struct.unpack(">HBB", data[:4])
            if zero != 0 or kind != 8:
                raise SystemExit(f"error: {path} is not an IDX file of bytes")
            shape = struct.unpack(f">{rank}I", data[4:4 + 4 * rank])
            return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape)
    raise SystemExit(f"error: {folder} has neither {stem}.gz nor {stem}")


def load_mnist_train(folder: Path) -> Tuple[np.ndarray, np.ndarray]:
    """Training images as float32 [n, 784], each float32(byte) / float32(255), and int64 labels."""
    images = _read_idx(folder, "train-images-idx3-ubyte")
    labels = _read_idx(folder, "train-labels-idx1-ubyte")
    pixels = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return pixels, labels.astype(np.int64)


def batches(samples: int, batch: int, steps: int) -> Iterator[slice]:
    """Batches in file order; after the last whole batch from the start again."""
    whole = samples // batch
    if whole == 0:
        raise SystemExit(f"error: a batch of {batch} is larger than the {samples} samples")
    for step in range(steps):
        start = step % whole * batch
        yield slice(start, start + batch)


def write_text(path: Path, lines: List[str]) -> None:
    """Writes lines; gzipped, with the same bytes each time, if the name ends in .gz."""
    text = ("\n".join(lines) + "\n").encode("ascii")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        with open(path, "wb") as raw:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
                stream.write(text)
    else:
        path.write_bytes(text)


def parse_sizes(text: str) -> Tuple[int, ...]:
    """Parses layer sizes such as 784-512-512-10."""
    sizes = tuple(int(part) for part in text.split("-"))
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(text)
    return sizes
