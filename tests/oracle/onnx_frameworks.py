#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains small Keras and Flax networks beside HalfScope: ten steps of SGD and of Adam.

    onnx_frameworks.py --program build/bin/halfscope [--only NAME] [--work FOLDER]
    onnx_frameworks.py --write-files tests/onnx/files/frameworks.zip

Every network is exported in two or three ways:
  weights  by the code in docs/onnx.md, which is read from there, with the framework's own initial
           weights; HalfScope must have the framework's losses
  export   Keras's model.export(format="onnx") of a network whose weights are all different; the same
           losses, or a doubt if the exporter folded batch normalizations
  fresh    the same with Keras's initial weights; the exporter drops biases of zeros and scales of
           ones, so HalfScope must report a doubt

float64 lanes are compared with the framework in float64, float32 lanes with float32. Needs keras,
tensorflow, tf2onnx, jax, flax, jax2onnx and onnx.
"""
import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Dict, List, Optional

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"], os.environ["JAX_PLATFORMS"] = "", "cpu"
os.environ["KERAS_BACKEND"] = "tensorflow"
warnings.simplefilter("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import optax  # noqa: E402
import tensorflow as tf  # noqa: E402
from flax import nnx  # noqa: E402

import onnx_jax_networks  # noqa: E402
import onnx_keras_networks  # noqa: E402

jax.config.update("jax_enable_x64", True)
SAMPLES, BATCH, STEPS = 8, 4, 10
# Keras adds epsilon before it corrects the bias of the second moment, PyTorch and optax after it.
# With such a small epsilon both are the same.
ADAM_RATE, EPSILON = 1e-3, 1e-12
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "onnx.md"


def documented() -> dict:
    """The functions of docs/onnx.md for TensorFlow and JAX."""
    text = DOCUMENT.read_text(encoding="ascii")
    section = text.split("\n## TensorFlow and JAX\n", 1)[1].split("\n## ", 1)[0]
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.S):
        exec(block, names)  # pylint: disable=exec-used
    return names


class Case:
    """One network: its data, how the framework trains it, and its exports."""

    def __init__(self, name: str, net) -> None:
        self.name, self.net = name, net
        rng = np.random.default_rng(sum(map(ord, name)))
        shape = (SAMPLES, *net.sample)
        self.x = (rng.integers(0, net.tokens, shape).astype(np.int32) if net.tokens
                  else rng.standard_normal(shape).astype(np.float16).astype(np.float32))
        output = self.output_shape()
        if net.loss == "mse":
            self.y = rng.standard_normal((SAMPLES, *output)).astype(np.float16).astype(np.float32)
        else:
            self.y = rng.integers(0, output[-1], (SAMPLES, *output[:-1])).astype(np.int32)

    def batch(self, step: int, dtype: str):
        rows = slice(step * BATCH % SAMPLES, step * BATCH % SAMPLES + BATCH)
        x, y = self.x[rows], self.y[rows]
        return (x if self.net.tokens else x.astype(dtype),
                y if y.dtype == np.int32 else y.astype(dtype))

    def output_shape(self):
        raise NotImplementedError

    def variants(self) -> List[str]:
        raise NotImplementedError

    def export(self, variant: str, path: Path) -> None:
        raise NotImplementedError

    def losses(self, variant: str, how: str, dtype: str) -> List[float]:
        raise NotImplementedError


class KerasCase(Case):
    def model(self, variant: str, dtype: str = "float32") -> keras.Model:
        keras.backend.clear_session()
        keras.config.set_floatx("float32")
        keras.utils.set_random_seed(1)
        start = self.net.make()
        if variant == "export":
            rng = np.random.default_rng(2)
            for variable in start.variables:
                if not variable.path.startswith("seed"):
                    variable.assign(variable.numpy() + rng.uniform(0.05, 0.2, variable.shape))
        if dtype == "float32":
            start(self.x[:BATCH])
            return start
        weights = start.get_weights()
        keras.backend.clear_session()
        keras.config.set_floatx(dtype)
        model = self.net.make()
        model.set_weights(weights)
        return model

    def output_shape(self):
        return self.model("weights").output_shape[1:]

    def variants(self) -> List[str]:
        return ["weights", "export", "fresh"]

    def export(self, variant: str, path: Path) -> None:
        model = self.model(variant)
        if variant == "weights":
            FUNCTIONS["export_keras"](model, path)
        else:
            model.export(path, format="onnx", verbose=False)

    def losses(self, variant: str, how: str, dtype: str) -> List[float]:
        model = self.model(variant, dtype)
        optimizer = (keras.optimizers.SGD(self.net.lr) if how == "sgd"
                     else keras.optimizers.Adam(ADAM_RATE, epsilon=EPSILON))
        losses = []
        for step in range(STEPS):
            x, y = self.batch(step, dtype)
            with tf.GradientTape() as tape:
                scores = model(x, training=True)
                if self.net.loss == "mse":
                    loss = tf.reduce_mean(tf.square(scores - y))
                else:
                    loss = tf.reduce_mean(
                        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))
            losses.append(float(loss))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, [w.value for w in weights]), weights))
        return losses


class FlaxCase(Case):
    def model(self, dtype: str = "float32") -> nnx.Module:
        start = self.net.make(rngs=nnx.Rngs(1), dtype=jnp.float32, param_dtype=jnp.float32)
        if dtype == "float32":
            return start
        model = self.net.make(rngs=nnx.Rngs(1), dtype=dtype, param_dtype=dtype)
        nnx.update(model, jax.tree.map(lambda x: x.astype(dtype), nnx.state(start, nnx.Param)))
        return model

    def output_shape(self):
        return self.model()(self.x).shape[1:]

    def variants(self) -> List[str]:
        return ["weights"]

    def export(self, variant: str, path: Path) -> None:
        kind = jnp.int32 if self.net.tokens else jnp.float32
        one = jax.ShapeDtypeStruct(tuple(jax.export.symbolic_shape("B")) + self.net.sample, kind)
        FUNCTIONS["export_flax"](self.model(), [one], path)

    def losses(self, variant: str, how: str, dtype: str) -> List[float]:
        model = self.model(dtype)
        optimizer = nnx.Optimizer(model, optax.sgd(self.net.lr) if how == "sgd"
                                  else optax.adam(ADAM_RATE, eps=EPSILON), wrt=nnx.Param)

        def loss_of(model, x, y):
            scores = model(x)
            if self.net.loss == "mse":
                return jnp.mean((scores - y) ** 2)
            return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

        losses = []
        for step in range(STEPS):
            loss, gradients = nnx.value_and_grad(loss_of)(model, *self.batch(step, dtype))
            losses.append(float(loss))
            optimizer.update(model, gradients)
        return losses


def all_cases(only: Optional[str]) -> List[Case]:
    cases: List[Case] = []
    for kind, module in ((KerasCase, onnx_keras_networks), (FlaxCase, onnx_jax_networks)):
        cases += [kind(name, net) for name, net in module.NETWORKS.items()
                  if only is None or name == only]
    return cases


def gap(ours: List[float], theirs: List[float]) -> float:
    if len(ours) != len(theirs) or not np.isfinite(ours).all():
        return float("inf")
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


class Bench:
    """Runs HalfScope's command line."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder

    def call(self, *arguments: object) -> dict:
        done = subprocess.run([self.program, *map(str, arguments), "--json"], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[0])
        return json.loads(done.stdout)

    def train(self, case: Case, file: Path, how: str) -> Dict[str, List[float]]:
        """The losses of the lanes float32 and float64."""
        data, run = self.folder / "data.npz", self.folder / "run.hscope"
        np.savez(data, x=case.x, **{"targets" if case.net.loss == "mse" else "labels": case.y})
        rate = f"sgd:lr={case.net.lr}" if how == "sgd" else f"adam:lr={ADAM_RATE},eps={EPSILON}"
        self.call("train", "--model", file, "--data", data, "--loss", case.net.loss, "--lanes",
                  "float32,float64", "--steps", STEPS, "--batch", BATCH, "--no-shuffle",
                  "--optimizer", rate, "--out", run, "--force", "--no-record", "--no-eval")
        table = self.folder / "steps.csv"
        subprocess.run([self.program, "report", run, "--steps", table, "--force"], check=True,
                       stdout=subprocess.DEVNULL)
        losses: Dict[str, List[float]] = {}
        lines = table.read_text(encoding="ascii").splitlines()
        columns = lines[0].split(",")
        for line in lines[1:]:
            row = dict(zip(columns, line.split(",")))
            losses.setdefault(row["lane"], []).append(float(row["loss"]))
        return losses


