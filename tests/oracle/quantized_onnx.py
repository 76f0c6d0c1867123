#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs quantized networks in ONNX Runtime and in HalfScope and compares the outputs.

    python3 tests/oracle/quantized_onnx.py --program build/bin/halfscope

  written: `quantize` makes a plan, `convert` writes it as a file, ONNX Runtime runs the file, and
           `run` runs the plan
  read:    ONNX Runtime's own tool quantizes a network, and both run the file

Sums have different orders, so now and then a value next to the border of two codes gets the other
one. Needs numpy, onnx and onnxruntime.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

MOST = 2e-3  # relative error of all outputs


def run(program, folder, *words):
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


NONE = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
BASIC = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC


def in_runtime(file, x, batch, level=NONE):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    pieces = [session.run(None, {name: x[i:i + batch]})[0] for i in range(0, len(x), batch)]
    return np.concatenate(pieces)


def difference(ours, theirs):
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)


def check(what, ours, theirs, optimized=None):
    """Only the result without optimizations counts; those of version 1.32 change it."""
    error = difference(ours, theirs)
    more = "" if optimized is None else f", with its basic optimizations {difference(ours, optimized):.2g}"
    print(f"{what}: relative difference {error:.2g}{more}")
    return error <= MOST and np.linalg.norm(theirs) > 0


def only_array(file):
    arrays = np.load(file)
    return arrays[arrays.files[0]]


class Samples(CalibrationDataReader):
    def __init__(self, name, x, batch):
        self.pieces = iter([{name: x[i:i + batch]} for i in range(0, len(x), batch)])

    def get_next(self):
        return next(self.pieces, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    program = str(pathlib.Path(parser.parse_args().program).resolve())
    rng = np.random.default_rng(3)
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        x = rng.uniform(0, 1, (128, 1, 28, 28)).astype(np.float32)
        np.savez(folder / "x.npz", input=x)
        run(program, folder, "train", "--model", "lenet", "--data", "digits", "--steps", "40",
            "--lanes", "float32", "--out", "t.hscope", "--save-weights", "w.npz", "--quiet")
        network = ["lenet", "--init", "w.npz"]
        cases = [("int8", "max", "channel"), ("int8", "entropy", "tensor"), ("int4", "mse", "channel"),
                 ("e4m3fn", "percentile:99.9", "channel"), ("e5m2", "max", "tensor")]
        # Values below the range, which QuantizeLinear alone would give one code more than the plan.
        clipped = [("int8", "percentile:80", "channel"), ("int4", "percentile:80", "tensor")]
        spread = rng.normal(0, 1, (128, 1, 28, 28)).astype(np.float32)
        np.savez(folder / "spread.npz", input=spread)
        for code, method, scales in cases + clipped:
            samples, of = ((spread, "spread.npz") if (code, method, scales) in clipped
                           else (x, "x.npz"))
            given = ["--input", of] if of == "spread.npz" else ["--data", "digits"]
            run(program, folder, "quantize", *network, *given, "--limit", "256",
                "--format", code, "--method", method, "--scales", scales, "--tolerance", "1",
                "--out", "p.json", "--force")
            run(program, folder, "convert", *network, "--data", "digits", "--plan", "p.json",
                "--batch", "64", "--out", "q.onnx", "--force")
            run(program, folder, "run", *network, "--input", of, "--lanes", "p.json",
                "--batch", "64", "--out", "y.npz", "--quiet")
            ours = only_array(folder / "y.npz")
            (folder / "y.npz").unlink()
            file = folder / "q.onnx"
            good &= check(f"written {code} {method} {scales}", ours, in_runtime(file, samples, 64),
                          in_runtime(file, samples, 64, BASIC))
        run(program, folder, "convert", *network, "--data", "digits", "--batch", "64",
            "--out", "plain.onnx")
        reals = ort.InferenceSession(str(folder / "plain.onnx")).get_inputs()[0].name
        for kind, symmetric in [(QuantType.QInt8, True), (QuantType.QUInt8, False)]:
            file = folder / f"{kind.name}.onnx"
            quantize_static(folder / "plain.onnx", file, Samples(reals, x, 64),
                            quant_format=QuantFormat.QDQ, per_channel=True,
                            activation_type=kind, weight_type=QuantType.QInt8,
                            extra_options={"ActivationSymmetric": symmetric})
            run(program, folder, "run", file.name, "--input", "x.npz", "--batch", "64",
                "--out", "y.npz", "--quiet")
            ours = only_array(folder / "y.npz")
            (folder / "y.npz").unlink()
            good &= check(f"read {kind.name}", ours, in_runtime(file, x, 64))
    if not good:
        sys.exit("HalfScope and ONNX Runtime differ")


if __name__ == "__main__":
    main()
