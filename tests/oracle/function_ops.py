# SPDX-License-Identifier: MIT
"""PyTorch's answers for functions of one element, softmax, normalizations and losses.

    function_ops.py [--out-dir vectors] [--list]

Writes function_ops.npz and function_ops.json, laid out as those of op_gradients.py, which has the
rest. Operators and attributes are ONNX's, with its constant inputs as attributes (Clip: min, max).
"""
import argparse
import math
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import torch
import torch.nn.functional as F

from op_gradients import INF, NAN, Vectors

Function = Callable[..., torch.Tensor]


def add_unary(v: Vectors) -> None:
    """Functions of one operand, on ordinary and on special values."""
    x = np.concatenate([v.normal(40) * np.float32(3.0), v.normal(8) * np.float32(1e-3)])
    special = np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, -1e-30,
                        30.0, -30.0, 90.0, -90.0, 1e10], np.float32)
    ones = np.ones(special.shape, np.float32)

    def case(name: str, op: str, function: Function, note: str = "", **attributes: Any) -> None:
        v.add(name, op, {"x": x}, function, attributes, upstream=v.normal(*x.shape), note=note)
        v.add(name + "_special", op, {"x": special}, function, attributes, upstream=ones, note=note)

    case("abs", "Abs", torch.abs, "the derivative at 0 is 0")
    case("reciprocal", "Reciprocal", torch.reciprocal)
    case("erf", "Erf", torch.erf)
    case("tanh", "Tanh", torch.tanh)
    case("sigmoid", "Sigmoid", torch.sigmoid)
    case("softplus", "Softplus", lambda x: F.softplus(x, threshold=40.0))
    case("leaky_relu", "LeakyRelu", lambda x: F.leaky_relu(x, 0.01),
         "the derivative at 0 is alpha", alpha=0.01)
    case("leaky_relu_steep", "LeakyRelu", lambda x: F.leaky_relu(x, 0.25), alpha=0.25)
    case("elu", "Elu", F.elu, alpha=1.0)
    case("elu_half", "Elu", lambda x: F.elu(x, 0.5), "the derivative at 0 is alpha", alpha=0.5)
    case("hard_sigmoid", "HardSigmoid", F.hardsigmoid, alpha=1.0 / 6.0, beta=0.5)
    case("hard_swish", "HardSwish", F.hardswish)
    case("sin", "Sin", torch.sin)
    case("cos", "Cos", torch.cos)
    case("gelu", "Gelu", F.gelu, tanh=0)
    case("gelu_tanh", "Gelu", lambda x: F.gelu(x, approximate="tanh"), tanh=1)
    case("silu", "Swish", F.silu)
    case("swish", "Swish", lambda x: x * torch.sigmoid(1.5 * x), alpha=1.5)
    case("clip", "Clip", lambda x: x.clamp(-1.0, 2.5), "the bounds let no gradient through since PyTorch 2.15",
         min=-1.0, max=2.5)
    case("clip_low", "Clip", lambda x: x.clamp(min=-0.5), min=-0.5)
    case("clip_high", "Clip", lambda x: x.clamp(max=0.5), max=0.5)
    v.add("clip_relu6", "Clip", {"x": x}, F.relu6, {"min": 0.0, "max": 6.0},
          note="on its corners relu6's derivative is 0")


def add_steps(v: Vectors) -> None:
    """Sign, Floor, Ceil, Round: PyTorch's gradient is zero, which is nobody's here."""
    x = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.49, -3.51, 7.0, 1e10, -1e10, INF, -INF,
                  NAN, 1e-40], np.float32)
    for op, function in (("Sign", torch.sign), ("Floor", torch.floor), ("Ceil", torch.ceil),
                         ("Round", torch.round)):
        v.add(op.lower(), op, {"x": x}, function, must_be_exact=True)
        v.index[-1]["gradients"] = []


