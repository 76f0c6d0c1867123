#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the .npy and .npz files of this folder with numpy; the tests say what is in them.

Made with numpy 1.24.2. Run again only to add a file: time stamps differ from run to run.
"""
import io
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
VALUES = [0, 1, 2.5, -3, 100, 1e-7, -0.0, np.inf]
KINDS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def plain(kind):
    if kind[0] == "f":
        return VALUES
    top = np.iinfo(kind).max
    return [0, 1, 2, np.iinfo(kind).min, 100, top]


class Pipe(io.RawIOBase):
    """A stream that cannot seek: zipfile then writes sizes after the data (data descriptors)."""

    def __init__(self, file):
        self.file = file

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)


def save(name, array, version=None):
    with open(HERE / name, "wb") as file:
        np.lib.format.write_array(file, np.asarray(array), version)


types = {"bool": np.array([True, False, True])}
for kind in KINDS:
    for order, word in (("<", "little"), (">", "big")):
        types[f"{kind}_{word}"] = np.array(plain(kind), dtype=order + kind)
np.savez_compressed(HERE / "types.npz", **types)

cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
np.savez(HERE / "shapes.npz", c_order=cube, fortran_order=np.asfortranarray(cube),
         fortran_matrix=np.asfortranarray(cube[0].astype(">i2")), scalar=np.float64(7.5),
         one=np.array([3], np.uint8), empty=np.zeros((0, 3), np.float32))

small = {"fc1.weight": cube[1] / 8, "fc1.bias": np.array([0.5, -0.25, 3], np.float16)}
np.savez(HERE / "stored.npz", **small)
np.savez_compressed(HERE / "deflated.npz", **small)
with open(HERE / "streamed.npz", "wb") as out:
    np.savez_compressed(Pipe(out), **small)

save("version2.npy", cube, (2, 0))
save("version3.npy", cube, (3, 0))
save("complex.npy", np.array([1j]))
save("text.npy", np.array(["ab"]))
save("records.npy", np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f4")]))
save("objects.npy", np.array([None], dtype=object))
