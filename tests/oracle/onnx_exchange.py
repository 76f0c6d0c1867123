# SPDX-License-Identifier: MIT
"""Files written by `halfscope convert`, checked by onnx and computed by ONNX Runtime.

    onnx_exchange.py --program build/bin/halfscope [--only NAME]

Every file passes onnx.checker with full shape inference. ONNX Runtime's outputs are those of
`halfscope run` with the same plan: the same but where an order of sums moves a value across a tie,
which a bound shows that is far below what the plan itself changes.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

FILES = Path(__file__).resolve().parent.parent / "onnx" / "files" / "nodes.zip"

# Largest relative distance from one number to the next of the formats that a plan rounds to.
STEP = {"float32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7, "e4m3fn": 2.0**-3,
        "e5m2": 2.0**-2}


def products_in(read: str) -> Dict:
    """Products read a format, without scales; everything else is fp32."""
    return {"schema": "halfscope.plan/1", "name": f"products_{read}",
            "default": {"format": "fp32"},
            "rules": [{"op": op, "read": read} for op in ("Conv", "Gemm", "MatMul")]}


# A network's plan: the preset or its JSON, and the format that it rounds to.
PLANS: Dict[str, Tuple[object, str]] = {
    "float32": ("float32", "float32"),
    "float16": ("float16", "fp16"),
    "mixed_float16": ("mixed_float16", "fp16"),
    "bfloat16": ("bfloat16", "bf16"),
    "mixed_bfloat16": ("mixed_bfloat16", "bf16"),
    "e4m3fn": (products_in("e4m3fn"), "e4m3fn"),
    "e4m3fn_saturating": (products_in("e4m3fn:sat"), "e4m3fn"),
    "e5m2": (products_in("e5m2"), "e5m2"),
}
# And what ONNX cannot say, with a word that the error must have.
REFUSED: Dict[str, Tuple[object, str]] = {
    "fp8_delayed": ("fp8_delayed", "scale"),
    "fp8_current": ("fp8_current", "scale"),
    "mxfp8": ("mxfp8", "scale"),
    "nvfp4": ("nvfp4", "scale"),
    "e3m2": (products_in("e3m2"), "e3m2"),
    "tf32": (products_in("tf32"), "tf32"),
    "toward_zero": ({"schema": "halfscope.plan/1", "name": "toward_zero",
                     "default": {"format": "fp16", "rounding": "toward-zero"}}, "toward-zero"),
    "format_sums": ({"schema": "halfscope.plan/1", "name": "format_sums",
                     "default": {"format": "fp16", "accumulate": "format"}}, "accumulates"),
}
# Networks by name, with the shape of their images and the number of classes.
BUILT_IN = {"mlp": ("mlp:20-16-16-5", (20,), 5), "lenet": ("lenet", (1, 28, 28), 10),
            "resnet20": ("resnet20", (3, 32, 32), 10)}


class Refused(Exception):
    """The program ended with 2 or 3 and this message."""


class Exchange:
    """One network in its folder: converted, run by us, run by ONNX Runtime."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.notes = ""  # of the last call

    def call(self, *arguments: object) -> str:
        done = subprocess.run([self.program, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode in (2, 3):
            raise Refused(done.stderr.strip())
        self.notes = done.stderr.strip()
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-400:]}"
        return done.stdout

    def plan_argument(self, plan: object) -> object:
        if isinstance(plan, str):
            return plan
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan), encoding="ascii")
        return path

    def convert(self, network: object, plan: object = None, *more: object) -> onnx.ModelProto:
        out = self.folder / "out.onnx"
        given = [] if plan is None else ["--plan", self.plan_argument(plan)]
        for name, shape, classes in BUILT_IN.values():
            if name == network:  # the shape of its images comes from data
                np.savez(self.folder / "data.npz", x=np.zeros((classes, *shape), np.float32),
                         y=np.arange(classes))
                given += ["--data", self.folder / "data.npz"]
        self.call("convert", network, *given, *more, "--out", out, "--force")
        onnx.checker.check_model(str(out), full_check=True)
        return onnx.load(str(out))

    def run(self, network: object, inputs: Dict[str, np.ndarray], plan: object = "float32",
            *more: object) -> Dict[str, np.ndarray]:
        np.savez(self.folder / "x.npz", **inputs)
        out = self.folder / "y.npz"
        self.call("run", network, "--input", self.folder / "x.npz", "--lanes",
                  self.plan_argument(plan), "--out", out, "--force", "--quiet", *more)
        with np.load(out) as archive:
            return {key: archive[key] for key in archive.files}


