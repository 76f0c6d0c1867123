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
  fresh    the same with Keras's initial weights; the exporter leaves out biases of zeros and scales
           of ones, so HalfScope must report a doubt

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
tf.config.threading.set_intra_op_parallelism_threads(1)
SAMPLES, BATCH, STEPS = 8, 4, 10
# Keras adds epsilon before it corrects the bias of the second moment, PyTorch and optax after it.
# With such a small epsilon both are the same. Keras computes
# the rate and powers of the betas in float32, which these numbers do not notice.
ADAM_RATE, BETA1, BETA2, EPSILON = 2.0 ** -10, 0.875, 1 - 2.0 ** -10, 1e-12
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
        self.known: Dict[tuple, List[float]] = {}
        rng = np.random.default_rng(sum(map(ord, name)))
        shape = (SAMPLES, *net.sample)
        self.x = (rng.integers(0, net.tokens, shape).astype(np.int32) if net.tokens
                  else rng.standard_normal(shape).astype(np.float16).astype(np.float32))
        output = self.output_shape()
        if net.loss == "mse":
            self.y = rng.standard_normal((SAMPLES, *output)).astype(np.float16).astype(np.float32)
        else:
            self.y = rng.integers(0, output[-1], (SAMPLES, *output[:-1])).astype(np.int32)

    def known_losses(self, variant: str, how: str, dtype: str) -> List[float]:
        start = "weights" if variant == "fresh" else variant  # the same initial weights
        if (start, how, dtype) not in self.known:
            self.known[start, how, dtype] = self.losses(start, how, dtype)
        return self.known[start, how, dtype]

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

    def weights(self) -> List[list]:
        """Name and shape of every trained weight."""
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
                    variable.assign(variable.numpy() + rng.uniform(0.02, 0.08, variable.shape))
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
                     else keras.optimizers.Adam(ADAM_RATE, BETA1, BETA2, EPSILON))
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
            # Keras's Adam squares the gradients of a token in every place before it adds them up, so
            # repeated tokens get another second moment than the sum's. Dense gradients are sums.
            gradients = [tf.convert_to_tensor(each)
                         for each in tape.gradient(loss, [w.value for w in weights])]
            optimizer.apply_gradients(zip(gradients, weights))
        return losses

    def weights(self) -> List[list]:
        return [[v.path, list(v.shape)] for v in self.model("weights").trainable_variables]


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
                                  else optax.adam(ADAM_RATE, BETA1, BETA2, EPSILON), wrt=nnx.Param)

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

    def weights(self) -> List[list]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(
            nnx.to_pure_dict(nnx.state(self.model(), nnx.Param)))
        return [[jax.tree_util.keystr(key, simple=True, separator="."), list(value.shape)]
                for key, value in leaves]


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
        rate = (f"sgd:lr={case.net.lr}" if how == "sgd" else
                f"adam:lr={ADAM_RATE},beta1={BETA1},beta2={BETA2},eps={EPSILON}")
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


# Files have numbers such as an epsilon of 1e-3 in float32, so the lanes float64 differ by that.
TOLERANCE = {"float32": 1e-5, "float64": 2e-6}
HOW = ("sgd", "adam")


def reasons(bench: Bench, file: Path) -> List[str]:
    return [f"{each['name']}: {each['why']}" for each in bench.call("inspect", file)["doubtful"]]


