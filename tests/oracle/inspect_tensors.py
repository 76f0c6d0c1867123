#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares every count of `halfscope inspect` on tensors with NumPy and ml_dtypes.

Writes .npy, .npz and .safetensors files of all types, with the special values of every format and
random values over the whole range, and runs the program on them.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import safetensors.numpy

FORMATS = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3fn": ml_dtypes.float8_e4m3fn,
           "e5m2": ml_dtypes.float8_e5m2, "fp32": np.float32}
BLOCK = 32


def exact(values):
    """The values as long doubles, which represent every value of every type here."""
    if values.dtype.kind in "iub":
        return values.astype(np.longdouble)
    return values.astype(np.float64).astype(np.longdouble)


def round_to(values, dtype):
    """Rounds to nearest even, once: by arithmetic on long doubles, then by a conversion that is exact."""
    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(values)
        last = np.maximum(exponent - 1, int(info.minexp)) - int(info.nmant)
        scaled = np.ldexp(values, -last)
        rounded = np.ldexp(np.rint(scaled), last)
        beyond = np.abs(rounded) > np.longdouble(float(info.max))
        rounded = np.where(np.isfinite(values) & beyond, np.inf * np.sign(values), rounded)
        stored = rounded.astype(np.float64).astype(dtype)
        inside = np.isfinite(rounded) & ~beyond
        assert np.all(stored[inside].astype(np.float64) == rounded[inside].astype(np.float64))
    return np.where(np.isfinite(values), rounded, values)


def counts(values, dtype):
    x = exact(values).ravel()
    finite = np.isfinite(x)
    rounded = round_to(x, dtype)
    smallest = np.longdouble(float(ml_dtypes.finfo(dtype).smallest_normal))
    magnitude = np.abs(rounded)
    return {"overflow": int(np.sum(finite & ~np.isfinite(rounded))),
            "underflow": int(np.sum(finite & (x != 0) & (rounded == 0))),
            "subnormal": int(np.sum(finite & (magnitude > 0) & (magnitude < smallest)))}


def sqnr(values, dtype):
    x = exact(values).ravel()
    rounded = round_to(x, dtype)
    kept = np.isfinite(x) & np.isfinite(rounded)
    signal, error = np.sum(x[kept] ** 2), np.sum((x[kept] - rounded[kept]) ** 2)
    return None if signal == 0 else float("inf") if error == 0 else float(10 * np.log10(signal / error))


# Elements: exponent of the largest and of the smallest normal number, mantissa bits, largest value.
MX = {"mxfp8": (8, -6, 3, 448), "mxfp8_e5m2": (15, -14, 2, 57344), "mxfp4": (2, 0, 1, 6)}


def to_element(x, smallest, mantissa, largest):
    """Elements of a block, and how many are clipped; to nearest even."""
    _, exponents = np.frexp(x)
    last = np.maximum(exponents - 1, smallest) - mantissa
    rounded = np.ldexp(np.rint(np.ldexp(x, -last)), last)
    return np.clip(rounded, -largest, largest), int(np.sum(np.abs(rounded) > largest))


def rows_of(values):
    return values.reshape(-1, values.shape[-1] if values.ndim else 1)


def mx(values, emax, smallest, mantissa, largest):
    """OCP MX 1.0, 6.3: the scale is 2^(floor(log2 amax) - emax); larger elements are clipped."""
    clipped = flushed = 0
    for row in rows_of(exact(values)):
        for begin in range(0, len(row), BLOCK):
            block = row[begin:begin + BLOCK]
            top = np.max(np.abs(block))
            if not np.isfinite(top) or top == 0:
                continue
            _, exponent = np.frexp(top)
            scaled = np.ldexp(block, -max(int(exponent) - 1 - emax, -127))
            rounded, beyond = to_element(scaled, smallest, mantissa, largest)
            clipped += beyond
            flushed += int(np.sum((scaled != 0) & (rounded == 0)))
    return clipped, flushed