def by_runtime(model: onnx.ModelProto, inputs: Dict[str, np.ndarray],
               optimized: bool = False) -> Dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def random_inputs(model: onnx.ModelProto, seed: int, below: int = 2) -> Dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = {}
    for each in model.graph.input:
        shape = [d.dim_value for d in each.type.tensor_type.shape.dim]
        assert all(shape), f"{each.name} has the shape {shape}"
        inputs[each.name] = (
            rng.integers(0, below, shape).astype(np.int64)
            if each.type.tensor_type.elem_type == TensorProto.INT64
            else rng.uniform(-1, 1, shape).astype(np.float32))
    return inputs


def gap(a: Dict[str, np.ndarray], b: Dict[str, np.ndarray]) -> Tuple[float, float]:
    """The largest difference, and the root of the mean square, to the largest value of b."""
    assert a.keys() == b.keys(), f"outputs {sorted(a)} and {sorted(b)}"
    largest, mean = 0.0, 0.0
    for key, value in b.items():
        assert a[key].shape == value.shape, f"{key}: {a[key].shape} and {value.shape}"
        assert np.isfinite(value).all() and np.isfinite(a[key]).all(), f"{key} is not finite"
        error = (a[key].astype(np.float64) - value) / np.abs(value).max()
        largest = max(largest, np.abs(error).max())
        mean = max(mean, float(np.sqrt(np.square(error).mean())))
    return largest, mean


def node_names(model: onnx.ModelProto) -> List[str]:
    return [node.name for node in model.graph.node]


def check_plan(exchange: Exchange, network: object, name: str, below: int) -> str:
    plan, rounds_to = PLANS[name]
    batch = ("--batch", 4) if network != exchange.folder / "transformer.onnx" else ()
    model = exchange.convert(network, plan, *batch)
    casts = [node for node in model.graph.node if node.op_type == "Cast"
             and node.attribute[0].i != TensorProto.BOOL]
    assert bool(casts) == (name != "float32"), f"{len(casts)} casts"
    inputs = random_inputs(model, 3, below)
    ours = exchange.run(network, inputs, plan)
    theirs = by_runtime(model, inputs)
    largest, mean = gap(theirs, ours)
    if name == "float32":
        assert largest < 64 * STEP[rounds_to], f"differs by {largest:.1e}"
        return f"{largest:.1e}"
    assert largest < 4 * STEP[rounds_to], f"differs by {largest:.1e}"
    _, of_plan = gap(exchange.run(network, inputs), ours)
    # In a deep network one value that falls on the other side of a tie moves others: as much as it
    # does where only our own sums are taken in double is the order's doing.
    _, of_sums = gap(exchange.run(network, inputs, plan, "--accumulate", "fp64"), ours)
    bound = max(0.02 * of_plan, 3.0 * of_sums)
    assert mean <= bound, f"differs by {mean:.1e}, sums by {of_sums:.1e}, the plan by {of_plan:.1e}"
    # The file with its casts is a network again, which rounds where they are.
    again = exchange.folder / "again.onnx"
    onnx.save(model, str(again))
    _, back = gap(exchange.run(again, inputs, "as_exported"), ours)
    assert back == 0.0, f"read again it differs by {back:.1e}, the plan by {of_plan:.1e}"
    return f"{mean:.1e}, sums {of_sums:.1e}, the plan {of_plan:.1e}"


