# SPDX-License-Identifier: MIT
"""The strongly typed files of `halfscope convert --typed`, checked by onnx and ONNX Runtime.

    onnx_typed.py --program build/bin/halfscope [--only NAME]

Every file passes onnx.checker with full type inference. Operators have the types of the plan, no
Cast reads an initializer of reals, and ONNX Runtime's outputs are those of `halfscope run` with the
plan, up to the order of sums. ONNX Runtime runs each node in a session of its own: on a processor
it computes in float32 between Casts and leaves out pairs of them, so that a whole file would not
round where its types say. It has no bfloat16 there; such nodes run in float32, and their results are
rounded once.
"""
import argparse
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Dict, List, Set

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, shape_inference

from onnx_exchange import BUILT_IN, FILES, STEP, Exchange, Refused, gap, random_inputs

FLOAT, HALF, BFLOAT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
PRODUCTS = {"Conv", "Gemm", "MatMul"}


def rules(*more: Dict) -> Dict:
    return {"schema": "halfscope.plan/1", "name": "rules", "default": {"format": "fp16"},
            "rules": list(more)}


def types_of(model: onnx.ModelProto) -> Dict[str, int]:
    model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    types = {t.name: t.data_type for t in model.graph.initializer}
    for info in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        types[info.name] = info.type.tensor_type.elem_type
    return types


def floats(types: Dict[str, int], names: List[str]) -> Set[int]:
    return {types[name] for name in names if types.get(name) in (FLOAT, HALF, BFLOAT)}