def nvfp4(values):
    """NVIDIA, "Pretraining LLMs with NVFP4", arXiv:2509.25149, appendix C: the tensor is divided by
    amax / (6 * 448) in fp32, each block of 16 by the e4m3 number nearest to its amax / 6, and its
    elements become e2m1. Returns clipped and flushed elements, and blocks with a NaN or infinity."""
    x = exact(values)
    finite = np.abs(x[np.isfinite(x)])
    top = np.float64(finite.max()) if finite.size else np.float64(0)
    tensor_scale = np.longdouble(max(np.float32(top / (6.0 * 448.0)), np.float32(2.0**-149))) if top else np.longdouble(1)
    clipped = flushed = nan_blocks = 0
    for row in rows_of(x):
        for begin in range(0, len(row), 16):
            block = row[begin:begin + 16]
            if not np.all(np.isfinite(block)):
                nan_blocks += 1
                continue
            wanted = np.float64(np.max(np.abs(block))) / (6.0 * np.float64(tensor_scale))
            stored, _ = to_element(np.longdouble(wanted), -6, 3, 448)
            assert float(np.float64(stored).astype(ml_dtypes.float8_e4m3fn)) == float(stored)
            if stored == 0:
                flushed += int(np.sum(block != 0))
                continue
            scaled = block / (stored * tensor_scale)
            rounded, beyond = to_element(scaled, 0, 1, 6)
            stored_elements = rounded.astype(np.float32).astype(ml_dtypes.float4_e2m1fn)
            assert np.array_equal(stored_elements.astype(np.float32), rounded.astype(np.float32))
            clipped += beyond
            flushed += int(np.sum((block != 0) & (rounded == 0)))
    return clipped, flushed, nan_blocks


def special_values():
    """Every limit of every format, its neighbours and the midpoints between formats' numbers."""
    points = [0.0, -0.0, 1.0]
    for dtype in FORMATS.values():
        info = ml_dtypes.finfo(dtype)
        ulp = 2.0 ** (int(info.maxexp) - 1 - int(info.nmant))
        tiny = 2.0 ** (int(info.minexp) - int(info.nmant))
        points += [float(info.max), float(info.max) + ulp / 2, float(info.max) + ulp,
                   float(info.smallest_normal), tiny, tiny / 2, tiny * 1.5]
    points = np.array(points, np.float64)
    points = np.concatenate([points, np.nextafter(points, 0), np.nextafter(points, np.inf)])
    return np.concatenate([points, -points])


def tensors(rng):
    special = special_values()
    f64 = np.concatenate([special, rng.standard_normal(3000) * 2.0 ** rng.uniform(-160, 140, 3000)])
    with np.errstate(over="ignore"):
        f32 = np.concatenate([f64, [np.inf, -np.inf, np.nan]]).astype(np.float32)
    codes = np.arange(65536, dtype=np.uint16)
    bytes_ = np.arange(256, dtype=np.uint8)
    large = np.array([2**60 + 2**52 + 1, 2**62 + 2**38, 2**53 + 1, 65519, 65520, -65520, 2**63 - 1], np.int64)
    return {"f64": f64, "f32": f32, "f32.long": np.resize(f32, (3, 700000)),
            "f32.rows": rng.standard_normal((50, 77)).astype(np.float32),
            "f16": codes.view(np.float16), "bf16": codes.view(ml_dtypes.bfloat16),
            "e4m3": bytes_.view(ml_dtypes.float8_e4m3fn), "e5m2": bytes_.view(ml_dtypes.float8_e5m2),
            "i64": large, "u64": large.astype(np.uint64), "i32": large[1:].astype(np.int32),
            "u32": large.astype(np.uint32), "i16": codes.view(np.int16), "u16": codes,
            "i8": bytes_.view(np.int8), "u8": bytes_, "bool": np.array([True, False]),
            "empty": np.zeros((0, 5), np.float32), "scalar": np.array(3.0, np.float32)}