TOLERANCE = {"float32": 1e-5, "float64": 1e-8}


def compare(case: Case, variant: str, bench: Bench) -> List[str]:
    """What is wrong with one export; prints a line about it."""
    file = bench.folder / f"{case.name}.{variant}.onnx"
    try:
        case.export(variant, file)
        said = bench.call("inspect", file)
        doubts = [each["why"] for each in said.get("doubts", [])]
        gaps = {}
        for how in ("sgd", "adam"):
            ours = bench.train(case, file, how)
            for dtype in TOLERANCE:
                gaps[f"{how} {dtype}"] = gap(ours[dtype], case.losses(variant, how, dtype))
    except Exception as error:  # whatever an exporter or the program says against it
        line = (str(error).splitlines() or [""])[0]
        print(f"{case.name:18} {variant:8} {type(error).__name__}: {line}")
        return [f"{case.name} {variant}: {line}"]
    print(f"{case.name:18} {variant:8} " + "  ".join(f"{k} {v:.1e}" for k, v in gaps.items()) +
          (f"  doubts: {len(doubts)}" if doubts else ""))
    same = all(value <= TOLERANCE[key.split()[1]] for key, value in gaps.items())
    if same and (variant == "export" or not doubts):
        return []
    if not same and doubts and variant != "weights":
        return []
    return [f"{case.name} {variant}: gaps {gaps}, doubts {doubts}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program")
    parser.add_argument("--only")
    parser.add_argument("--variant")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--write-files", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        wrong = []
        for case in all_cases(arguments.only):
            for variant in case.variants():
                if arguments.variant in (None, variant):
                    wrong += compare(case, variant, Bench(arguments.program, folder))
    for line in wrong:
        print(f"WRONG {line}")
    return 1 if wrong else 0


FUNCTIONS = documented()
if __name__ == "__main__":
    sys.exit(main())