def check_refusal(exchange: Exchange, network: object, name: str) -> str:
    plan, word = REFUSED[name]
    out = exchange.folder / "out.onnx"
    out.unlink(missing_ok=True)
    try:
        exchange.convert(network, plan)
    except Refused as refused:
        message = str(refused)
    else:
        raise AssertionError("it is converted")
    assert message.startswith("halfscope: ") and word in message, message
    assert message.count("\n") <= 1, message
    assert not out.exists(), "a file is left behind"
    return message.splitlines()[0]


def check_plain(exchange: Exchange, network: object, below: int) -> str:
    """The network as it is: what ONNX Runtime computes, names, and the same file again."""
    first = exchange.convert(network)
    inputs = random_inputs(first, 4, below)
    largest, _ = gap(by_runtime(first, inputs, True), exchange.run(network, inputs))
    assert largest < 64 * STEP["float32"], f"differs by {largest:.1e}"
    copy = exchange.folder / "first.onnx"
    onnx.save(first, str(copy))
    again = exchange.convert(copy)
    assert node_names(again) == node_names(first), set(node_names(again)) ^ set(node_names(first))
    assert [t.name for t in again.graph.initializer] == [t.name for t in first.graph.initializer]
    for a, b in zip(first.graph.initializer, again.graph.initializer):
        if a.data_type == TensorProto.INT64:
            continue  # ends of slices may be given in several ways
        assert np.array_equal(numpy_helper.to_array(a), numpy_helper.to_array(b)), a.name
    largest, _ = gap(exchange.run(copy, inputs), exchange.run(network, inputs))
    assert largest == 0.0, f"read again it differs by {largest:.1e}"
    return f"{len(node_names(first))} nodes keep their names"


def check_file_names(exchange: Exchange, path: Path) -> str:
    """Nodes of a file that somebody else wrote. Those of an attention, which is one node here, stand
    below the name of its last one (docs/onnx.md, "Composites")."""
    original = onnx.load(str(path))
    names = set(node_names(exchange.convert(path)))
    missing = [n.name for n in original.graph.node if n.name and n.name not in names
               and not any(name.startswith(n.name + "/") for name in names)]
    assert set(missing) == {"scores", "scale", "mask", "softmax"}, f"nodes are gone: {missing}"
    below = {"mix/" + name for name in missing}
    assert below <= names, f"nodes are gone: {sorted(below - names)}"
    weights = {t.name for t in original.graph.initializer if t.data_type == TensorProto.FLOAT
               and numpy_helper.to_array(t).size > 1}
    kept = {t.name for t in exchange.convert(path).graph.initializer}
    assert weights <= kept, f"initializers are gone: {sorted(weights - kept)}"
    return f"{len(original.graph.node)} names, {len(weights)} weights"


def open_batch_model() -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    weights = {"w1": rng.standard_normal((6, 8)), "b1": rng.standard_normal(8),
               "w2": rng.standard_normal((8, 3)), "shape": np.array([0, -1])}
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["flat"], name="flat"),
         helper.make_node("Gemm", ["flat", "w1", "b1"], ["h"], name="fc1"),
         helper.make_node("Relu", ["h"], ["r"], name="act"),
         helper.make_node("MatMul", ["r", "w2"], ["s"], name="fc2"),
         helper.make_node("Add", ["s", "z"], ["y"], name="sum")], "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, "T"]),
         helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(v if v.dtype.kind == "i" else v.astype(np.float32), k)
         for k, v in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def check_open_batch(exchange: Exchange) -> str:
    model = open_batch_model()
    path = exchange.folder / "open.onnx"
    onnx.save(model, str(path))
    rng = np.random.default_rng(6)
    inputs = {"x": rng.standard_normal((7, 2, 3)).astype(np.float32),
              "z": rng.standard_normal((7, 3)).astype(np.float32)}
    try:
        exchange.run(path, inputs)
    except Refused as refused:
        assert "T" in str(refused) and "--dimension T=" in str(refused), str(refused)
    else:
        raise AssertionError("an open dimension is not asked for")
    expected = by_runtime(model, inputs)
    for batch in (1, 2, 3, 7):  # 7 samples in batches that do not divide them, too
        ours = exchange.run(path, inputs, "float32", "--dimension", "T=3", "--batch", batch)
        largest, _ = gap(ours, expected)
        assert largest < 32 * STEP["float32"], f"batch {batch}: {largest:.1e}"
    fixed = exchange.convert(path, None, "--dimension", "T=3", "--batch", 7)
    largest, _ = gap(by_runtime(fixed, inputs), expected)
    assert largest < 32 * STEP["float32"], f"converted: {largest:.1e}"
    return "batches of 1, 2, 3 and 7"


