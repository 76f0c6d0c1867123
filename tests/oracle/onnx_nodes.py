#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/onnx/files/nodes.zip: small ONNX models with inputs, and what ONNX Runtime (or,
where it has no kernel, ONNX's reference evaluator) computes from them.

    python3 tests/oracle/onnx_nodes.py tests/onnx/files/nodes.zip

Members: NAME.onnx, NAME.in<i>.npy and NAME.out<i>.npy. Needs onnx, onnxruntime and numpy.
"""
import io
import sys
import zipfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnx_later_nodes

rng = np.random.default_rng(7)
cases = {}


def real(*shape, low=-2.0, high=2.0):
    return rng.uniform(low, high, shape).astype(np.float32)


def elem(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model(name, nodes, inputs, outputs, initializers=(), opset=21, functions=(), ir=8):
    """inputs: {name: array}; initializers: {name: array}; outputs: names."""
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(k, elem(v), v.shape) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in dict(initializers).items()])
    opsets = [helper.make_opsetid("", opset)] + [
        helper.make_opsetid(f.domain, 1) for f in functions]
    made = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
    made.ir_version = 10 if opset > 19 else ir
    return made


def add(name, nodes, inputs, outputs=("y",), initializers=(), opset=21, **rest):
    if not isinstance(nodes, list):
        nodes = [nodes]
    made = model(name, nodes, inputs, outputs, initializers, opset, **rest)
    try:
        options = ort.SessionOptions()  # optimised, it would quantize the other operand too
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(made.SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
        results = session.run(None, inputs)
    except Exception:
        results = ReferenceEvaluator(made).run(None, inputs)
    assert name not in cases
    cases[name] = (made, list(inputs.values()), results)


def op(name, kind, inputs, initializers=(), opset=21, outputs=("y",), order=None, **attributes):
    names = order if order is not None else list(inputs) + list(dict(initializers))
    add(name, helper.make_node(kind, names, list(outputs), name=kind.lower(), **attributes),
        inputs, outputs, initializers, opset)


i64 = lambda *v: np.array(v, dtype=np.int64)
f32 = lambda *v: np.array(v, dtype=np.float32)

# ---- functions of one element ----
x = real(2, 3, 4)
for kind in ["Exp", "Neg", "Abs", "Erf", "Tanh", "Sigmoid", "Softplus", "HardSwish", "Sin", "Cos",
             "Sign", "Floor", "Ceil", "Round", "Relu"]:
    op(kind.lower(), kind, {"x": x}, opset=15)
positive = real(3, 5, low=0.1, high=4.0)
for kind in ["Log", "Sqrt", "Reciprocal"]:
    op(kind.lower(), kind, {"x": positive})
op("leaky_relu", "LeakyRelu", {"x": x}, alpha=0.2)
op("leaky_relu_default", "LeakyRelu", {"x": x}, opset=8)
op("elu", "Elu", {"x": x}, alpha=0.7)
op("hard_sigmoid", "HardSigmoid", {"x": x}, alpha=0.3, beta=0.4)
op("hard_sigmoid_default", "HardSigmoid", {"x": x})
op("prelu", "PRelu", {"x": x}, {"slope": real(3, 1)}, opset=16)
op("clip_6", "Clip", {"x": x}, opset=8, min=-0.5, max=0.75)
op("clip_inputs", "Clip", {"x": x}, {"low": f32(-0.5).reshape(()), "high": f32(1.0).reshape(())})
op("clip_max_only", "Clip", {"x": x}, {"high": f32(0.25).reshape(())}, order=["x", "", "high"])
op("gelu", "Gelu", {"x": x}, opset=20)
op("gelu_tanh", "Gelu", {"x": x}, opset=20, approximate="tanh")

# ---- two operands and more ----
for kind in ["Add", "Sub", "Mul", "Div"]:
    op(kind.lower(), kind, {"a": real(2, 3, 4), "b": real(3, 1, low=0.5)}, opset=14)
    op(kind.lower() + "_scalar", kind, {"a": real(2, 3)}, {"b": f32(1.5).reshape(())}, opset=8)
op("pow_square", "Pow", {"a": real(3, 4)}, {"b": f32(2.0).reshape(())})
op("pow_tensor", "Pow", {"a": real(3, 4, low=0.2), "b": real(3, 4)})
op("pow_integer_exponent", "Pow", {"a": real(3, 4)}, {"b": i64(3)})
for kind in ["Min", "Max", "Sum", "Mean"]:
    op(kind.lower() + "_three", kind, {"a": real(2, 3), "b": real(1, 3), "c": real(2, 1)}, opset=13)
    op(kind.lower() + "_one", kind, {"a": real(2, 3)}, opset=13)

# ---- comparisons and choice ----
compare = {"a": real(2, 3), "b": real(2, 3)}
for kind in ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"]:
    add("where_" + kind.lower(),
        [helper.make_node(kind, ["a", "b"], ["c"], name="compare"),
         helper.make_node("Where", ["c", "a", "b"], ["y"], name="where")], compare, opset=16)
add("logic",
    [helper.make_node("Less", ["a", "b"], ["c"]), helper.make_node("Greater", ["a", "zero"], ["d"]),
     helper.make_node("And", ["c", "d"], ["e"]), helper.make_node("Not", ["d"], ["f"]),
     helper.make_node("Or", ["e", "f"], ["g"]),
     helper.make_node("Where", ["g", "a", "b"], ["y"])],
    compare, initializers={"zero": f32(0.0)}, opset=16)
add("mask", [helper.make_node("Where", ["m", "x", "low"], ["y"])], {"x": real(2, 4, 4)},
    initializers={"m": np.tril(np.ones((4, 4), dtype=bool)),
                  "low": f32(-10000.0).reshape(())}, opset=16)

# ---- reductions ----
for kind in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
             "ReduceSumSquare"]:
    low = kind.lower()
    op(low + "_input", kind, {"x": x}, {"axes": i64(1, -1)}, opset=18, keepdims=0)
    op(low + "_all", kind, {"x": x}, opset=18)
    if kind != "ReduceSum":
        op(low + "_attribute", kind, {"x": x}, opset=11, axes=[0, 2], keepdims=1)
op("reducesum_attribute", "ReduceSum", {"x": x}, opset=11, axes=[1], keepdims=0)
op("reduce_noop", "ReduceSum", {"x": x}, opset=18, noop_with_empty_axes=1)
op("argmax", "ArgMax", {"x": x}, opset=13, axis=1, keepdims=0)
op("argmax_last", "ArgMax", {"x": np.round(x)}, opset=13, axis=2, select_last_index=1)
op("cumsum", "CumSum", {"x": x}, {"axis": np.array(1, dtype=np.int64)}, opset=14)
op("cumsum_reverse", "CumSum", {"x": x}, {"axis": np.array(-1, dtype=np.int64)}, opset=14,
   exclusive=1, reverse=1)

# ---- softmax and normalizations ----
for kind in ["Softmax", "LogSoftmax"]:
    op(kind.lower() + "_13", kind, {"x": x}, opset=13, axis=1)
    op(kind.lower() + "_default_13", kind, {"x": x}, opset=13)
    op(kind.lower() + "_flattened_9", kind, {"x": x}, opset=9, axis=1)
    op(kind.lower() + "_default_9", kind, {"x": x}, opset=9)
op("layer_norm", "LayerNormalization", {"x": x}, {"s": real(4), "b": real(4)}, opset=17)
op("layer_norm_two_axes", "LayerNormalization", {"x": x}, {"s": real(3, 4), "b": real(3, 4)},
   opset=17, axis=1, epsilon=1e-3)
op("layer_norm_no_bias", "LayerNormalization", {"x": x}, {"s": real(4)}, opset=17)
image = real(2, 6, 5, 7)
op("group_norm_21", "GroupNormalization", {"x": image}, {"s": real(6), "b": real(6)}, opset=21,
   num_groups=3)
op("group_norm_18", "GroupNormalization", {"x": image}, {"s": real(3), "b": real(3)}, opset=18,
   num_groups=3)
op("instance_norm", "InstanceNormalization", {"x": image}, {"s": real(6), "b": real(6)}, opset=13,
   epsilon=1e-4)
op("batch_norm", "BatchNormalization", {"x": image},
   {"s": real(6), "b": real(6), "m": real(6), "v": real(6, low=0.2)}, opset=15, epsilon=1e-4)
op("batch_norm_9", "BatchNormalization", {"x": image},
   {"s": real(6), "b": real(6), "m": real(6), "v": real(6, low=0.2)}, opset=9)
op("batch_norm_one_value", "BatchNormalization", {"x": real(1, 6)},
   {"s": real(6), "b": real(6), "m": real(6), "v": real(6, low=0.2)}, opset=15)

# ---- products ----
op("gemm", "Gemm", {"a": real(3, 4)}, {"b": real(4, 5), "c": real(5)}, opset=13)
op("gemm_all", "Gemm", {"a": real(4, 3)}, {"b": real(5, 4), "c": real(3, 1)}, opset=13, transA=1,
   transB=1, alpha=0.5, beta=2.0)
op("gemm_no_c", "Gemm", {"a": real(3, 4), "b": real(4, 5)}, opset=13)
op("gemm_scalar_c", "Gemm", {"a": real(3, 4)}, {"b": real(4, 5), "c": f32(0.5)}, opset=9)
op("matmul", "MatMul", {"a": real(3, 4)}, {"b": real(4, 5)})
op("matmul_batch", "MatMul", {"a": real(2, 3, 4, 5), "b": real(3, 5, 2)})
op("matmul_weight", "MatMul", {"a": real(2, 3, 4)}, {"b": real(4, 5)})
op("matmul_vector_left", "MatMul", {"a": real(4)}, {"b": real(4, 5)})
op("matmul_vector_right", "MatMul", {"a": real(2, 3, 4)}, {"b": real(4)})
op("matmul_weight_left", "MatMul", {"x": real(4)}, {"w": real(3, 4)}, order=["w", "x"])
op("conv", "Conv", {"x": image}, {"w": real(4, 6, 3, 3), "b": real(4)}, opset=11,
   pads=[1, 0, 2, 1], strides=[2, 1])
op("conv_same_upper", "Conv", {"x": image}, {"w": real(4, 6, 2, 3)}, opset=11,
   auto_pad="SAME_UPPER", strides=[2, 2])
op("conv_same_lower", "Conv", {"x": image}, {"w": real(4, 6, 2, 3)}, opset=11,
   auto_pad="SAME_LOWER", strides=[2, 2])
op("conv_valid", "Conv", {"x": image}, {"w": real(4, 6, 2, 3)}, opset=8, auto_pad="VALID")
op("conv_dilated", "Conv", {"x": image}, {"w": real(4, 6, 2, 2)}, opset=11, dilations=[2, 3])
op("conv_grouped", "Conv", {"x": image}, {"w": real(9, 2, 3, 3), "b": real(9)}, opset=11, group=3)
op("conv_depthwise", "Conv", {"x": image}, {"w": real(6, 1, 3, 3)}, opset=11, group=6,
   pads=[1, 1, 1, 1])
op("conv_line", "Conv", {"x": real(2, 3, 9)}, {"w": real(4, 3, 3), "b": real(4)}, opset=11,
   pads=[1, 2], strides=[2])
op("conv_transpose", "ConvTranspose", {"x": real(2, 3, 4, 5)}, {"w": real(3, 4, 3, 2), "b": real(4)},
   opset=11, strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 1])

# ---- pooling ----
op("max_pool", "MaxPool", {"x": image}, opset=12, kernel_shape=[3, 2], strides=[2, 2],
   pads=[1, 0, 1, 1])
op("max_pool_ceil", "MaxPool", {"x": image}, opset=12, kernel_shape=[2, 2], strides=[2, 2],
   ceil_mode=1)
op("max_pool_dilated", "MaxPool", {"x": image}, opset=12, kernel_shape=[2, 2], dilations=[2, 3])
op("max_pool_same", "MaxPool", {"x": image}, opset=8, kernel_shape=[2, 2], strides=[2, 2],
   auto_pad="SAME_UPPER")
op("max_pool_line", "MaxPool", {"x": real(2, 3, 9)}, opset=12, kernel_shape=[3], strides=[2])
op("average_pool", "AveragePool", {"x": image}, opset=11, kernel_shape=[3, 3], strides=[2, 2],
   pads=[1, 1, 1, 1])
op("average_pool_padded", "AveragePool", {"x": image}, opset=11, kernel_shape=[3, 3],
   pads=[1, 1, 1, 1], count_include_pad=1)
op("average_pool_ceil", "AveragePool", {"x": image}, opset=11, kernel_shape=[2, 2],
   strides=[2, 2], ceil_mode=1)
op("global_average_pool", "GlobalAveragePool", {"x": image}, opset=9)
op("global_max_pool", "GlobalMaxPool", {"x": image}, opset=9)

# ---- movement ----
op("reshape", "Reshape", {"x": x}, {"s": i64(0, -1, 2)}, opset=13)
op("flatten", "Flatten", {"x": x}, opset=13, axis=2)
op("flatten_negative", "Flatten", {"x": x}, opset=13, axis=-1)
op("squeeze_13", "Squeeze", {"x": real(1, 3, 1, 2)}, {"a": i64(0, 2)}, opset=13)
op("squeeze_11", "Squeeze", {"x": real(1, 3, 1, 2)}, opset=11, axes=[0])
op("squeeze_all", "Squeeze", {"x": real(1, 3, 1, 2)}, opset=13)
op("unsqueeze_13", "Unsqueeze", {"x": real(3, 2)}, {"a": i64(0, -1)}, opset=13)
op("unsqueeze_11", "Unsqueeze", {"x": real(3, 2)}, opset=11, axes=[1])
op("transpose", "Transpose", {"x": x}, opset=13, perm=[2, 0, 1])
op("transpose_default", "Transpose", {"x": x}, opset=13)
op("concat", "Concat", {"a": real(2, 3), "b": real(2, 1), "c": real(2, 4)}, opset=13, axis=-1)
op("slice_10", "Slice", {"x": real(5, 6)}, {"s": i64(1, -4), "e": i64(9, -1), "a": i64(0, 1)},
   opset=13)
op("slice_steps", "Slice", {"x": real(5, 6)},
   {"s": i64(-1, 4), "e": i64(-9999, 0), "a": i64(0, 1), "t": i64(-2, -1)}, opset=13)
op("slice_9", "Slice", {"x": real(5, 6)}, opset=9, starts=[1], ends=[4], axes=[1])
op("split_13", "Split", {"x": real(2, 6)}, {"s": i64(1, 2, 3)}, opset=13, outputs=("a", "b", "c"),
   axis=1)
op("split_11", "Split", {"x": real(6, 2)}, opset=11, outputs=("a", "b"))
op("split_18", "Split", {"x": real(2, 5)}, opset=18, outputs=("a", "b"), axis=1, num_outputs=2)
op("pad_11", "Pad", {"x": real(2, 3)}, {"p": i64(0, 1, 2, 0), "v": f32(1.5).reshape(())}, opset=13)
op("pad_2", "Pad", {"x": real(2, 3)}, opset=8, pads=[1, 0, 0, 2], value=-1.0)
op("pad_reflect", "Pad", {"x": real(3, 4)}, {"p": i64(1, 2, 2, 1)}, opset=13, mode="reflect")
op("pad_edge", "Pad", {"x": real(3, 4)}, {"p": i64(1, 2, 2, 1)}, opset=13, mode="edge")
op("pad_axes", "Pad", {"x": real(2, 3, 4)},
   {"p": i64(1, 2), "v": f32(0.0).reshape(()), "a": i64(1)}, opset=18)
op("expand", "Expand", {"x": real(3, 1)}, {"s": i64(2, 1, 4)}, opset=13)
op("tile", "Tile", {"x": real(2, 3)}, {"r": i64(2, 3)}, opset=13)
op("gather_rows", "Gather", {"x": real(5, 3)}, {"i": i64(4, 0, -1, 2)}, opset=13)
op("gather_axis", "Gather", {"x": real(2, 4, 3)}, {"i": i64(0, 3, 1, 1).reshape(2, 2)}, opset=13,
   axis=1)
op("gather_runtime", "Gather", {"i": i64(1, 0, 3)}, {"x": real(5, 3)}, opset=13,
   order=["x", "i"])
op("gather_elements", "GatherElements", {"x": real(3, 3)},
   {"i": i64(1, 2, 0, 2, 0, 0).reshape(2, 3)}, opset=13)
op("dropout", "Dropout", {"x": x}, opset=13)
op("identity", "Identity", {"x": x}, opset=13)
op("depth_to_space", "DepthToSpace", {"x": real(1, 8, 2, 3)}, opset=13, blocksize=2)
op("depth_to_space_crd", "DepthToSpace", {"x": real(1, 8, 2, 3)}, opset=13, blocksize=2, mode="CRD")
op("space_to_depth", "SpaceToDepth", {"x": real(1, 2, 4, 6)}, opset=13, blocksize=2)
op("upsample_9", "Upsample", {"x": real(1, 2, 3, 4)}, {"s": f32(1, 1, 2, 3)}, opset=9,
   mode="nearest")
op("resize_scales", "Resize", {"x": real(1, 2, 3, 4)}, {"s": f32(1, 1, 2, 2)},
   order=["x", "", "s"], opset=13, mode="nearest", coordinate_transformation_mode="asymmetric",
   nearest_mode="floor")
op("resize_sizes", "Resize", {"x": real(1, 2, 3, 4)}, {"s": i64(1, 2, 5, 7)},
   order=["x", "", "", "s"], opset=13, mode="nearest")
op("resize_down", "Resize", {"x": real(1, 2, 6, 8)}, {"s": f32(1, 1, 0.6, 0.6)},
   order=["x", "", "s"], opset=13, mode="nearest")
op("cast_half", "Cast", {"x": np.round(real(3, 4) * 8) / 8}, opset=13, to=TensorProto.FLOAT16)

# ---- arithmetic on shapes, folded ----
add("shape_reshape",
    [helper.make_node("Shape", ["x"], ["s"]),
     helper.make_node("Gather", ["s", "zero"], ["n"]),
     helper.make_node("Gather", ["s", "two"], ["w"]),
     helper.make_node("Mul", ["n", "w"], ["nw"]),
     helper.make_node("Unsqueeze", ["nw", "axis"], ["nwu"]),
     helper.make_node("Concat", ["nwu", "rest"], ["target"], axis=0),
     helper.make_node("Reshape", ["x", "target"], ["y"])],
    {"x": x}, initializers={"zero": np.array(0, dtype=np.int64),
                            "two": np.array(2, dtype=np.int64), "axis": i64(0), "rest": i64(-1)},
    opset=13)
add("range_positions",
    [helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
     helper.make_node("Squeeze", ["s"], ["n"]),
     helper.make_node("Range", ["zero", "n", "one"], ["r"]),
     helper.make_node("Gather", ["table", "r"], ["p"]),
     helper.make_node("Add", ["x", "p"], ["y"])],
    {"x": real(2, 4, 3)},
    initializers={"zero": np.array(0, dtype=np.int64), "one": np.array(1, dtype=np.int64),
                  "table": real(9, 3)}, opset=15)
add("causal_mask",
    [helper.make_node("Shape", ["x"], ["s"], start=-2),
     helper.make_node("ConstantOfShape", ["s"], ["o"],
                      value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
     helper.make_node("Trilu", ["o"], ["low"], upper=0),
     helper.make_node("Equal", ["low", "none"], ["hidden"]),
     helper.make_node("Where", ["hidden", "minus", "x"], ["masked"]),
     helper.make_node("Softmax", ["masked"], ["y"], axis=-1)],
    {"x": real(2, 4, 4)},
    initializers={"none": f32(0.0).reshape(()), "minus": f32(-np.inf).reshape(())}, opset=15)
add("if_known",
    [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
     helper.make_node("Equal", ["n", "two"], ["c"]),
     helper.make_node("If", ["c"], ["y"],
                      then_branch=helper.make_graph(
                          [helper.make_node("Relu", ["x"], ["t"])], "then", [],
                          [helper.make_empty_tensor_value_info("t")]),
                      else_branch=helper.make_graph(
                          [helper.make_node("Neg", ["x"], ["e"])], "else", [],
                          [helper.make_empty_tensor_value_info("e")]))],
    {"x": x}, initializers={"zero": np.array(0, dtype=np.int64),
                            "two": np.array(2, dtype=np.int64)}, opset=13)
add("quantized_weight",
    [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=1),
     helper.make_node("MatMul", ["x", "w"], ["y"])],
    {"x": real(2, 3)},
    initializers={"q": rng.integers(-100, 100, (3, 4)).astype(np.int8), "scale": real(4, low=0.01),
                  "zero": np.array([1, -2, 0, 5], dtype=np.int8)}, opset=13)
add("attention_mask",
    [helper.make_node("Unsqueeze", ["mask", "axis"], ["m"]),
     helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
     helper.make_node("Sub", ["one", "f"], ["inverse"]),
     helper.make_node("Mul", ["inverse", "low"], ["bias"]),
     helper.make_node("Add", ["x", "bias"], ["y"])],
    {"mask": i64(1, 1, 0, 1, 0, 0).reshape(2, 3), "x": real(2, 3, 3)},
    initializers={"axis": i64(1), "one": f32(1.0).reshape(()), "low": f32(-10000.0).reshape(())},
    opset=13)

# ---- local functions ----
squared_sum = helper.make_function(
    "local", "ScaledSquare", ["a"], ["b"],
    [helper.make_node("Mul", ["a", "a"], ["aa"], name="square"),
     helper.make_node("LeakyRelu", ["aa"], ["b"], name="leak")],
    [helper.make_opsetid("", 17)])
add("function",
    [helper.make_node("ScaledSquare", ["x"], ["s"], domain="local", name="first"),
     helper.make_node("ScaledSquare", ["s"], ["y"], domain="local", name="second")],
    {"x": x}, opset=17, functions=[squared_sum])

# ---- composites written out, as exporters do ----
add("written_layer_norm",
    [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1], name="ln/mean"),
     helper.make_node("Sub", ["x", "mean"], ["d"], name="ln/sub"),
     helper.make_node("Pow", ["d", "two"], ["p"], name="ln/pow"),
     helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1], name="ln/var"),
     helper.make_node("Add", ["v", "eps"], ["ve"], name="ln/eps"),
     helper.make_node("Sqrt", ["ve"], ["s"], name="ln/sqrt"),
     helper.make_node("Div", ["d", "s"], ["n"], name="ln/div"),
     helper.make_node("Mul", ["n", "gamma"], ["m"], name="ln/mul"),
     helper.make_node("Add", ["m", "beta"], ["y"], name="ln/add")],
    {"x": x}, initializers={"two": f32(2.0).reshape(()), "eps": f32(1e-5).reshape(()),
                            "gamma": real(4), "beta": real(4)}, opset=13)
add("written_rms_norm",
    [helper.make_node("Pow", ["x", "two"], ["p"]),
     helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1]),
     helper.make_node("Add", ["v", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["s"]),
     helper.make_node("Div", ["one", "s"], ["r"]), helper.make_node("Mul", ["x", "r"], ["n"]),
     helper.make_node("Mul", ["w", "n"], ["y"])],
    {"x": x}, initializers={"two": f32(2.0).reshape(()), "eps": f32(1e-5).reshape(()),
                            "one": f32(1.0).reshape(()), "w": real(4)}, opset=13)
add("written_gelu",
    [helper.make_node("Div", ["x", "root"], ["u"]), helper.make_node("Erf", ["u"], ["e"]),
     helper.make_node("Add", ["e", "one"], ["g"]), helper.make_node("Mul", ["x", "g"], ["m"]),
     helper.make_node("Mul", ["m", "half"], ["y"])],
    {"x": x}, initializers={"root": f32(np.sqrt(2.0)).reshape(()), "one": f32(1.0).reshape(()),
                            "half": f32(0.5).reshape(())}, opset=13)
add("written_gelu_tanh",
    [helper.make_node("Pow", ["x", "three"], ["c"]), helper.make_node("Mul", ["c", "k"], ["kc"]),
     helper.make_node("Add", ["x", "kc"], ["s"]), helper.make_node("Mul", ["s", "r"], ["u"]),
     helper.make_node("Tanh", ["u"], ["t"]), helper.make_node("Add", ["t", "one"], ["g"]),
     helper.make_node("Mul", ["x", "half"], ["h"]), helper.make_node("Mul", ["h", "g"], ["y"])],
    {"x": x}, initializers={"three": f32(3.0).reshape(()), "k": f32(0.044715).reshape(()),
                            "r": f32(np.sqrt(2.0 / np.pi)).reshape(()),
                            "one": f32(1.0).reshape(()), "half": f32(0.5).reshape(())}, opset=13)
add("written_swish",
    [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])],
    {"x": x}, opset=13)
add("mean_read_elsewhere",  # not replaced: the mean is an output of its own
    [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
     helper.make_node("Sub", ["x", "mean"], ["d"]), helper.make_node("Pow", ["d", "two"], ["p"]),
     helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1]),
     helper.make_node("Add", ["v", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["s"]),
     helper.make_node("Div", ["d", "s"], ["y"])],
    {"x": x}, outputs=("y", "mean"),
    initializers={"two": f32(2.0).reshape(()), "eps": f32(1e-5).reshape(())}, opset=13)

# ---- a small transformer whose first and last layer share their weights ----
d, h, t = 8, 2, 5
block = [helper.make_node("Gather", ["wte", "ids"], ["e"], name="wte"),
         helper.make_node("LayerNormalization", ["e", "g1", "b1"], ["l"], name="ln1"),
         helper.make_node("MatMul", ["l", "wqkv"], ["qkv0"], name="qkv"),
         helper.make_node("Add", ["qkv0", "bqkv"], ["qkv"], name="qkv_bias"),
         helper.make_node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3, name="split")]
for name in "qkv":
    block += [helper.make_node("Reshape", [name, "heads"], [name + "h"], name=name + "_heads"),
              helper.make_node("Transpose", [name + "h"], [name + "t"],
                               perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3],
                               name=name + "_move")]
block += [helper.make_node("MatMul", ["qt", "kt"], ["scores0"], name="scores"),
          helper.make_node("Div", ["scores0", "root"], ["scores1"], name="scale"),
          helper.make_node("Where", ["causal", "scores1", "low"], ["scores2"], name="mask"),
          helper.make_node("Softmax", ["scores2"], ["p"], axis=-1, name="softmax"),
          helper.make_node("MatMul", ["p", "vt"], ["o"], name="mix"),
          helper.make_node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3], name="back"),
          helper.make_node("Reshape", ["ot", "joined"], ["oj"], name="join"),
          helper.make_node("MatMul", ["oj", "wo"], ["op"], name="project"),
          helper.make_node("Add", ["op", "e"], ["r"], name="residual"),
          helper.make_node("Transpose", ["wte"], ["head"], perm=[1, 0], name="tied"),
          helper.make_node("MatMul", ["r", "head"], ["y"], name="lm_head")]
add("transformer", block, {"ids": rng.integers(0, 11, (2, t)).astype(np.int64)},
    initializers={"wte": real(11, d), "g1": real(d), "b1": real(d), "wqkv": real(d, 3 * d),
                  "bqkv": real(3 * d), "heads": i64(0, 0, h, d // h),
                  "root": f32(np.sqrt(d // h)).reshape(()),
                  "causal": np.tril(np.ones((t, t), dtype=bool)),
                  "low": f32(-1e9).reshape(()), "joined": i64(0, 0, d), "wo": real(d, d)},
    opset=18)

# ---- later additions: what comes before keeps its numbers ----
for name, attributes in {
        "resize_linear": {}, "resize_linear_corners":
        {"coordinate_transformation_mode": "align_corners"}, "resize_linear_torch":
        {"coordinate_transformation_mode": "pytorch_half_pixel"}}.items():
    op(name, "Resize", {"x": real(2, 2, 3, 4)}, {"s": i64(2, 2, 7, 9)},
       order=["x", "", "", "s"], opset=13, mode="linear", **attributes)
op("resize_linear_scales", "Resize", {"x": real(1, 2, 6, 8)}, {"s": f32(1, 1, 0.6, 2.5)},
   order=["x", "", "s"], opset=13, mode="linear")
op("resize_linear_line", "Resize", {"x": real(2, 3, 5)}, {"s": i64(2, 3, 8)},
   order=["x", "", "", "s"], opset=13, mode="linear")
op("upsample_linear_9", "Upsample", {"x": real(1, 2, 3, 4)}, {"s": f32(1, 1, 2, 3)}, opset=9,
   mode="linear")
op("prelu_one_slope", "PRelu", {"x": real(2, 3, 4)}, {"s": f32(0.3)}, opset=16)
op("gemm_one_output", "Gemm", {"x": real(3, 4)}, {"w": real(4, 1), "b": f32(0.5)}, opset=13)
op("conv_transpose_grouped", "ConvTranspose", {"x": real(2, 4, 3, 4)}, {"w": real(4, 3, 3, 3)},
   opset=11, strides=[2, 1], group=2, dilations=[1, 2], pads=[1, 1, 0, 2])
add("cast_comparison",
    [helper.make_node("Equal", ["x", "zero"], ["e"]),
     helper.make_node("Cast", ["e"], ["c"], to=TensorProto.BOOL),
     helper.make_node("Unsqueeze", ["c", "axis"], ["u"]),
     helper.make_node("Squeeze", ["u", "axis"], ["s"]),
     helper.make_node("Where", ["s", "low", "x"], ["y"])],
    {"x": np.round(real(3, 4))}, initializers={"zero": f32(0).reshape(()), "axis": i64(1),
                                               "low": f32(-9).reshape(())}, opset=13)
add("cast_boolean",
    [helper.make_node("Greater", ["x", "zero"], ["g"]),
     helper.make_node("Cast", ["g"], ["f"], to=TensorProto.FLOAT),
     helper.make_node("Mul", ["x", "f"], ["y"])],
    {"x": x}, initializers={"zero": f32(0).reshape(())}, opset=13)
add("cast_to_boolean",
    [helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BOOL),
     helper.make_node("Where", ["b", "x", "one"], ["y"])],
    {"x": np.round(real(3, 4))}, initializers={"one": f32(1).reshape(())}, opset=13)
add("flat_tokens",
    [helper.make_node("Reshape", ["ids", "flat"], ["f"]),
     helper.make_node("Gather", ["table", "f"], ["y"])],
    {"ids": i64(1, 0, 3, 2, 3, 1).reshape(2, 3)},
    initializers={"flat": i64(-1), "table": real(4, 3)}, opset=13)

onnx_later_nodes.add_cases(add, op, real)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array))
    return buffer.getvalue()


def main():
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
        def put(name, data):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data,
                             zipfile.ZIP_DEFLATED)
        for name, (made, inputs, outputs) in sorted(cases.items()):
            put(name + ".onnx", made.SerializeToString())
            for i, array in enumerate(inputs):
                put(f"{name}.in{i}.npy", npy(array))
            for i, array in enumerate(outputs):
                put(f"{name}.out{i}.npy", npy(array))
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