def compare(case: Case, variant: str, bench: Bench) -> List[str]:
    """What is wrong with one export; prints a line about it."""
    file = bench.folder / f"{case.name}.{variant}.onnx"
    gaps: Dict[str, float] = {}
    try:
        case.export(variant, file)
        doubts = reasons(bench, file)
        # A doubtful file is known to train differently; how differently does not matter.
        for how in HOW if variant != "fresh" and not folded(doubts) else HOW[:1]:
            ours = bench.train(case, file, how)
            for dtype in TOLERANCE if variant != "fresh" else ("float32",):
                gaps[f"{how} {dtype}"] = gap(ours[dtype], case.known_losses(variant, how, dtype))
    except Exception as error:  # whatever an exporter or the program says against it
        line = (str(error).splitlines() or [""])[0]
        print(f"{case.name:17} {variant:8} {type(error).__name__}: {line}", flush=True)
        return [f"{case.name} {variant}: {line}"]
    print(f"{case.name:17} {variant:8} " + "  ".join(f"{k} {v:.1e}" for k, v in gaps.items()) +
          "".join(f"\n    doubt: {each}" for each in doubts), flush=True)
    same = all(value <= TOLERANCE[key.split()[1]] for key, value in gaps.items())
    if variant == "weights":
        right = same and not doubts
    elif variant == "export":
        right = same != folded(doubts)
    else:
        right = not same and bool(doubts)
    return [] if right else [f"{case.name} {variant}: gaps {gaps}, doubts {doubts}"]


def folded(doubts: List[str]) -> bool:
    return any("folded batch normalizations" in each for each in doubts)


def without_comments(file: Path) -> bytes:
    """A file without what the exporters say about this machine and its code."""
    model = onnx.load(file)

    def clean(graph) -> None:
        graph.doc_string = ""
        del graph.value_info[:]
        for node in graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    clean(attribute.g)

    clean(model.graph)
    for function in model.functions:
        del function.value_info[:]
        function.doc_string = ""
    return model.SerializeToString()


def array(value: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value if value.dtype == np.int32 else value.astype(np.float16))
    return stream.getvalue()


# The exports in tests/onnx/files/frameworks.zip besides those by the code in docs/onnx.md.
MORE_FILES = {"mlp": ["export", "fresh"], "cnn_batch_norm": ["export"], "depthwise": ["export"],
              "unet": ["export"], "transformer": ["export"], "text": ["export"],
              "gru": ["export"], "discriminator": ["export", "fresh"]}


def write(target: Path) -> None:
    """Writes NAME.VARIANT.onnx, NAME/x.npy, NAME/labels.npy or targets.npy, and frameworks.json."""
    members: Dict[str, bytes] = {}
    cases: List[dict] = []
    for case in all_cases(None):
        members[f"{case.name}/x.npy"] = array(case.x)
        answers = "targets" if case.net.loss == "mse" else "labels"
        members[f"{case.name}/{answers}.npy"] = array(case.y)
        for variant in ["weights", *MORE_FILES.get(case.name, [])]:
            with tempfile.TemporaryDirectory() as temporary:
                file = Path(temporary) / "net.onnx"
                case.export(variant, file)
                members[f"{case.name}.{variant}.onnx"] = without_comments(file)
            entry = {"network": case.name, "variant": variant, "loss": case.net.loss,
                     "lr": case.net.lr, "weights": case.weights()}
            for how in HOW:
                entry[how] = case.known_losses(variant, how, "float64")
            cases.append(entry)
            print(f"{case.name}.{variant}: {len(members[f'{case.name}.{variant}.onnx'])} bytes",
                  flush=True)
    members["frameworks.json"] = (json.dumps(cases, indent=1, allow_nan=False) + "\n").encode("ascii")
    with zipfile.ZipFile(target, "w") as archive:
        for key in sorted(members):
            entry = zipfile.ZipInfo(key, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, members[key], compresslevel=9)
    print(f"{target}: {len(cases)} files, {target.stat().st_size} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--program", help="halfscope")
    parser.add_argument("--only", metavar="NAME", help="network to try [all]")
    parser.add_argument("--variant", choices=("weights", "export", "fresh"), help="export [all]")
    parser.add_argument("--work", metavar="FOLDER", type=Path, help="keep files here")
    parser.add_argument("--write-files", metavar="FILE", type=Path,
                        help="write the archive for tests/onnx and exit")
    arguments = parser.parse_args()
    if arguments.write_files:
        write(arguments.write_files)
        return 0
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
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