def check(program, path, arrays, seen):
    words = [program, "inspect", str(path), "--json", "--format", ",".join([*FORMATS, *MX, "nvfp4"])]
    listed = {each["name"]: each for each in json.loads(subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True).stdout)["tensors"]}
    assert listed.keys() == arrays.keys(), (path, listed.keys() ^ arrays.keys())
    for name, values in arrays.items():
        got, x = listed[name], exact(values).ravel()
        where = f"{path.name}: {name}"
        finite = np.abs(x[np.isfinite(x) & (x != 0)])
        wanted = {"values": x.size, "zeros": int(np.sum(x == 0)), "nan": int(np.sum(np.isnan(x))),
                  "pos_inf": int(np.sum(x == np.inf)), "neg_inf": int(np.sum(x == -np.inf)),
                  "shape": list(values.shape)}
        for key, value in wanted.items():
            assert got[key] == value, (where, key, got[key], value)
        if name not in ("i64", "u64") and finite.size:
            assert got["largest"] == float(finite.max()), (where, got["largest"], finite.max())
            assert got["smallest"] == float(finite.min()), (where, got["smallest"], finite.min())
        if name not in ("i64", "u64"):
            number = np.unique(x).size
            assert got["distinct"] == (number if number <= 65536 else None), (where, got["distinct"], number)
        assert sum(got["histogram"].values()) == finite.size, where
        inside = finite[(finite >= 2.0**-149) & (finite < 2.0**127)]
        powers, each = np.unique(np.frexp(inside)[1] - 1, return_counts=True)
        for power, count in zip(powers, each):
            if -149 < power < 127:
                assert got["histogram"][str(power)] == count, (where, power)
        formats = {each["format"]: each for each in got["formats"]}
        for format_name, dtype in FORMATS.items():
            for key, value in counts(values, dtype).items():
                assert formats[format_name][key] == value, (where, format_name, key, formats[format_name][key], value)
                seen[key] = seen.get(key, 0) + value
            ours, theirs = formats[format_name]["sqnr_db"], sqnr(values, dtype)
            if theirs is None or theirs == float("inf"):
                assert ours == ("inf" if theirs else None), (where, format_name, ours, theirs)
            else:
                assert abs(ours - theirs) < 1e-6 * abs(theirs) + 1e-9, (where, format_name, ours, theirs)
        if name in ("f32", "f32.rows", "f16", "bf16", "i16", "i32", "scalar"):
            for format_name, element in MX.items():
                pair = (formats[format_name]["clipped"], formats[format_name]["underflow"])
                assert pair == mx(values, *element), (where, format_name, pair, mx(values, *element))
                seen["clipped"] = seen.get("clipped", 0) + pair[0]
            got_nv = tuple(formats["nvfp4"][key] for key in ("clipped", "underflow", "nan_blocks"))
            assert got_nv == nvfp4(values), (where, got_nv, nvfp4(values))
            for key, count in zip(("nvfp4 clipped", "nvfp4 underflow", "nvfp4 NaN blocks"), got_nv):
                seen[key] = seen.get(key, 0) + count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    all_tensors = tensors(np.random.default_rng(7))
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        safetensors.numpy.save_file(all_tensors, folder / "all.safetensors", metadata={"made": "here"})
        check(program, folder / "all.safetensors", all_tensors, seen)
        plain = {name: values for name, values in all_tensors.items() if name not in ("bf16", "e4m3", "e5m2")}
        np.savez(folder / "all.npz", **plain)
        check(program, folder / "all.npz", plain, seen)
        np.savez_compressed(folder / "packed.npz", **plain)
        check(program, folder / "packed.npz", plain, seen)
        for name, values in plain.items():
            big = values.astype(values.dtype.newbyteorder(">"))
            np.save(folder / f"{name}.npy", big)
            check(program, folder / f"{name}.npy", {name: values}, seen)
    assert all(seen[key] > 0 for key in ("overflow", "underflow", "subnormal", "clipped", "nvfp4 underflow", "nvfp4 NaN blocks")), seen
    print("equal:", ", ".join(f"{count} {key}" for key, count in seen.items()))


if __name__ == "__main__":
    sys.exit(main())