def dimensions(info: onnx.ValueInfoProto) -> List[object]:
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


def stays_open(exchange: Exchange, model: onnx.ModelProto, batch: str, plan: object,
               inputs: Callable[[int], Dict[str, np.ndarray]], *more: object) -> None:
    """Converted, it takes any number of samples, and computes what `run` does with it."""
    path = exchange.folder / "open.onnx"
    onnx.save(model, str(path))
    made = exchange.convert(path, None if plan == "float32" else plan, *more)
    for info in list(made.graph.input) + list(made.graph.output):
        assert dimensions(info)[0] == batch, f"{info.name} has the shape {dimensions(info)}"
    for samples in (1, 4, 6):
        given = inputs(samples)
        ours = exchange.run(path, given, plan, "--batch", samples, *more)
        largest, _ = gap(by_runtime(made, given), ours)
        assert largest < 32 * STEP["float32"], f"batch {samples}: {largest:.1e}"
    copy = exchange.folder / "copy.onnx"
    onnx.save(made, str(copy))
    computing = [[name for name in node_names(each) if not name.startswith((batch, "constant_"))]
                 for each in (exchange.convert(copy), made)]
    assert computing[0] == computing[1], f"{computing[0]} and {computing[1]}"


def check_stays_open(exchange: Exchange) -> str:
    rng = np.random.default_rng(8)
    stays_open(exchange, open_batch_model(), "N", "float32", lambda n: {
        "x": rng.standard_normal((n, 2, 3)).astype(np.float32),
        "z": rng.standard_normal((n, 3)).astype(np.float32)}, "--dimension", "T=3")
    # Shapes that exporters compute: heads and back, a row of zeros for every sample, tokens in one
    # line, a beginning for every text.
    node = helper.make_node
    weights = {"table": rng.standard_normal((9, 6)).astype(np.float32),
               "w": rng.standard_normal((6, 6)).astype(np.float32),
               "start": np.array([[7]]), "zero": np.array(0), "one": np.array([1]),
               "five": np.array([5]), "heads": np.array([2, 3]), "line": np.array([-1, 6]),
               "width": np.array([6]), "row": np.array([0])}
    graph = helper.make_graph(
        [node("Shape", ["ids"], ["s"]), node("Gather", ["s", "row"], ["n"]),
         node("Concat", ["n", "one"], ["n1"], axis=0), node("Concat", ["n", "five"], ["n5"], axis=0),
         node("Expand", ["start", "n1"], ["starts"], name="starts"),
         node("Concat", ["starts", "ids"], ["all"], axis=1, name="all"),
         node("Gather", ["table", "all"], ["x"], name="embed"),
         node("Reshape", ["x", "line"], ["flat"], name="flat"),
         node("MatMul", ["flat", "w"], ["p"], name="product"),
         node("Concat", ["n5", "heads"], ["apart"], axis=0),
         node("Reshape", ["p", "apart"], ["h"], name="heads"),
         node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3], name="turned"),
         node("Transpose", ["t"], ["b"], perm=[0, 2, 1, 3], name="back"),
         node("Concat", ["n5", "width"], ["joined"], axis=0),
         node("Reshape", ["b", "joined"], ["r"], name="joined"),
         node("Concat", ["n", "one", "width"], ["first"], axis=0),
         node("ConstantOfShape", ["first"], ["zeros"], name="zeros"),
         node("Concat", ["zeros", "r"], ["y"], axis=1, name="y")], "tokens",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 6, 6])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    for plan in ("float32", "mixed_float16"):
        stays_open(exchange, model, "batch", plan,
                   lambda n: {"ids": rng.integers(0, 9, (n, 4)).astype(np.int64)})
    # A number of its own for every sample cannot be written for all numbers of them.
    graph.node.extend([node("Range", ["zero", "count", "step"], ["i"], name="numbers"),
                       node("Squeeze", ["n", "row"], ["count"]),
                       node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
                       node("Reshape", ["f", "column"], ["c"], name="column"),
                       node("Add", ["y", "c"], ["z"], name="sum")])
    graph.initializer.extend([numpy_helper.from_array(np.array(1), "step"),
                              numpy_helper.from_array(np.array([-1, 1, 1]), "column")])
    graph.output[0].name = "z"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
              str(exchange.folder / "numbers.onnx"))
    made = exchange.convert(exchange.folder / "numbers.onnx")
    assert dimensions(made.graph.input[0]) == [1, 4], dimensions(made.graph.input[0])
    assert "batch is fixed at 1" in exchange.notes and "sum" in exchange.notes, exchange.notes
    return exchange.notes