def run_node(node: onnx.NodeProto, opset: int, values: Dict[str, np.ndarray]) -> List[np.ndarray]:
    names = sorted({name for name in node.input if name})
    feeds = {name: values[name] for name in names}
    node = onnx.NodeProto.FromString(node.SerializeToString())
    bfloat16 = any(v.dtype == ml_dtypes.bfloat16 for v in feeds.values())
    if node.op_type == "Cast" and node.attribute[0].i == BFLOAT:
        return [feeds[names[0]].astype(np.float32).astype(ml_dtypes.bfloat16)]
    if bfloat16:
        feeds = {k: v.astype(np.float32) if v.dtype == ml_dtypes.bfloat16 else v
                 for k, v in feeds.items()}
    graph = helper.make_graph(
        [node], "node",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for k, v in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    results = session.run(None, feeds)
    rounds = bfloat16 and node.op_type != "Cast"
    return [r.astype(ml_dtypes.bfloat16) if rounds and r.dtype == np.float32 else r
            for r in results]


def by_runtime(model: onnx.ModelProto, inputs: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values.update(inputs)
    for node in model.graph.node:
        values.update(zip(node.output, run_node(node, model.opset_import[0].version, values)))
    return {o.name: values[o.name].astype(np.float32) for o in model.graph.output}


def check_types(model: onnx.ModelProto, narrow: int, plan: str) -> str:
    types = types_of(model)
    stored = {t.name for t in model.graph.initializer}
    seen: Counter = Counter()
    for node in model.graph.node:
        if node.op_type == "Cast":
            assert not (node.input[0] in stored and floats(types, node.input)), node.name
            continue
        if node.op_type == "BatchNormalization":
            continue  # its statistics have a type of their own
        both = floats(types, [*node.input, *node.output])
        assert len(both) <= 1, f"{node.name} ({node.op_type}) has the types {both}"
        seen.update(both)
        if node.op_type in PRODUCTS:
            assert both == {narrow}, f"{node.name} ({node.op_type}) computes in {both}"
        if plan.startswith("mixed_") and node.op_type in ("Softmax", "LayerNormalization"):
            assert both == {FLOAT}, f"{node.name} ({node.op_type}) computes in {both}"
    for info in [*model.graph.input, *model.graph.output]:
        assert types[info.name] in (FLOAT, TensorProto.INT64), f"{info.name} is {types[info.name]}"
    return ", ".join(f"{count} in {TensorProto.DataType.Name(t)}" for t, count in seen.items())


def check_outputs(exchange: Exchange, network: object, plan: object, model: onnx.ModelProto) -> str:
    inputs = random_inputs(model, 3, 11)
    ours, theirs = exchange.run(network, inputs, plan), by_runtime(model, inputs)
    largest, mean = gap(theirs, ours)
    _, of_plan = gap(exchange.run(network, inputs), ours)
    _, of_sums = gap(exchange.run(network, inputs, plan, "--accumulate", "fp64"), ours)
    step = STEP["bf16" if model.opset_import[0].version == 22 else "fp16"]
    assert largest < 4 * step, f"differs by {largest:.1e}"
    bound = max(0.02 * of_plan, 3.0 * of_sums)
    assert mean <= bound, f"differs by {mean:.1e}, sums by {of_sums:.1e}, the plan by {of_plan:.1e}"
    return f"{mean:.1e}, sums {of_sums:.1e}, the plan {of_plan:.1e}"


def check_plan(exchange: Exchange, network: object, plan: str) -> str:
    batch = ("--batch", 4) if network != exchange.folder / "transformer.onnx" else ()
    model = exchange.convert(network, plan, "--typed", *batch)
    assert " equal" in exchange.notes, exchange.notes
    narrow = BFLOAT if "bfloat16" in plan else HALF
    text = check_types(model, narrow, plan)
    assert model.opset_import[0].version == (22 if narrow == BFLOAT else 21)
    return f"{text}; {check_outputs(exchange, network, plan, model)}"


def check_island(exchange: Exchange) -> str:
    """Layers kept in fp32, wholly or in their results, are the only ones in FLOAT."""
    plan = rules({"path": "conv2", "format": "fp32"}, {"path": "fc1", "write": "fp32"})
    model = exchange.convert("lenet", plan, "--typed", "--batch", 4)
    assert " equal" in exchange.notes, exchange.notes
    types = types_of(model)
    kinds = {node.name: floats(types, [*node.input, *node.output]) for node in model.graph.node
             if node.op_type in PRODUCTS}
    wide = {"conv2", "fc1"}
    assert kinds == {name: {FLOAT if name in wide else HALF} for name in kinds}, kinds
    weights = {t.name: t for t in model.graph.initializer}
    assert weights["conv2.weight"].data_type == FLOAT and weights["conv1.weight"].data_type == HALF
    half = numpy_helper.to_array(weights["fc1.weight"])  # read in fp16, in an operator of FLOAT
    assert np.array_equal(half, half.astype(np.float16).astype(np.float32))
    return check_outputs(exchange, "lenet", plan, model)


def check_border(exchange: Exchange) -> str:
    model = exchange.convert("lenet", "float16", "--typed-io", "--batch", 4)
    types = types_of(model)
    borders = [types[info.name] for info in [*model.graph.input, *model.graph.output]]
    assert set(borders) == {HALF}, borders
    assert not [n for n in model.graph.node if n.op_type == "Cast"], "there are Casts"
    inputs = random_inputs(exchange.convert("lenet", None, "--batch", 4), 3)
    theirs = by_runtime(model, {k: v.astype(np.float16) for k, v in inputs.items()})
    largest, _ = gap(theirs, exchange.run("lenet", inputs, "float16"))
    assert largest < 4 * STEP["fp16"], f"differs by {largest:.1e}"
    return f"{largest:.1e}"


def check_number(exchange: Exchange) -> str:
    """A number that fp16 does not have is read unrounded, as PyTorch and fused plans do."""
    names = {"small": 1e-9, "back": 1e9, "tenth": 0.1, "exact": 0.5}
    chain = ["x", "a", "b", "c", "y"]
    graph = helper.make_graph(
        [helper.make_node("Mul", [chain[i], f"by_{name}"], [chain[i + 1]], name=name)
         for i, name in enumerate(names)], "numbers",
        [helper.make_tensor_value_info("x", FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", FLOAT, [2, 8])],
        [numpy_helper.from_array(np.array(v, np.float32), f"by_{k}") for k, v in names.items()])
    path = exchange.folder / "numbers.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              str(path))
    plan = rules({"path": "small", "write": "fp32"}, {"path": "back", "read": "fp32"})
    model = exchange.convert(path, plan, "--typed")
    assert " equal" in exchange.notes, exchange.notes
    types = types_of(model)
    kinds = {node.name: floats(types, [*node.input, *node.output]) for node in model.graph.node
             if node.op_type == "Mul"}
    assert kinds == {"small": {FLOAT}, "back": {FLOAT}, "tenth": {FLOAT}, "exact": {HALF}}, kinds
    x = random_inputs(model, 3)["x"]
    ours = exchange.run(path, {"x": x}, plan)["y"]
    by_hand = (x.astype(np.float16).astype(np.float32) * np.float32(1e-9) * np.float32(1e9))
    by_hand = (by_hand.astype(np.float16).astype(np.float32) * np.float32(0.1)).astype(np.float16)
    by_hand = (by_hand * np.float16(0.5)).astype(np.float32)
    assert np.array_equal(ours, by_hand), f"{ours} and {by_hand}"
    assert np.array_equal(by_runtime(model, {"x": x})["y"], by_hand)
    return "equal to numpy"


def check_refusal(exchange: Exchange, plan: object, word: str) -> str:
    try:
        exchange.convert("lenet", plan, "--typed")
    except Refused as refused:
        assert word in str(refused), str(refused)
        return str(refused).splitlines()[0]
    raise AssertionError("it is converted")


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
        cases = [("island", check_island, ()), ("border", check_border, ()),
                 ("number", check_number, ())]
        for name, network in networks.items():
            cases += [(f"{name}/{plan}", check_plan, (network, plan)) for plan in
                      ("mixed_float16", "float16", "float16_stagewise", "mixed_bfloat16",
                       "bfloat16")]
        tf32 = {"schema": "halfscope.plan/1", "name": "tf32", "default": {"format": "fp32"},
                "rules": [{"op": "Conv", "read": "tf32"}]}
        sums = {"schema": "halfscope.plan/1", "name": "sums",
                "default": {"format": "fp16", "accumulate": "format"}}
        cases += [("refused/scales", check_refusal, ("fp8_current", "scale")),
                  ("refused/tf32", check_refusal, (tf32, "tf32")),
                  ("refused/sums", check_refusal, (sums, "accumulates"))]
        for name, function, arguments in cases:
            if not name.startswith(options.only):
                continue
            ran += 1
            try:
                print(f"{name}: {function(exchange, *arguments)}", flush=True)
            except (AssertionError, Refused, onnx.checker.ValidationError) as error:
                failed.append(name)
                print(f"{name}: FAILED: {error}", flush=True)
    print(f"{ran - len(failed)} of {ran} cases agree")
    if failed or ran == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
