#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/onnx/files/more_nodes.zip: small ONNX models with inputs, what ONNX Runtime (or,
where it has no kernel, ONNX's reference evaluator) computes from them, and gradients by PyTorch.

    python3 tests/oracle/onnx_more_nodes.py tests/onnx/files/more_nodes.zip

Members: NAME.onnx, NAME.in<i>.npy, NAME.out<i>.npy, and of cases with gradients NAME.dy.npy and
NAME.grad<i>.npy: of sum(y * dy) with regard to the i-th input, which the model takes plus a
variable "d_INPUT" of zeros. Needs onnx, onnxruntime, torch and numpy.
"""
import io
import sys
import zipfile

import numpy as np
import onnx
import onnxruntime as ort
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnx_integer_nodes

rng = np.random.default_rng(11)
cases = {}
i64 = lambda *v: np.array(v, dtype=np.int64)
f32 = lambda *v: np.array(v, dtype=np.float32)
node = helper.make_node


def real(*shape, low=-2.0, high=2.0):
    return np.asarray(rng.uniform(low, high, shape), dtype=np.float32)


def elem(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def evaluate(made, inputs, runtime=True):
    if runtime:
        try:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = ort.InferenceSession(made.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            return session.run(None, inputs)
        except Exception:
            pass
    return ReferenceEvaluator(made).run(None, inputs)


def add(name, nodes, inputs, outputs=("y",), known=(), opset=18, torch_y=None, runtime=True,
        tolerance=1e-5):
    """torch_y: of a dictionary of tensors, for gradients with regard to all real inputs."""
    known, nodes = dict(known), list(nodes)
    if torch_y:  # inputs plus variables of zeros
        for each in nodes:
            for i, operand in enumerate(each.input):
                if operand in inputs and inputs[operand].dtype == np.float32:
                    each.input[i] = operand + "_v"
        for key, value in reversed(inputs.items()):
            if value.dtype != np.float32:
                continue
            nodes.insert(0, node("Add", [key, "d_" + key], [key + "_v"], name="plus_" + key))
            known["d_" + key] = np.zeros_like(value)
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(k, elem(v), v.shape) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in known.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 10
    results = None if runtime == "torch" else evaluate(made, inputs, runtime)
    members = {}
    for i, array in enumerate(inputs.values()):
        members[f"in{i}"] = array
    if torch_y:
        tensors = {k: torch.from_numpy(np.array(v)) for k, v in inputs.items()}
        tensors = {k: v.double().requires_grad_() if v.dtype == torch.float32 else v
                   for k, v in tensors.items()}
        y = torch_y(tensors)
        if results is None:  # what the others cannot do
            results = [y.detach().numpy()]
        difference = np.abs(y.detach().numpy() - results[0]).max() / np.abs(results[0]).max()
        if not difference < tolerance:
            sys.exit(f"{name}: PyTorch differs by {difference}")
        results = [y.detach().numpy().astype(np.float32)] + list(results[1:])
        dy = real(*y.shape)
        y.backward(torch.from_numpy(dy).double())
        members["dy"] = dy
        for i, (key, tensor) in enumerate(tensors.items()):
            if tensor.requires_grad:
                gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                members[f"grad{i}"] = gradient.numpy().astype(np.float32)
    for i, array in enumerate(results):
        members[f"out{i}"] = np.asarray(array)
    assert name not in cases, name
    cases[name] = (made, members)


def op(name, kind, inputs, known=(), opset=18, outputs=("y",), order=None, torch_y=None,
       runtime=True, tolerance=1e-5, **attributes):
    names = order if order is not None else list(inputs) + list(dict(known))
    add(name, [node(kind, names, list(outputs), name=kind.lower(), **attributes)], inputs, outputs,
        known, opset, torch_y, runtime, tolerance)


x = real(2, 3, 4)

# ---- functions of one element ----
functions = {
    "Mish": (F.mish, {}), "Selu": (F.selu, {}), "Celu": (F.celu, {}), "Softsign": (F.softsign, {}),
    "Tan": (torch.tan, {}), "Cosh": (torch.cosh, {})}
for kind, (function, attributes) in functions.items():
    values = real(2, 3, 4, low=-1.2, high=1.2) if kind == "Tan" else x
    op(kind.lower(), kind, {"x": values}, torch_y=lambda t, f=function: f(t["x"]), **attributes)
op("celu_alpha", "Celu", {"x": x}, alpha=0.6, torch_y=lambda t: F.celu(t["x"], 0.6))
op("selu_attributes", "Selu", {"x": x}, alpha=0.5, gamma=2.0)
op("thresholded_relu", "ThresholdedRelu", {"x": x}, alpha=0.7,
   torch_y=lambda t: F.threshold(t["x"], float(np.float32(0.7)), 0.0))
op("soft_shrink", "Shrink", {"x": x}, lambd=0.5, bias=0.5,
   torch_y=lambda t: F.softshrink(t["x"], 0.5))
op("hard_shrink", "Shrink", {"x": x}, lambd=0.5, torch_y=lambda t: F.hardshrink(t["x"], 0.5))
add("written_mish", [node("Softplus", ["x"], ["s"]), node("Tanh", ["s"], ["t"]),
                     node("Mul", ["x", "t"], ["y"], name="mish")], {"x": x},
    torch_y=lambda t: F.mish(t["x"]))
op("swish_24", "Swish", {"x": x}, opset=24, alpha=1.5,
   torch_y=lambda t: t["x"] * torch.sigmoid(1.5 * t["x"]))
op("swiglu_28", "SwiGLU", {"a": x, "b": real(2, 3, 4)}, opset=28,
   torch_y=lambda t: F.silu(t["a"]) * t["b"])
infinite = f32(1.0, np.inf, -np.inf, 0.0, 3e38)
for name, attributes in [("both", {}), ("positive", {"detect_negative": 0}),
                         ("negative", {"detect_positive": 0}),
                         ("none", {"detect_negative": 0, "detect_positive": 0})]:
    add("is_inf_" + name, [node("IsInf", ["x"], ["i"], name="is_inf", **attributes),
                           node("Cast", ["i"], ["y"], to=TensorProto.FLOAT, name="y")],
        {"x": infinite}, opset=20)

# ---- reductions and normalizations ----
for name, axes, attributes in [("last", [-1], {}), ("two", [0, 2], {"keepdims": 0}),
                               ("all", None, {"keepdims": 0})]:
    inputs = ["x"] + (["axes"] if axes else [])
    known = {"axes": i64(*axes)} if axes else {}
    keep = attributes.get("keepdims", 1) == 1
    dims = axes or [0, 1, 2]
    op("log_sum_exp_" + name, "ReduceLogSumExp", {"x": x}, known, order=inputs,
       torch_y=lambda t, d=dims, k=keep: torch.logsumexp(t["x"], d, k), **attributes)
    op("log_sum_" + name, "ReduceLogSum", {"x": np.abs(x) + f32(0.1)}, known, order=inputs,
       torch_y=lambda t, d=dims, k=keep: torch.log(torch.sum(t["x"], d, k)), **attributes)
op("log_sum_exp_large", "ReduceLogSumExp", {"x": f32(1000, 1001, 999, -1000).reshape(2, 2)},
   opset=13, axes=[1], torch_y=lambda t: torch.logsumexp(t["x"], 1, True))
op("log_sum_exp_hidden", "ReduceLogSumExp",
   {"x": f32(-np.inf, -np.inf, -np.inf, 2.0, np.inf, 1.0).reshape(3, 2)}, opset=13, axes=[1])
assert cases["log_sum_exp_hidden"][1]["out0"][0, 0] == -np.inf
for name, axes, attributes in [("last", [-1], {}), ("middle", [1], {"keepdims": 0}),
                               ("two", [0, 2], {}), ("all", None, {"keepdims": 0})]:
    values = np.round(real(2, 3, 5), 1)
    values[0, 1, 2] = 0.0 if axes else 0.7  # the gradient of a zero is the product of the others
    keep = attributes.get("keepdims", 1) == 1

    def product(t, axes=axes or [0, 1, 2], keep=keep):
        y = t["x"]
        for axis in sorted(a % 3 for a in axes)[::-1]:
            y = torch.prod(y, axis, keep)
        return y

    op("product_" + name, "ReduceProd", {"x": values}, {"axes": i64(*axes)} if axes else {},
       torch_y=product, **attributes)
for p in (1, 2):
    op(f"lp_normalization_{p}", "LpNormalization", {"x": x}, opset=22, axis=1, p=p,
       torch_y=lambda t, p=p: F.normalize(t["x"], p, 1))
op("lp_normalization_zero", "LpNormalization", {"x": f32(0, 0, 3, 4).reshape(2, 2)}, opset=22,
   runtime=False)
op("mean_variance", "MeanVarianceNormalization", {"x": real(2, 3, 4, 5)}, opset=13,
   torch_y=lambda t: (t["x"] - t["x"].mean((0, 2, 3), True)) /
   (t["x"].var((0, 2, 3), False, keepdim=True).sqrt() + 1e-9))
image = real(2, 5, 4, 3)
op("lrn", "LRN", {"x": image}, opset=13, size=3, alpha=0.3, beta=0.6, bias=1.5,
   torch_y=lambda t: F.local_response_norm(t["x"], 3, 0.3, 0.6, 1.5))
# With an even size, one more channel comes after; the other two only have odd sizes.
op("lrn_even", "LRN", {"x": real(1, 6, 1, 7)}, opset=13, size=4, alpha=0.5, runtime="torch",
   torch_y=lambda t: t["x"] / (1 + 0.5 / 4 * F.pad(t["x"]**2, (0, 0, 0, 0, 1, 2)).unfold(
       1, 4, 1).sum(-1))**0.75)
for kind, more in [("LpPool", {"kernel_shape": [2, 3], "strides": [2, 1]}), ("GlobalLpPool", {})]:
    for p in (1, 2, 3):
        op(f"{kind.lower()}_{p}", kind, {"x": image}, p=p, **more)
op("lp_pool_padded", "LpPool", {"x": real(1, 2, 5)}, p=2, kernel_shape=[3], pads=[1, 1])

# ---- types and triangles ----
add("cast_like", [node("CastLike", ["ids", "x"], ["c"], name="like"),
                  node("Add", ["c", "x"], ["y"], name="y")],
    {"ids": i64(1, -2, 3), "x": real(3)})
add("cast_like_known", [node("CastLike", ["k", "ids"], ["c"], name="like"),
                        node("Mul", ["c", "ids"], ["y"], name="y")],
    {"ids": i64(1, -2, 3)}, known={"k": f32(2.7, 3.0, -1.5)})
hole = real(2, 4, 5)
hole[0, 0, 4], hole[1, 3, 0] = np.nan, np.inf
op("trilu_lower", "Trilu", {"x": hole[:1]}, upper=0)
op("trilu_upper", "Trilu", {"x": hole[1:]}, {"k": np.array(1, np.int64)})
op("trilu_gradient", "Trilu", {"x": real(2, 4, 5)}, {"k": np.array(-1, np.int64)},
   torch_y=lambda t: torch.triu(t["x"], -1))
op("trilu_integers", "Trilu", {"x": rng.integers(-9, 9, (4, 4))}, upper=0)
add("trilu_booleans", [node("Greater", ["x", "zero"], ["b"], name="b"),
                       node("Trilu", ["b"], ["m"], upper=0, name="m"),
                       node("Where", ["m", "x", "zero"], ["y"], name="y")],
    {"x": real(4, 4)}, known={"zero": f32(0).reshape(())})

# ---- selection ----
classes = rng.integers(-6, 7, (2, 3))
for axis in (-1, 0, 1):
    op(f"one_hot_axis{axis + 1}", "OneHot", {"x": classes},
       {"depth": i64(5), "values": f32(-0.5, 2.0)}, axis=axis)
add("one_hot_integers", [node("OneHot", ["x", "depth", "values"], ["h"], name="h"),
                         node("ReduceSum", ["h", "axis"], ["y"], name="y", keepdims=0)],
    {"x": classes}, known={"depth": np.array(4, np.int64), "values": i64(0, 1), "axis": i64(0)})
op("one_hot_reals", "OneHot", {"x": f32(0.0, 2.0, 1.0)},
   {"depth": f32(3.0), "values": f32(0.0, 1.0)})
add("one_hot_known", [node("OneHot", ["c", "depth", "values"], ["h"], name="h", axis=1),
                      node("Add", ["x", "h"], ["y"], name="y")],
    {"x": real(2, 4, 3)}, known={"c": rng.integers(-5, 5, (2, 3)), "depth": i64(4),
                                 "values": f32(0.0, 3.0)}, opset=17)
ties = np.round(real(2, 3, 4))
op("hardmax", "Hardmax", {"x": ties})
op("hardmax_axis", "Hardmax", {"x": ties}, axis=1)
op("hardmax_11", "Hardmax", {"x": ties}, opset=11, axis=1)
for name, attributes in [("first", {"axis": 1}), ("last", {"axis": -1, "select_last_index": 1}),
                         ("flat", {"axis": 0, "keepdims": 0})]:
    op("arg_min_" + name, "ArgMin", {"x": ties}, **attributes)
op("arg_min_integers", "ArgMin", {"x": rng.integers(-3, 3, (3, 5)).astype(np.int32)}, axis=1)
add("eye_like", [node("ConstantOfShape", ["s"], ["z"], name="z"),
                 node("EyeLike", ["z"], ["e"], k=1, name="eye"),
                 node("Add", ["x", "e"], ["y"], name="y")], {"x": real(3, 4)},
    known={"s": i64(3, 4)}, opset=22)
op("compress", "Compress", {"x": x}, {"c": np.array([True, False, True])}, axis=1,
   torch_y=lambda t: t["x"][:, [0, 2]])
op("compress_flat", "Compress", {"x": x}, {"c": np.array([False, True, True, False, True])})
add("non_zero_known", [node("NonZero", ["m"], ["n"], name="n"),
                       node("Transpose", ["n"], ["t"], name="t"),
                       node("Gather", ["t", "zero"], ["g"], name="g"),
                       node("Gather", ["x", "g"], ["y"], name="y", axis=2)], {"x": x},
    known={"m": np.array([[0, 1], [1, 0], [1, 1]], dtype=bool), "zero": np.array(2, np.int64)})
# ---- einsum ----
for name, equation, *shapes in [
        ("product", "ij,jk->ik", (2, 3), (3, 4)), ("implicit", "ij,jk", (2, 3), (3, 4)),
        ("implicit_order", "ba,ca", (2, 3), (4, 3)),
        ("attention", "bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("attention_mix", "bhqk,bkhd->bqhd", (2, 3, 4, 5), (2, 5, 3, 6)),
        ("heads", "bsd,dhk->bshk", (2, 3, 4), (4, 2, 5)),
        ("weight_first", "dhk,bsd->bhsk", (4, 2, 5), (2, 3, 4)),
        ("outer", "i,j->ij", (3,), (4,)), ("dot", "i,i->", (5,), (5,)),
        ("elements", "bij,bi->bij", (2, 3, 4), (2, 3)), ("turned", "bij->bji", (2, 3, 4)),
        ("sum", "bij->i", (2, 3, 4)), ("trace", "ii->", (4, 4)), ("diagonal", "bii->bi", (2, 3, 3)),
        ("two_diagonals", "gffg->f", (2, 3, 3, 2)), ("thrice", "bgbb,bc->gc", (3, 2, 3, 3), (3, 4)),
        ("diagonal_product", "iji,jk->ki", (3, 2, 3), (2, 4)),
        ("dots", "...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
        ("dots_stretched", "...ij,...jk->...ik", (5, 1, 3, 4), (2, 4, 3)),
        ("dots_last", "bi...,ij->bj...", (2, 3, 4, 5), (3, 6)),
        ("dots_summed", "b...,b...->b", (2, 3, 4), (2, 3, 4)),
        ("bilinear", "bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
        ("three", "ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
        ("chain_kept", "ij,jk,j->ijk", (2, 3), (3, 4), (3,)),
        ("alone", "ij,kl->il", (2, 3), (4, 5)),
        ("relative", "bhid,ijd->bhij", (2, 2, 3, 4), (3, 5, 4)),
        ("mixture", "gsec,gsm->egcm", (2, 3, 4, 2), (2, 3, 5)),
        ("batch_last", "ijb,jkb->ikb", (2, 3, 4), (3, 5, 4)),
        ("capitals", "Ab,bA->bA", (2, 3), (3, 2)), ("identity", "ij->ij", (2, 3)),
        ("scalar", "i,->i", (3,), ())]:
    letters = "abcd"
    inputs = {letters[i]: real(*shape) for i, shape in enumerate(shapes)}
    if name == "scalar":
        op("einsum_scalar", "Einsum", inputs, equation=equation)
        continue
    op("einsum_" + name, "Einsum", inputs, equation=equation, opset=12,
       torch_y=lambda t, e=equation, n=len(shapes): torch.einsum(e, *[t[c] for c in "abcd"[:n]]))


# ---- convolutions and pools ----
def conv_y(transposed=False, extra=None, cut=None, **options):
    def run(t):
        d = t["x"].dim() - 2
        x = t["x"] if extra is None else F.pad(t["x"], extra)
        name = f"conv_transpose{d}d" if transposed else f"conv{d}d"
        y = getattr(F, name)(x, t["w"], t.get("b"), **options)
        return y if cut is None else cut(y)
    return run


volume = real(2, 4, 5, 6, 4)
op("conv_3d", "Conv", {"x": volume, "w": real(3, 4, 2, 3, 3), "b": real(3)}, torch_y=conv_y())
op("conv_3d_pads", "Conv", {"x": volume, "w": real(6, 2, 3, 3, 2), "b": real(6)}, opset=22,
   pads=[1, 0, 1, 2, 1, 0], strides=[2, 1, 2], dilations=[1, 2, 1], group=2,
   torch_y=conv_y(extra=(1, 0, 0, 1, 1, 2), stride=(2, 1, 2), dilation=(1, 2, 1), groups=2))
op("conv_3d_slices", "Conv", {"x": volume, "w": real(3, 4, 1, 3, 3)}, pads=[0, 1, 1, 0, 1, 1],
   torch_y=conv_y(padding=(0, 1, 1)))
op("conv_3d_depthwise", "Conv", {"x": volume, "w": real(4, 1, 3, 1, 1)}, group=4,
   auto_pad="SAME_LOWER", strides=[2, 1, 1])
op("conv_1d_same", "Conv", {"x": real(2, 3, 7), "w": real(4, 3, 4)}, auto_pad="SAME_UPPER",
   strides=[2])

op("conv_transpose_1d", "ConvTranspose", {"x": real(2, 3, 4), "w": real(3, 2, 3), "b": real(2)},
   strides=[2], pads=[1, 1], output_padding=[1],
   torch_y=conv_y(True, stride=2, padding=1, output_padding=1))
op("conv_transpose_dilated", "ConvTranspose",
   {"x": real(2, 4, 4, 3), "w": real(4, 3, 3, 2), "b": real(6)}, strides=[2, 3],
   dilations=[2, 3], pads=[1, 2, 1, 2], group=2, output_padding=[1, 2],
   torch_y=conv_y(True, stride=(2, 3), dilation=(2, 3), padding=(1, 2), groups=2,
                  output_padding=(1, 2)))
# Zeros beyond what the kernel reaches: PyTorch allows them below the dilation.
op("conv_transpose_far", "ConvTranspose", {"x": real(1, 2, 4), "w": real(2, 3, 2), "b": real(3)},
   strides=[2], dilations=[4], output_padding=[3], pads=[1, 1], runtime="torch",
   torch_y=conv_y(True, stride=2, dilation=4, output_padding=3, padding=1))
op("conv_transpose_far_zeros", "ConvTranspose",
   {"x": real(1, 2, 4, 4), "w": real(2, 3, 2, 2), "b": real(3)}, strides=[1, 2],
   dilations=[4, 3], output_padding=[3, 2], runtime="torch",
   torch_y=conv_y(True, stride=(1, 2), dilation=(4, 3), output_padding=(3, 2)))
for how in ("NOTSET", "SAME_UPPER", "SAME_LOWER"):
    op("conv_transpose_shape_" + how.lower(), "ConvTranspose",
       {"x": real(2, 3, 4, 5), "w": real(3, 2, 4, 3)}, strides=[3, 2], auto_pad=how,
       output_shape=[10, 8])
    if how != "NOTSET":
        op("conv_transpose_" + how.lower(), "ConvTranspose",
           {"x": real(2, 3, 4, 5), "w": real(3, 2, 4, 3)}, strides=[3, 2], auto_pad=how)
op("conv_transpose_valid", "ConvTranspose", {"x": real(2, 3, 4), "w": real(3, 2, 4)},
   strides=[3], auto_pad="VALID")
op("conv_transpose_shape_large", "ConvTranspose", {"x": real(1, 1, 3), "w": real(1, 2, 3)},
   strides=[2], output_shape=[8])
op("conv_transpose_3d", "ConvTranspose",
   {"x": real(2, 3, 3, 4, 2), "w": real(3, 2, 3, 2, 3), "b": real(2)}, strides=[2, 1, 2],
   pads=[1, 0, 1, 1, 0, 1], output_padding=[1, 0, 1],
   torch_y=conv_y(True, stride=(2, 1, 2), padding=(1, 0, 1), output_padding=(1, 0, 1)))
op("conv_transpose_3d_up", "ConvTranspose", {"x": real(2, 4, 2, 3, 3), "w": real(4, 2, 2, 2, 2)},
   strides=[2, 2, 2], group=2, torch_y=conv_y(True, stride=2, groups=2))
op("conv_transpose_3d_dilated", "ConvTranspose",
   {"x": real(1, 2, 4, 3, 3), "w": real(2, 2, 3, 2, 2)}, dilations=[2, 1, 2], strides=[3, 1, 1],
   torch_y=conv_y(True, stride=(3, 1, 1), dilation=(2, 1, 2)))

ties = np.round(volume * 2) / 2
op("max_pool_3d", "MaxPool", {"x": ties}, kernel_shape=[3, 2, 2], strides=[1, 2, 1],
   pads=[1, 1, 0, 1, 1, 0], torch_y=lambda t: F.max_pool3d(t["x"], (3, 2, 2), (1, 2, 1), (1, 1, 0)))
op("max_pool_3d_ceil", "MaxPool", {"x": ties}, kernel_shape=[2, 2, 3], strides=[2, 2, 2],
   ceil_mode=1, opset=22, torch_y=lambda t: F.max_pool3d(t["x"], (2, 2, 3), 2, ceil_mode=True))
op("max_pool_3d_dilated", "MaxPool", {"x": ties}, kernel_shape=[2, 3, 2], dilations=[3, 2, 1],
   torch_y=lambda t: F.max_pool3d(t["x"], (2, 3, 2), 1, dilation=(3, 2, 1)))
for inside in (0, 1):
    op(f"average_pool_3d_{inside}", "AveragePool", {"x": volume}, kernel_shape=[3, 2, 2],
       strides=[2, 2, 1], pads=[1, 1, 0, 1, 1, 0], count_include_pad=inside,
       torch_y=lambda t, i=inside: F.avg_pool3d(t["x"], (3, 2, 2), (2, 2, 1), (1, 1, 0),
                                                count_include_pad=bool(i)))
    op(f"average_pool_3d_ceil_{inside}", "AveragePool", {"x": volume}, kernel_shape=[2, 3, 3],
       strides=[2, 2, 2], pads=[0, 1, 1, 0, 1, 1], count_include_pad=inside, ceil_mode=1, opset=22,
       runtime=False,
       torch_y=lambda t, i=inside: F.avg_pool3d(t["x"], (2, 3, 3), 2, (0, 1, 1), True, bool(i)))
op("global_average_pool_3d", "GlobalAveragePool", {"x": volume})
op("col_to_im", "Col2Im", {"x": real(2, 12, 20)}, {"size": i64(5, 6), "block": i64(2, 2)},
   torch_y=lambda t: F.fold(t["x"], (5, 6), 2))
op("col_to_im_strided", "Col2Im", {"x": real(2, 12, 9)}, {"size": i64(6, 5), "block": i64(2, 3)},
   pads=[0, 1, 0, 1], strides=[2, 2],
   torch_y=lambda t: F.fold(t["x"], (6, 5), (2, 3), 1, (0, 1), 2))

# ---- space to depth ----
op("space_to_depth_crd", "SpaceToDepth", {"x": real(1, 2, 4, 6)}, opset=28, blocksize=2,
   mode="CRD", runtime=False, torch_y=lambda t: F.pixel_unshuffle(t["x"], 2))

# ---- resizing ----
picture = real(2, 2, 5, 7)
for size, name in [((8, 9), "up"), ((3, 4), "down")]:
    for corners in (False, True):
        mode = "align_corners" if corners else "half_pixel"
        for kind, torch_kind in [("cubic", "bicubic"), ("linear", "bilinear")]:
            op(f"resize_{kind}_{name}_{mode}", "Resize", {"x": picture},
               {"s": i64(2, 2, *size)}, order=["x", "", "", "s"], mode=kind,
               coordinate_transformation_mode=mode,
               torch_y=lambda t, k=torch_kind, s=size, c=corners: F.interpolate(
                   t["x"], s, mode=k, align_corners=c))
op("resize_cubic_half", "Resize", {"x": picture}, {"s": f32(1, 1, 1.6, 0.7)},
   order=["x", "", "s"], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1)
op("resize_cubic_inside", "Resize", {"x": picture}, {"s": i64(2, 2, 9, 4)},
   order=["x", "", "", "s"], mode="cubic", exclude_outside=1,
   coordinate_transformation_mode="pytorch_half_pixel")
op("resize_cubic_asymmetric", "Resize", {"x": picture}, {"s": i64(2, 2, 9, 10)},
   order=["x", "", "", "s"], mode="cubic", coordinate_transformation_mode="asymmetric")
for size in ((3, 4), (8, 3), (2, 9), (1, 7)):
    for kind, torch_kind, more in [("linear", "bilinear", {}),
                                   ("cubic", "bicubic", {"cubic_coeff_a": -0.5})]:
        op(f"resize_antialias_{kind}_{size[0]}_{size[1]}", "Resize", {"x": picture},
           {"s": i64(2, 2, *size)}, order=["x", "", "", "s"], mode=kind, antialias=1,
           exclude_outside=1, torch_y=lambda t, k=torch_kind, s=size: F.interpolate(t["x"], s, mode=k,
                                                                 antialias=True), **more)
for kind in ("linear", "cubic"):
    op("resize_antialias_edges_" + kind, "Resize", {"x": picture}, {"s": f32(1, 1, 0.55, 1.3)},
       order=["x", "", "s"], mode=kind, antialias=1)
op("resize_linear_1d", "Resize", {"x": real(2, 3, 5)}, {"s": i64(2, 3, 8)},
   order=["x", "", "", "s"], mode="linear",
   torch_y=lambda t: F.interpolate(t["x"], 8, mode="linear"))
op("resize_linear_3d", "Resize", {"x": real(1, 2, 3, 4, 2)}, {"s": i64(1, 2, 5, 3, 4)},
   order=["x", "", "", "s"], mode="linear",
   torch_y=lambda t: F.interpolate(t["x"], (5, 3, 4), mode="trilinear"))
op("resize_nearest_3d", "Resize", {"x": real(1, 2, 3, 4, 2)}, {"s": i64(1, 2, 5, 3, 4)},
   order=["x", "", "", "s"], mode="nearest", nearest_mode="floor",
   coordinate_transformation_mode="asymmetric",
   torch_y=lambda t: F.interpolate(t["x"], (5, 3, 4), mode="nearest"))
for mode in ("linear", "cubic", "nearest"):
    op(f"resize_symmetric_{mode}", "Resize", {"x": picture}, {"s": f32(1, 1, 1.7, 0.8)},
       order=["x", "", "s"], mode=mode, opset=19,
       coordinate_transformation_mode="half_pixel_symmetric")
for mode in ("linear", "nearest"):
    op(f"resize_crop_{mode}", "Resize", {"x": picture},
       {"roi": f32(0, 0, 0.2, -0.3, 1, 1, 0.9, 1.1), "s": i64(2, 2, 4, 6)},
       order=["x", "roi", "", "s"], mode=mode, extrapolation_value=7.5,
       coordinate_transformation_mode="tf_crop_and_resize")
for policy in ("not_larger", "not_smaller"):
    op(f"resize_{policy}", "Resize", {"x": picture}, {"s": i64(8, 9)}, order=["x", "", "", "s"],
       mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)

# ---- sampling ----
picture = real(2, 3, 5, 4)
grid = real(2, 3, 4, 2, low=-1.6, high=1.6)
for padding in ("zeros", "border", "reflection"):
    for corners in (0, 1):
        for mode, torch_mode in [("linear", "bilinear"), ("nearest", "nearest"),
                                 ("cubic", "bicubic")]:
            op(f"grid_sample_{mode}_{padding}_{corners}", "GridSample", {"x": picture, "g": grid},
               opset=20, mode=mode, padding_mode=padding, align_corners=corners,
               torch_y=lambda t, m=torch_mode, p=padding, c=corners: F.grid_sample(
                   t["x"], t["g"], m, p, bool(c)))
op("grid_sample_16", "GridSample", {"x": picture, "g": grid}, opset=16, mode="bicubic",
   torch_y=lambda t: F.grid_sample(t["x"], t["g"], "bicubic", "zeros", False))
for mode, torch_mode in [("linear", "bilinear"), ("nearest", "nearest")]:
    for padding in ("zeros", "border", "reflection"):
        op(f"grid_sample_3d_{mode}_{padding}", "GridSample",
           {"x": real(2, 2, 3, 4, 5), "g": real(2, 2, 3, 2, 3, low=-1.4, high=1.4)}, opset=22,
           mode=mode, padding_mode=padding,
           torch_y=lambda t, m=torch_mode, p=padding: F.grid_sample(t["x"], t["g"], m, p, False))
op("grid_sample_row", "GridSample", {"x": real(1, 1, 1, 4), "g": real(1, 2, 3, 2)}, opset=20,
   mode="linear", padding_mode="reflection", align_corners=1, runtime="torch",
   torch_y=lambda t: F.grid_sample(t["x"], t["g"], "bilinear", "reflection", True))
far = f32(-5.0, 0.2, 9.0, 1.0, 1e6, -1.0, 0.3, -0.7).reshape(1, 2, 2, 2)
for padding in ("zeros", "border"):
    op("grid_sample_far_" + padding, "GridSample", {"x": real(1, 2, 3, 3), "g": far}, opset=20,
       padding_mode=padding,
       torch_y=lambda t, p=padding: F.grid_sample(t["x"], t["g"], "bilinear", p, False))
for corners in (0, 1):
    op(f"affine_grid_{corners}", "AffineGrid", {"t": real(2, 2, 3)}, {"size": i64(2, 3, 4, 5)},
       opset=20, align_corners=corners,
       torch_y=lambda t, c=corners: F.affine_grid(t["t"], (2, 3, 4, 5), bool(c)))
op("affine_grid_3d", "AffineGrid", {"t": real(2, 3, 4)}, {"size": i64(2, 1, 3, 4, 2)}, opset=20,
   torch_y=lambda t: F.affine_grid(t["t"], (2, 1, 3, 4, 2), False))


# ---- attention ----
def sdpa(**options):
    heads = options.pop("heads", None)
    bias = options.pop("bias", None)
    cap = options.pop("cap", None)

    def split(x, n):
        return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(1, 2)

    def run(t):
        q, k, v = t["q"], t["k"], t["v"]
        if heads:
            q, k, v = split(q, heads[0]), split(k, heads[1]), split(v, heads[1])
        if "pk" in t:
            k, v = torch.cat([t["pk"], k], 2), torch.cat([t["pv"], v], 2)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) * options.get("scale", q.shape[-1]**-0.5)
        if cap:
            scores = cap * torch.tanh(scores / cap)
        seen = torch.ones(scores.shape, dtype=torch.bool)
        if bias is not None:
            mask = bias(t)
            if mask.dtype == torch.bool:
                seen = seen & mask
            else:
                scores = scores + mask
                seen = seen & (mask > -torch.inf)
        row = seen.any(-1, True)
        scores = scores.masked_fill(~seen, -torch.inf).masked_fill(~row, 0.0)
        y = torch.softmax(scores, -1).masked_fill(~row, 0.0) @ v
        return y.transpose(1, 2).flatten(2) if heads else y
    return run


def causal(queries, keys, offset=0, left=None, right=0):
    i, j = np.arange(queries)[:, None] + offset, np.arange(keys)[None]
    seen = j <= i + right
    return torch.from_numpy(seen if left is None else seen & (j >= i - left))


qkv = {"q": real(2, 4, 3, 6), "k": real(2, 4, 5, 6), "v": real(2, 4, 5, 7)}
op("attention", "Attention", qkv, opset=23, torch_y=sdpa())
op("attention_causal", "Attention", qkv, opset=23, is_causal=1, scale=0.3,
   torch_y=sdpa(scale=0.3, bias=lambda t: causal(3, 5)))
op("attention_grouped", "Attention",
   {"q": real(2, 3, 24), "k": real(2, 5, 12), "v": real(2, 5, 6)}, opset=23, q_num_heads=4,
   kv_num_heads=2, torch_y=sdpa(heads=(4, 2)))
op("attention_softcap", "Attention", qkv, opset=23, softcap=1.5, torch_y=sdpa(cap=1.5))
op("attention_float_mask", "Attention", {**qkv, "m": real(3, 5)}, opset=23,
   torch_y=sdpa(bias=lambda t: t["m"]))
hidden = np.where(rng.random((2, 1, 3, 5)) < 0.5, f32(-np.inf), f32(0.0)).astype(np.float32)
hidden[1, 0, 2] = -np.inf
add("attention_hidden_rows", [node("Attention", ["q", "k", "v", "m"], ["y"], name="attention")],
    qkv, known={"m": hidden}, opset=23, torch_y=sdpa(bias=lambda t: torch.from_numpy(hidden)),
    runtime=False)
boolean = np.array(rng.random((2, 1, 3, 5)) < 0.5)
boolean[0, 0, 1] = False
for name, more in [("", {}), ("_causal", {"is_causal": 1})]:
    op("attention_boolean" + name, "Attention", {**qkv, "m": boolean}, opset=23, runtime=False,
       torch_y=sdpa(bias=lambda t, c=more: t["m"] & causal(3, 5, 0, None, 0 if c else 9)), **more)
    add("attention_boolean_known" + name,
        [node("Attention", ["q", "k", "v", "m"], ["y"], name="attention", **more)], qkv,
        known={"m": boolean}, opset=23, runtime=False,
        torch_y=sdpa(bias=lambda t, c=more: torch.from_numpy(boolean) &
                     causal(3, 5, 0, None, 0 if c else 9)))
op("attention_short_mask", "Attention", {**qkv, "m": boolean[..., :3]}, opset=24, runtime=False,
   torch_y=sdpa(bias=lambda t: F.pad(t["m"], (0, 2))))
op("attention_float_mask_causal", "Attention", {**qkv, "m": real(3, 4)}, opset=24, is_causal=1,
   runtime=False, torch_y=sdpa(bias=lambda t: F.pad(t["m"], (0, 1), value=-torch.inf).masked_fill(
       ~causal(3, 5), -torch.inf)))
op("attention_past", "Attention", {**qkv, "pk": real(2, 4, 2, 6), "pv": real(2, 4, 2, 7)},
   order=["q", "k", "v", "", "pk", "pv"], opset=23, is_causal=1, outputs=("y", "k2", "v2"),
   torch_y=sdpa(bias=lambda t: causal(3, 7, 2)))
op("attention_window", "Attention", qkv, opset=25, left_window_size=1, right_window_size=1,
   runtime=False, torch_y=sdpa(bias=lambda t: causal(3, 5, 0, 1, 1)))
turn = lambda *shape: {"c": np.cos(real(*shape)), "s": np.sin(real(*shape))}
places = np.array([[3, 1, 0], [2, 4, 4]], np.int64)
for name, shape, table, more in [
        ("", (2, 4, 3, 8), (6, 4), {}), ("_interleaved", (2, 4, 3, 8), (6, 4), {"interleaved": 1}),
        ("_flat", (2, 3, 32), (6, 4), {"num_heads": 4}),
        ("_part", (2, 4, 3, 8), (6, 2), {"rotary_embedding_dim": 4}),
        ("_part_interleaved", (2, 3, 32), (6, 3),
         {"rotary_embedding_dim": 6, "num_heads": 4, "interleaved": 1})]:
    op("rotary" + name, "RotaryEmbedding", {"x": real(*shape)}, {**turn(*table), "p": places},
       opset=23, **more)
op("rotary_tables", "RotaryEmbedding", {"x": real(2, 4, 3, 8), **turn(2, 3, 4)}, opset=23)

# ---- changes of newer opsets ----
add("dequantized_type_23",
    [node("DequantizeLinear", ["q", "scale"], ["w"], output_dtype=TensorProto.FLOAT),
     node("MatMul", ["x", "w"], ["y"], name="y")], {"x": real(2, 3)},
    known={"q": rng.integers(-100, 100, (3, 4)).astype(np.int8),
           "scale": np.array(0.03, np.float16)}, opset=23, runtime=False)
constant = lambda name, array: node("Constant", [], [name], value=numpy_helper.from_array(array))
add("mod_known", [constant("a", f32(-5.5, 5.5, -3.0, 7.25)),
                  constant("b", f32(3.0, -3.0, 2.0, -2.0)),
                  node("Mod", ["a", "b"], ["m"], fmod=1), node("Add", ["x", "m"], ["y"])],
    {"x": real(4)})
add("newest_opset", [node("Relu", ["x"], ["r"], name="r"),
                     node("Transpose", ["r"], ["t"], perm=[1, 0, 2], name="t"),
                     node("Pad", ["t", "p"], ["y"], name="y")], {"x": x},
    known={"p": i64(0, 1, 0, 0, 0, 2)}, opset=28)
# Small numbers must not cancel out.
op("sinh", "Sinh", {"x": x * f32(1.0, 1e-4, 1e-20, 4.0)}, torch_y=lambda t: torch.sinh(t["x"]))
for kind, inside in (("Acos", 0.49), ("Asin", 0.49), ("Atanh", 0.49), ("Asinh", 3.0), ("Atan", 3.0)):
    op(kind.lower(), kind, {"x": x * np.float32(inside)},
       torch_y=lambda t, f=getattr(torch, kind.lower()): f(t["x"]))
op("acosh", "Acosh", {"x": np.abs(x) + np.float32(1.01)}, torch_y=lambda t: torch.acosh(t["x"]))
op("acosh_outside", "Acosh", {"x": x * np.float32(0.4)})

onnx_integer_nodes.add_cases(add, op, real, constant)
# A row that is added to 90 times, as by the many neighbours of a node in a graph.
often = np.array([1] * 90 + [0, 2, 0], np.int64)
add("scatter_nd_often", [node("ScatterND", ["x", "i", "u"], ["y"], reduction="add", name="y")],
    {"x": real(3, 2), "u": real(93, 2)}, known={"i": often[:, None]},
    torch_y=lambda t: t["x"].index_add(0, torch.from_numpy(often), t["u"]))
add("scatter_elements_often",
    [node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add", axis=0, name="y")],
    {"x": real(3, 2), "u": real(93, 2)}, known={"i": np.stack([often, often[::-1]], 1)},
    torch_y=lambda t: t["x"].scatter_add(
        0, torch.from_numpy(np.stack([often, often[::-1]], 1)), t["u"]))


def main():
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
        def write(name, data):
            member = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)

        for name, (made, members) in sorted(cases.items()):
            write(name + ".onnx", made.SerializeToString())
            for key, array in members.items():
                if array.dtype == bool:
                    array = array.astype(np.int64)
                buffer = io.BytesIO()
                np.save(buffer, np.ascontiguousarray(array).reshape(array.shape))
                write(f"{name}.{key}.npy", buffer.getvalue())
    print(len(cases), "cases,", sum("dy" in m for _, m in cases.values()), "with gradients")


main()