def add_binary(v: Vectors) -> None:
    """Min, Max, Pow, PRelu with broadcasting."""
    shapes = {"same": ((2, 3, 4), (2, 3, 4)), "scalar": ((3, 4), ()), "left": ((), (3, 4)),
              "outer": ((3, 1), (1, 4)), "channels": ((2, 3, 4), (3, 1))}
    for op, function in (("Max", torch.maximum), ("Min", torch.minimum)):
        for name, (left, right) in shapes.items():
            v.add(f"{op.lower()}_{name}", op,
                  {"a": np.asarray(v.grid(*left, limit=3)),
                   "b": np.asarray(v.grid(*right, limit=3))}, function, must_be_exact=True,
                  note="equal operands share the gradient evenly")
        v.add(f"{op.lower()}_special", op,
              {"a": np.array([NAN, 1, INF, -INF, INF, NAN, 0, -0.0], np.float32),
               "b": np.array([1, NAN, 2, 2, INF, NAN, -0.0, 0], np.float32)}, function,
              upstream=np.arange(1, 9, dtype=np.float32), must_be_exact=True,
              note="a NaN on either side is the result, and the gradient passes on both")
    for name, (left, right) in shapes.items():
        v.add(f"pow_{name}", "Pow",
              {"a": np.asarray(np.abs(v.normal(*left)) + np.float32(0.1), np.float32),
               "b": np.asarray(v.normal(*right), np.float32)}, torch.pow,
              upstream=np.ones(np.broadcast_shapes(left, right), np.float32))
    signed = np.array([-2, -1.5, -0.5, 0, 0, 0, 2, -3, 0.0, 1, NAN, INF], np.float32)
    powers = np.array([2, 3, -1, 2, 0, 1, 0, 1, -1, NAN, 0, 0.5], np.float32)
    v.add("pow_special", "Pow", {"a": signed, "b": powers}, torch.pow,
          upstream=np.ones(12, np.float32),
          note="0 for the base where the exponent is 0, for the exponent of 0^b with b >= 0")
    v.add("pow_square", "Pow", {"a": v.normal(5, 6), "b": np.array(2.0, np.float32)},
          lambda a, b: a ** b)
    v.index[-1]["gradients"] = ["da"]
    for name, shape in (("channels", (3, 1)), ("one", (1,)), ("each", (2, 3, 4))):
        v.add(f"prelu_{name}", "PRelu", {"x": v.grid(2, 3, 4, limit=4), "slope": v.grid(*shape)},
              lambda x, slope: torch.where(x > 0, x, slope * x), must_be_exact=True,
              note="at 0 the derivative is the slope, as in F.prelu")


def add_softmax(v: Vectors) -> None:
    """Softmax and LogSoftmax along every axis; op_gradients.py has those of matrices."""
    special = v.normal(5, 4)
    special[0, 1], special[1, 2], special[3, 0] = NAN, -INF, INF
    special[2, :] = -INF
    special[4, :] = [1000.0, -1000.0, 999.0, 0.0]
    for short, op, function in (("softmax", "Softmax", F.softmax),
                                ("log_softmax", "LogSoftmax", F.log_softmax)):
        for axis in (0, 1, 2, -2):
            v.add(f"{short}_cube_axis{axis}", op, {"x": v.normal(3, 4, 5)},
                  lambda x, function=function, axis=axis: function(x, axis), {"axis": axis},
                  upstream=v.normal(3, 4, 5))
        v.add(f"{short}_cube", op, {"x": v.normal(2, 3, 6)},
              lambda x, function=function: function(x, -1), upstream=v.normal(2, 3, 6),
              note="the default is the last axis")
        v.add(f"{short}_long", op, {"x": v.normal(2, 700)},
              lambda x, function=function: function(x, -1), {"axis": 1})
        v.add(f"{short}_rows", op, {"x": special},
              lambda x, function=function: function(x, -1), {"axis": -1},
              note="a row of -inf alone, or with +inf, gives NaN")


def add_normalization(v: Vectors) -> None:
    """Layer, group, instance and RMS normalization."""
    def case(name: str, op: str, function: Function, x: np.ndarray, shape: Any, bias: bool = True,
             note: str = "", **attributes: Any) -> None:
        inputs = {"x": x, "scale": v.normal(*shape)}
        if bias:
            inputs["bias"] = v.normal(*shape)
        v.add(name, op, inputs, function, attributes, upstream=v.normal(*x.shape), note=note)

    def layer(shape: Any, eps: float) -> Function:
        return lambda x, w, b=None: F.layer_norm(x, shape, w, b, eps)

    def rms(axes: Any, eps: float) -> Function:
        return lambda x, w: x / torch.sqrt((x * x).mean(axes, keepdim=True) + eps) * w

    n = v.normal
    case("layer_norm", "LayerNormalization", layer((24,), 1e-5), n(6, 24), (24,))
    case("layer_norm_cube", "LayerNormalization", layer((33,), 1e-3), n(2, 5, 33), (33,), axis=-1,
         epsilon=1e-3)
    case("layer_norm_axis1", "LayerNormalization", layer((5, 7), 1e-5), n(3, 5, 7), (5, 7), axis=1)
    case("layer_norm_no_bias", "LayerNormalization", layer((24,), 1e-5), n(6, 24), (24,), False)
    case("layer_norm_far", "LayerNormalization", layer((64,), 1e-5),
         n(4, 64) + np.float32(100.0), (64,),
         note="mean far from 0: a variance taken as a difference of squares fails here")
    case("layer_norm_narrow", "LayerNormalization", layer((16,), 1e-5), n(4, 16) * np.float32(1e-3),
         (16,), note="epsilon dominates the variance")
    case("layer_norm_constant", "LayerNormalization", layer((8,), 1e-5),
         np.full((3, 8), 0.5, np.float32), (8,), note="no variance: y is the bias")
    case("rms_norm", "RMSNormalization", rms((-1,), 1e-6), n(6, 24), (24,), False, epsilon=1e-6)
    case("rms_norm_axis1", "RMSNormalization", rms((1, 2), 1e-5), n(3, 5, 7), (5, 7), False, axis=1)
    for groups in (1, 2, 6):
        case(f"group_norm_{groups}", "GroupNormalization",
             lambda x, w, b, groups=groups: F.group_norm(x, groups, w, b, 1e-5), n(3, 6, 4, 5),
             (6,), num_groups=groups)
    case("group_norm_flat", "GroupNormalization",
         lambda x, w, b: F.group_norm(x, 3, w, b, 1e-3), n(4, 12), (12,), num_groups=3,
         epsilon=1e-3)
    case("instance_norm", "InstanceNormalization",
         lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.1, 1e-5), n(3, 4, 5, 6), (4,))
    case("instance_norm_1d", "InstanceNormalization",
         lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.1, 1e-3), n(3, 4, 17), (4,),
         epsilon=1e-3)