def check_log_sigmoid(exchange: Exchange) -> str:
    """The function is finite where its sigmoid underflows, in the file as well."""
    node = helper.make_node
    graph = helper.make_graph(
        [node("Sigmoid", ["x"], ["s"], name="sigmoid"), node("Log", ["s"], ["y"], name="log")],
        "log_sigmoid", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 401])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 401])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = exchange.folder / "log_sigmoid.onnx"
    onnx.save(model, str(path))
    x = np.linspace(-200.0, 200.0, 401, dtype=np.float32)[None]
    exact = -np.logaddexp(0.0, -x.astype(np.float64))
    for plan in (None, "mixed_bfloat16"):
        theirs = by_runtime(exchange.convert(path, plan), {"x": x})["y"]
        # Beyond 16, ONNX Runtime computes log(1 + exp(-x)) as 0, which is far below 1 ulp of 1.
        error = np.abs(theirs - exact) / np.maximum(np.abs(exact), 1.0)
        bound = STEP["float32" if plan is None else "bf16"]
        assert error.max() <= bound, f"{plan}: differs by {error.max():.1e} at {x[0, error.argmax()]}"
    return "finite from -200 to 200"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="", help="cases whose name begins like this")
    options = parser.parse_args()
    failed: List[str] = []
    ran = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        exchange = Exchange(options.program, folder)
        transformer = folder / "transformer.onnx"
        with zipfile.ZipFile(FILES) as archive:
            transformer.write_bytes(archive.read("transformer.onnx"))
        networks = {**{key: name for key, (name, *_) in BUILT_IN.items()},
                    "transformer": transformer}
        cases = [("open_batch", check_open_batch, ()),
                 ("stays_open", check_stays_open, ()),
                 ("log_sigmoid", check_log_sigmoid, ()),
                 ("transformer/names", check_file_names, (transformer,))]
        for name, network in networks.items():
            cases.append((f"{name}/plain", check_plain, (network, 11)))
            cases += [(f"{name}/{plan}", check_plan, (network, plan, 11)) for plan in PLANS]
        cases += [(f"refused/{plan}", check_refusal, ("lenet", plan)) for plan in REFUSED]
        for name, function, arguments in cases:
            if not name.startswith(options.only):
                continue
            ran += 1
            try:
                print(f"{name}: {function(exchange, *arguments)}", flush=True)
            except (AssertionError, Refused, onnx.checker.ValidationError) as error:
                failed.append(name)
                print(f"{name}: FAILED: {error}", flush=True)
    print(f"{ran - len(failed)} of {ran} cases agree with ONNX Runtime")
    if failed or ran == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