def add_squared_errors(v: Vectors) -> None:
    """MeanSquaredError (F.mse_loss, reduction mean)."""
    def case(name: str, x: np.ndarray, target: np.ndarray, upstream: float, **more: Any) -> None:
        v.add(name, "MeanSquaredError", {"x": np.asarray(x), "target": np.asarray(target)},
              F.mse_loss, upstream=np.array(upstream, np.float32), output="loss", **more)

    case("mse", v.normal(6, 7), v.normal(6, 7), 1.0)
    case("mse_exact", v.grid(4, 8), v.grid(4, 8), 1024.0, must_be_exact=True)
    case("mse_long", v.normal(3, 5, 700), v.normal(3, 5, 700), 8.0)
    special = v.normal(5)
    special[1], special[3] = NAN, INF
    case("mse_special", special, v.normal(5), 1.0)


def add_log_sigmoid(v: Vectors) -> None:
    """Last, so that the numbers of all others stay what they were."""
    x = np.concatenate([v.normal(40) * np.float32(3.0), v.normal(8) * np.float32(1e-3)])
    note = f"by PyTorch {torch.__version__.split('+')[0]}"
    v.add("log_sigmoid", "LogSigmoid", {"x": x}, F.logsigmoid, upstream=v.normal(*x.shape),
          note=note)
    special = np.array([0.0, -0.0, INF, NAN, 30.0, -30.0, 90.0, -90.0, -104.0, -200.0, 1e10, -1e10],
                       np.float32)
    v.add("log_sigmoid_special", "LogSigmoid", {"x": special}, F.logsigmoid,
          upstream=np.ones(special.shape, np.float32), note=note)


def add_mish(v: Vectors) -> None:
    """Late, so that the numbers of all others stay what they were."""
    x = np.concatenate([v.normal(40) * np.float32(3.0), v.normal(8) * np.float32(1e-3)])
    note = f"by PyTorch {torch.__version__.split('+')[0]}"  # others may be by an older one
    v.add("mish", "Mish", {"x": x}, F.mish, upstream=v.normal(*x.shape), note=note)
    special = np.array([0.0, -0.0, INF, NAN, 30.0, -30.0, 90.0, -90.0, 1e10, -1e10], np.float32)
    v.add("mish_special", "Mish", {"x": special}, F.mish,
          upstream=np.ones(special.shape, np.float32), note=note)


def add_inverse(v: Vectors) -> None:
    """Inverse trigonometric and hyperbolic functions; after all others for the same reason."""
    note = f"by PyTorch {torch.__version__.split('+')[0]}"
    special = np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 2.0, -2.0, 1e-30, -1e-30, 1e10, -1e10],
                       np.float32)
    inside = np.concatenate([np.tanh(v.normal(40)), v.normal(8) * np.float32(1e-3)])
    wide = v.normal(48) * np.float32(3.0)
    for op, function, x in (("Acos", torch.acos, inside), ("Asin", torch.asin, inside),
                            ("Atanh", torch.atanh, inside), ("Acosh", torch.acosh, 1 + np.abs(wide)),
                            ("Asinh", torch.asinh, wide), ("Atan", torch.atan, wide)):
        v.add(op.lower(), op, {"x": x.astype(np.float32)}, function, upstream=v.normal(*x.shape),
              note=note)
        v.add(op.lower() + "_special", op, {"x": special}, function,
              upstream=np.ones(special.shape, np.float32), note=note)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent / "vectors",
                        help="folder for the two files (default: vectors beside this script)")
    parser.add_argument("--list", action="store_true", help="print every case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    v = Vectors()
    for add in (add_unary, add_steps, add_binary, add_softmax, add_normalization,
                add_squared_errors, add_mish, add_log_sigmoid, add_inverse):
        add(v)
    v.write(args.out_dir, "function_ops", args.list)


if __name__ == "__main__":
    main()
