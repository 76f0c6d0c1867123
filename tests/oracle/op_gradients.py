# SPDX-License-Identifier: MIT
"""PyTorch's answers for single operators and optimizers, as test vectors.

    op_gradients.py [--out-dir vectors] [--list]

Writes op_gradients.npz, with keys "<case>/<what>", and op_gradients.json, its index. <what> is
  - an input (x, w, b, a, labels ...) or output (y, loss);
  - dy (dloss): the upstream gradient; d<input>: the gradient with respect to an input;
  - attr: the integer attributes in the order the index gives in "attr_order";
  - for optimizers: param0 [n], grads [5, n], and after each of the 5 steps params [5, n] and the
    state m, v [5, n]; <what>64 is the same trajectory computed in float64 from the same numbers.
Everything is float32 except labels and attr (int64) and the *64 trajectories (float64).

The index says for every case: op (ONNX operator, or a class of torch.optim), attributes (ONNX names),
inputs, outputs, gradients (keys), exact, error, and a note where one is due.
  - exact: PyTorch's float32 results equal those it computes in float64, bit for bit, all values
    being small multiples of powers of two. Any summation order must give these numbers.
  - error: otherwise, per result, max |float32 - float64| / max |float64| over the finite elements:
    PyTorch's own rounding error, a yardstick for tolerances.
The sign of a zero and the payload of a NaN are PyTorch's and not meant to be compared.
"""
import argparse
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import torch
import torch.nn.functional as F

Arrays = Dict[str, np.ndarray]
NAN, INF = float("nan"), float("inf")


class Vectors:
    """Collects cases and computes their results with autograd."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.index: List[Dict[str, Any]] = []
        self.random = np.random.default_rng(20240501)

    def grid(self, *shape: int, scale: float = 0.125, limit: int = 16) -> np.ndarray:
        """Small multiples of `scale`: sums of their products are exact in float32."""
        return (self.random.integers(-limit, limit + 1, shape) * scale).astype(np.float32)

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape).astype(np.float32)

    def add(self, case: str, op: str, inputs: Arrays, function: Callable[..., torch.Tensor],
            attributes: Optional[Dict[str, Any]] = None, attr: Optional[Sequence[int]] = None,
            attr_order: Optional[List[str]] = None, upstream: Optional[np.ndarray] = None,
            output: str = "y", note: str = "", must_be_exact: bool = False) -> None:
        """Records function(*inputs) and the gradients of all float inputs."""
        results = self._evaluate(inputs, function, upstream, output, torch.float32)
        reference = self._evaluate(inputs, function, results["d" + output], output, torch.float64)
        exact = all(np.array_equal(results[k].astype(np.float64), reference[k], equal_nan=True)
                    for k in results)
        if must_be_exact and not exact:
            raise SystemExit(f"error: case {case} is not exact")
        entry: Dict[str, Any] = {
            "case": case, "op": op, "attributes": attributes or {}, "inputs": list(inputs),
            "outputs": [output], "upstream": ["d" + output],
            "gradients": ["d" + name for name, value in inputs.items()
                          if value.dtype == np.float32],
            "exact": exact}
        if attr is not None:
            self.arrays[f"{case}/attr"] = np.array(attr, dtype=np.int64)
            entry["attr_order"] = attr_order
        if not exact:
            entry["error"] = {k: self._error(results[k], reference[k])
                              for k in results if k != "d" + output}
        if note:
            entry["note"] = note
        for name, value in {**inputs, **results}.items():
            self.arrays[f"{case}/{name}"] = value
        self.index.append(entry)

    def _evaluate(self, inputs: Arrays, function: Callable[..., torch.Tensor],
                  upstream: Optional[np.ndarray], output: str, dtype: torch.dtype) -> Arrays:
        tensors = []
        for value in inputs.values():
            tensor = torch.from_numpy(np.array(value))
            if value.dtype == np.float32:
                tensor = tensor.to(dtype).requires_grad_(True)
            tensors.append(tensor)
        y = function(*tensors)
        if upstream is None:
            upstream = self.grid(*y.shape)
        upstream = np.asarray(upstream, dtype=np.float32).reshape(tuple(y.shape))
        y.backward(torch.from_numpy(upstream.copy()).to(dtype))
        results = {output: y.detach().numpy(), "d" + output: upstream}
        for name, tensor in zip(inputs, tensors):
            if tensor.requires_grad:
                gradient = tensor.grad if tensor.grad is not None else torch.zeros_like(tensor)
                results["d" + name] = gradient.detach().numpy()
        return results

    def write(self, folder: Path, name: str, listed: bool) -> None:
        """NAME.npz and NAME.json."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / f"{name}.npz", **self.arrays)
        rows = ",\n".join(json.dumps(entry) for entry in self.index)
        text = f'{{"torch": "{torch.__version__}", "cases": [\n{rows}\n]}}\n'
        (folder / f"{name}.json").write_text(text, encoding="ascii")
        if listed:
            for entry in self.index:
                shapes = ", ".join(f"{what}{list(self.arrays[entry['case'] + '/' + what].shape)}"
                                   for what in entry["inputs"])
                kind = "exact" if entry["exact"] else "rounded"
                print(f"{entry['case']:28s}{entry['op']:26s}{kind:9s}{shapes}")
        print(f"{len(self.index)} cases, {len(self.arrays)} arrays")

    @staticmethod
    def _error(single: np.ndarray, double: np.ndarray) -> float:
        finite = np.isfinite(single) & np.isfinite(double)
        if not finite.any():
            return 0.0
        top = float(np.abs(double[finite]).max())
        difference = float(np.abs(single[finite].astype(np.float64) - double[finite]).max())
        return difference / top if top > 0 else difference


CONV_ORDER = ["stride_h", "stride_w", "pad_top", "pad_left", "pad_bottom", "pad_right",
              "dilation_h", "dilation_w"]
POOL_ORDER = ["kernel_h", "kernel_w"] + CONV_ORDER


def add_conv(v: Vectors) -> None:
    """Conv with group 1."""
    def case(name: str, x: np.ndarray, w: np.ndarray, b: Optional[np.ndarray],
             stride: Sequence[int] = (1, 1), pads: Sequence[int] = (0, 0, 0, 0),
             dilation: Sequence[int] = (1, 1), exact: bool = True, note: str = "") -> None:
        top, left, bottom, right = pads

        def function(x: torch.Tensor, w: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
            x = F.pad(x, (left, right, top, bottom))
            return F.conv2d(x, w, bias[0] if bias else None, tuple(stride), 0, tuple(dilation))

        inputs = {"x": x, "w": w} if b is None else {"x": x, "w": w, "b": b}
        attributes = {"strides": list(stride), "pads": list(pads), "dilations": list(dilation),
                      "kernel_shape": list(w.shape[2:]), "group": 1}
        v.add(name, "Conv", inputs, function, attributes, [*stride, *pads, *dilation], CONV_ORDER,
              must_be_exact=exact, note=note)

    g = v.grid
    case("conv_basic", g(2, 3, 6, 7), g(4, 3, 3, 3), g(4))
    case("conv_nobias", g(2, 3, 6, 7), g(4, 3, 3, 3), None)
    case("conv_p1", g(2, 3, 5, 5), g(4, 3, 3, 3), g(4), pads=(1, 1, 1, 1))
    case("conv_s2p1", g(2, 3, 7, 8), g(4, 3, 3, 3), g(4), (2, 2), (1, 1, 1, 1),
         note="(8 + 2 - 3) is odd: the last column of the padded input is not read")
    case("conv_d2", g(1, 2, 8, 9), g(3, 2, 3, 3), g(3), dilation=(2, 2))
    case("conv_s2d2p2", g(2, 2, 9, 8), g(3, 2, 3, 3), g(3), (2, 2), (2, 2, 2, 2), (2, 2))
    case("conv_asym_kernel", g(2, 3, 6, 8), g(2, 3, 2, 5), g(2), pads=(0, 2, 0, 2))
    case("conv_asym_all", g(2, 2, 9, 10), g(3, 2, 3, 2), g(3), (2, 3), (1, 2, 1, 2), (1, 3))
    case("conv_asym_pads", g(1, 2, 5, 6), g(2, 2, 3, 3), g(2), pads=(0, 1, 2, 0),
         note="ONNX pads may differ by side; in PyTorch: F.pad, then conv2d")
    case("conv_1x1", g(2, 5, 4, 4), g(6, 5, 1, 1), g(6))
    case("conv_1x1_s2", g(2, 5, 5, 5), g(6, 5, 1, 1), g(6), (2, 2))
    case("conv_whole", g(3, 2, 4, 5), g(3, 2, 4, 5), g(3), note="the kernel covers the image")
    case("conv_5x5", g(2, 1, 12, 12), g(6, 1, 5, 5), g(6))
    case("conv_batch0", g(0, 2, 5, 5), g(3, 2, 3, 3), g(3),
         note="no sample: gradients of w and b are zero")
    n = v.normal
    case("conv_normal", n(2, 4, 8, 8), n(5, 4, 3, 3), n(5), pads=(1, 1, 1, 1), exact=False)
    special = g(1, 2, 5, 5)
    special[0, 0, 1, 1], special[0, 1, 4, 4] = NAN, INF
    case("conv_special", special, np.abs(g(2, 2, 3, 3)) + np.float32(0.125), g(2),
         note="NaN and inf spread over the windows that hold them")


def add_pool(v: Vectors) -> None:
    """MaxPool."""
    def case(name: str, x: np.ndarray, kernel: Sequence[int], stride: Sequence[int],
             pads: Sequence[int] = (0, 0), dilation: Sequence[int] = (1, 1),
             note: str = "") -> None:
        def function(x: torch.Tensor) -> torch.Tensor:
            return F.max_pool2d(x, tuple(kernel), tuple(stride), tuple(pads), tuple(dilation))

        onnx_pads = [pads[0], pads[1], pads[0], pads[1]]
        attributes = {"kernel_shape": list(kernel), "strides": list(stride), "pads": onnx_pads,
                      "dilations": list(dilation), "ceil_mode": 0}
        v.add(name, "MaxPool", {"x": x}, function, attributes,
              [*kernel, *stride, *onnx_pads, *dilation], POOL_ORDER, must_be_exact=True, note=note)

    def distinct(*shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        return ((v.random.permutation(count) - count // 2) / 16).astype(np.float32).reshape(shape)

    case("maxpool_2x2", distinct(2, 3, 6, 8), (2, 2), (2, 2))
    case("maxpool_overlap", distinct(2, 2, 7, 7), (3, 3), (2, 2),
         note="windows overlap: gradients add up")
    case("maxpool_k3s1", distinct(1, 2, 5, 6), (3, 3), (1, 1))
    case("maxpool_gap", distinct(1, 2, 8, 8), (2, 2), (3, 3), note="some inputs are in no window")
    case("maxpool_k3s2p1", distinct(2, 2, 7, 8), (3, 3), (2, 2), (1, 1))
    case("maxpool_negative_p1", -np.abs(distinct(1, 2, 4, 4)) - np.float32(1), (3, 3), (2, 2),
         (1, 1), note="padding is -inf, not 0: all outputs are negative")
    case("maxpool_asym", distinct(1, 2, 7, 9), (2, 3), (1, 2), (1, 0))
    case("maxpool_d2", distinct(1, 2, 8, 8), (2, 2), (2, 2), (0, 0), (2, 2))
    ties = np.round(v.grid(2, 2, 6, 6) / 2).astype(np.float32)
    case("maxpool_ties", ties, (2, 2), (2, 2),
         note="the first maximum in row-major order gets the gradient")
    case("maxpool_ties_overlap_p1", ties[:1], (3, 3), (2, 2), (1, 1),
         note="the first maximum in row-major order gets the gradient")
    case("maxpool_equal", np.full((1, 1, 4, 4), 0.5, np.float32), (2, 2), (2, 2))
    zeros = np.zeros((1, 1, 2, 4), np.float32)
    zeros[0, 0, 0, 0] = zeros[0, 0, 1, 2] = -0.0
    case("maxpool_zeros", zeros, (2, 2), (2, 2), note="-0 and +0 tie: the first one wins")
    nan = distinct(1, 1, 6, 6)
    nan[0, 0, 0, 1] = nan[0, 0, 3, 3] = NAN
    case("maxpool_nan", nan, (2, 2), (2, 2), note="a NaN is the maximum and gets the gradient")
    nan2 = distinct(1, 1, 2, 4)
    nan2[0, 0, 0, 1] = nan2[0, 0, 1, 0] = nan2[0, 0, 0, 2] = nan2[0, 0, 0, 3] = NAN
    case("maxpool_nan2", nan2, (2, 2), (2, 2),
         note="of several NaNs in a window PyTorch's CPU kernel picks the last")
    infinite = distinct(1, 1, 4, 4)
    infinite[0, 0, :2, :2] = -INF
    infinite[0, 0, 2, 3] = INF
    case("maxpool_inf", infinite, (2, 2), (2, 2),
         note="in a window of -inf the first element gets the gradient")
    case("maxpool_batch0", v.grid(0, 2, 4, 4), (2, 2), (2, 2))


def add_elementwise(v: Vectors) -> None:
    """Relu, binary operators with broadcasting, unary functions."""
    x = v.grid(4, 9, limit=4)
    v.add("relu", "Relu", {"x": x}, F.relu, must_be_exact=True, note="the derivative at 0 is 0")
    tiny = float(np.float32(2.0**-149))
    special = np.array([0.0, -0.0, NAN, INF, -INF, 1.0, -1.0, tiny, -tiny], np.float32)
    v.add("relu_special", "Relu", {"x": special}, F.relu,
          upstream=np.arange(1, 10, dtype=np.float32), must_be_exact=True,
          note="at NaN the output is NaN and the gradient passes")
    v.add("relu_special_dy", "Relu", {"x": np.array([-1, 0, 1, -1, 0, 1], np.float32)}, F.relu,
          upstream=np.array([NAN, NAN, NAN, INF, INF, INF], np.float32), must_be_exact=True,
          note="a selection: a blocked NaN or inf gradient becomes 0")
    v.add("relu_batch0", "Relu", {"x": v.grid(0, 5)}, F.relu, must_be_exact=True)

    shapes = {
        "same": ((2, 3, 4), (2, 3, 4)), "scalar": ((3, 4), ()), "scalar_left": ((), (3, 4)),
        "one": ((3, 4), (1,)), "row": ((3, 4), (4,)), "column": ((3, 4), (3, 1)),
        "outer": ((3, 1), (1, 4)), "n1h1": ((2, 1, 3, 1), (2, 4, 3, 5)),
        "1c11": ((2, 3, 4, 2), (3, 1, 1)), "both": ((4, 1, 3), (2, 1)),
        "scalars": ((), ()), "batch0": ((0, 3), (3,)), "empty_one": ((1, 3), (0, 3))}
    operators = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div}
    for op, function in operators.items():
        for name, (left, right) in shapes.items():
            a, b = v.grid(*left), v.grid(*right)
            if op == "Div":  # powers of two: exact quotients and gradients
                b = (2.0 ** v.random.integers(-2, 3, right)
                     * v.random.choice([-1.0, 1.0], right)).astype(np.float32)
            v.add(f"{op.lower()}_{name}", op, {"a": np.asarray(a), "b": np.asarray(b)}, function,
                  must_be_exact=True)
        v.add(f"{op.lower()}_normal", op, {"a": v.normal(5, 7), "b": v.normal(5, 1)}, function,
              upstream=v.normal(5, 7))
    v.add("div_special", "Div",
          {"a": np.array([1, -1, 0, INF, 1, NAN, 0], np.float32),
           "b": np.array([0, 0, 0, INF, INF, 1, 2], np.float32)}, torch.div,
          upstream=np.ones(7, np.float32))

    everywhere = np.concatenate([
        v.normal(9), np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0], np.float32)])
    v.add("neg", "Neg", {"x": everywhere}, torch.neg, must_be_exact=True)
    v.add("exp", "Exp", {"x": v.normal(20)}, torch.exp)
    large = np.array([88.7, 88.8, 89.0, -87.0, -90.0, -103.0, -104.0, 1e-8], np.float32)
    v.add("exp_special", "Exp", {"x": np.concatenate([everywhere, large])}, torch.exp,
          note="overflows from 88.8 on, subnormal from -87.4 on, 0 from -104 on")
    edges = np.array([1.0, 4.0, 2.0**-126, 2.0**-149, 0.0, -0.0, INF, NAN, -1.0], np.float32)
    for op, function in (("Log", torch.log), ("Sqrt", torch.sqrt)):
        v.add(op.lower(), op, {"x": np.abs(v.normal(20)) + np.float32(0.01)}, function)
        v.add(f"{op.lower()}_special", op, {"x": edges}, function,
              upstream=np.ones(edges.shape, np.float32))


def add_shapes(v: Vectors) -> None:
    """Flatten, Reshape, Transpose."""
    def flatten(axis: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def function(x: torch.Tensor) -> torch.Tensor:
            rows = int(np.prod(x.shape[:axis]))
            return x.reshape(rows, int(np.prod(x.shape[axis:])))
        return function

    for axis in range(5):
        v.add(f"flatten_axis{axis}", "Flatten", {"x": v.grid(2, 3, 2, 2)}, flatten(axis),
              {"axis": axis}, [axis], ["axis"], must_be_exact=True)
    v.add("flatten_batch0", "Flatten", {"x": v.grid(0, 3, 2)}, flatten(1), {"axis": 1}, [1],
          ["axis"], must_be_exact=True)
    for name, start, shape, result in (
            ("reshape", (2, 3, 4), [4, 6], [4, 6]), ("reshape_minus1", (2, 3, 4), [3, -1], [3, 8]),
            ("reshape_zero", (2, 3, 4), [0, -1], [2, 12]), ("reshape_scalar", (1, 1), [], []),
            ("reshape_batch0", (0, 6), [0, 2, 3], [0, 2, 3])):
        v.add(name, "Reshape", {"x": v.grid(*start)},
              lambda x, result=result: x.reshape(result),
              {"shape": shape, "allowzero": 0}, shape, ["shape ..."], must_be_exact=True,
              note="ONNX: 0 copies the input's size, -1 is what is left")
    for name, start, perm in (("transpose_2d", (3, 5), [1, 0]),
                              ("transpose_nhwc", (2, 3, 4, 5), [0, 2, 3, 1]),
                              ("transpose_reverse", (2, 3, 4), [2, 1, 0]),
                              ("transpose_batch0", (0, 3), [1, 0])):
        v.add(name, "Transpose", {"x": v.grid(*start)},
              lambda x, perm=perm: x.permute(perm), {"perm": perm}, perm, ["perm ..."],
              must_be_exact=True)


def add_linear(v: Vectors) -> None:
    """Gemm as Linear (transB = 1) and in its other forms."""
    def linear(x: torch.Tensor, w: torch.Tensor, *b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b[0] if b else None)

    def case(name: str, inputs: Arrays, **more: Any) -> None:
        attributes = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
        v.add(name, "Gemm", inputs, linear, attributes, [0, 1], ["transA", "transB"], **more)

    g = v.grid
    case("linear", {"x": g(5, 7), "w": g(4, 7), "b": g(4)}, must_be_exact=True)
    case("linear_nobias", {"x": g(5, 7), "w": g(4, 7)}, must_be_exact=True)
    case("linear_1x1", {"x": g(1, 1), "w": g(1, 1), "b": g(1)}, must_be_exact=True)
    case("linear_odd", {"x": g(17, 33), "w": g(19, 33), "b": g(19)}, must_be_exact=True)
    case("linear_batch0", {"x": g(0, 3), "w": g(2, 3), "b": g(2)}, must_be_exact=True,
         note="no sample: gradients of w and b are zero")
    case("linear_k0", {"x": g(2, 0), "w": g(3, 0), "b": g(3)}, must_be_exact=True,
         note="an empty sum is 0: y is the bias")
    case("linear_normal", {"x": v.normal(8, 32), "w": v.normal(6, 32), "b": v.normal(6)},
         upstream=v.normal(8, 6))
    special = g(3, 4)
    special[0, 1], special[1, 2] = NAN, INF
    w = g(2, 4)
    w[0, 2], w[1, 2] = 0.0, 1.0
    case("linear_special", {"x": special, "w": w, "b": g(2)}, note="inf * 0 is NaN")
    v.add("gemm_nn", "Gemm", {"a": g(3, 5), "b": g(5, 4), "c": g(3, 1)},
          lambda a, b, c: a @ b + c, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}, [0, 0],
          ["transA", "transB"], must_be_exact=True, note="C is broadcast from [3, 1]")
    v.add("gemm_ta_scaled", "Gemm", {"a": g(5, 3), "b": g(5, 4), "c": g(4)},
          lambda a, b, c: 0.5 * (a.t() @ b) + 2.0 * c,
          {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 0}, [1, 0], ["transA", "transB"],
          must_be_exact=True)
    v.add("matmul", "MatMul", {"a": g(3, 5), "b": g(5, 4)}, torch.matmul, must_be_exact=True)


def add_reductions(v: Vectors) -> None:
    """ReduceSum, ReduceMean, ReduceMax (torch.amax)."""
    def all_axes(x: torch.Tensor, axes: Sequence[int]) -> List[int]:
        return list(axes) if axes else list(range(x.dim()))

    operators: Dict[str, Callable[..., torch.Tensor]] = {
        "ReduceSum": lambda x, axes, keep: x.sum(all_axes(x, axes), keepdim=bool(keep)),
        "ReduceMean": lambda x, axes, keep: x.mean(all_axes(x, axes), keepdim=bool(keep)),
        "ReduceMax": lambda x, axes, keep: x.amax(all_axes(x, axes), keepdim=bool(keep))}

    def case(name: str, op: str, x: np.ndarray, axes: Sequence[int], keep: int,
             **more: Any) -> None:
        v.add(name, op, {"x": x}, lambda x: operators[op](x, axes, keep),
              {"axes": list(axes), "keepdims": keep}, [keep, *axes], ["keepdims", "axes ..."],
              **more)

    forms = {"all": ([], 0), "all_keep": ([], 1), "axis0": ([0], 0), "axis1_keep": ([1], 1),
             "last": ([-1], 0), "axes02": ([0, 2], 0), "axes12_keep": ([1, 2], 1)}
    for op in operators:
        short = op.replace("Reduce", "reduce_").lower()
        for name, (axes, keep) in forms.items():
            # Lengths 2 and 4 keep means exact; distinct values keep maxima unique.
            x = (v.random.permutation(32) / 8 - 2).astype(np.float32).reshape(2, 4, 4)
            case(f"{short}_{name}", op, x, axes, keep, must_be_exact=True)
        case(f"{short}_normal", op, v.normal(6, 35), [1], 0, upstream=v.normal(6))
        special = v.grid(3, 4)
        special[0, 1], special[1, 2] = NAN, INF
        case(f"{short}_special", op, special, [1], 0)
        case(f"{short}_batch0_kept", op, v.grid(0, 3), [1], 0, must_be_exact=True)
    case("reduce_sum_empty", "ReduceSum", v.grid(0, 3), [0], 0, note="an empty sum is 0")
    case("reduce_mean_empty", "ReduceMean", v.grid(0, 3), [0], 0, note="an empty mean is NaN")
    ties = np.array([[1, 3, 3, 2], [5, 5, 5, 5], [0, -1, 0, -2]], np.float32)
    case("reduce_max_ties", "ReduceMax", ties, [1], 0, upstream=np.array([6, 8, 10], np.float32),
         must_be_exact=True, note="amax spreads the gradient evenly over equal maxima")
    case("reduce_max_ties_all", "ReduceMax", ties, [], 0, upstream=np.array(8, np.float32),
         must_be_exact=True, note="amax spreads the gradient evenly over equal maxima")
    case("reduce_max_negative", "ReduceMax", -np.abs(v.grid(3, 4)) - np.float32(1), [1], 0,
         note="ties possible")


def add_losses(v: Vectors) -> None:
    """SoftmaxCrossEntropyLoss (reduction mean), LogSoftmax, Softmax."""
    def case(name: str, x: np.ndarray, labels: Sequence[int], upstream: float = 1.0,
             ignore: int = -100, note: str = "") -> None:
        attributes: Dict[str, Any] = {"reduction": "mean"}
        if ignore != -100:
            attributes["ignore_index"] = ignore
        v.add(name, "SoftmaxCrossEntropyLoss",
              {"x": x, "labels": np.array(labels, dtype=np.int64)},
              lambda x, labels: F.cross_entropy(x, labels, ignore_index=ignore), attributes,
              output="loss", upstream=np.array(upstream, np.float32), note=note)

    def labels(n: int, classes: int) -> List[int]:
        return v.random.integers(0, classes, n).tolist()

    case("sce", v.normal(8, 10), labels(8, 10))
    case("sce_scaled", v.normal(8, 10), labels(8, 10), upstream=1024.0,
         note="an upstream gradient of 1024: a loss scale")
    case("sce_large", v.normal(6, 5) * np.float32(1000), labels(6, 5),
         note="needs the maximum subtracted")
    case("sce_offset", v.normal(6, 5) + np.float32(60000), labels(6, 5))
    case("sce_equal", np.full((4, 10), 3.0, np.float32), labels(4, 10))
    case("sce_saturated", np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200]], np.float32), [0, 1, 0])
    case("sce_one", v.normal(1, 2), [1])
    case("sce_one_class", v.normal(3, 1), [0, 0, 0], note="loss and gradient are 0")
    nan = v.normal(4, 5)
    nan[1, 2] = NAN
    case("sce_nan", nan, [0, 1, 2, 3], note="the row with NaN has a NaN gradient, others do not")
    minus = v.normal(4, 5)
    minus[0, 1] = minus[2, 4] = minus[2, 0] = -INF
    case("sce_minus_inf", minus, [0, 1, 2, 3], note="-inf off the label: probability 0")
    hit = v.normal(3, 4)
    hit[1, 2] = -INF
    case("sce_minus_inf_label", hit, [0, 2, 1], note="-inf on the label: infinite loss")
    dead = v.normal(2, 3)
    dead[0, :] = -INF
    case("sce_all_minus_inf", dead, [0, 1])
    plus = v.normal(2, 3)
    plus[1, 0] = INF
    case("sce_plus_inf", plus, [0, 1])
    case("sce_ignore", v.normal(5, 4), [0, 2, 1, 2, 3], ignore=2,
         note="mean over the samples that are not ignored")
    case("sce_batch0", v.grid(0, 4), [], note="the mean of no samples is NaN")

    for axis in (0, 1):
        v.add(f"log_softmax_axis{axis}", "LogSoftmax", {"x": v.normal(4, 6)},
              lambda x, axis=axis: F.log_softmax(x, axis), {"axis": axis}, [axis], ["axis"])
        v.add(f"softmax_axis{axis}", "Softmax", {"x": v.normal(4, 6)},
              lambda x, axis=axis: F.softmax(x, axis), {"axis": axis}, [axis], ["axis"])
    v.add("log_softmax_large", "LogSoftmax", {"x": v.normal(4, 6) * np.float32(1000)},
          lambda x: F.log_softmax(x, 1), {"axis": 1}, [1], ["axis"])
    special = v.normal(4, 4)
    special[0, 1], special[1, 2], special[3, 0] = NAN, -INF, INF
    special[2, :] = -INF
    v.add("log_softmax_special", "LogSoftmax", {"x": special},
          lambda x: F.log_softmax(x, 1), {"axis": 1}, [1], ["axis"])


def add_normalization(v: Vectors) -> None:
    """BatchNormalization in training and inference; running statistics are no float32 inputs."""
    def case(name: str, x: np.ndarray, training: bool, epsilon: float, note: str = "") -> None:
        channels = x.shape[1]
        mean = v.normal(channels).astype(np.float64)
        var = (0.5 + v.random.random(channels)).astype(np.float32).astype(np.float64)

        def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor,
                     mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
            return F.batch_norm(x, mean.to(x.dtype), var.to(x.dtype), weight, bias,
                                training, 0.1, epsilon)

        v.add(name, "BatchNormalization",
              {"x": x, "weight": v.normal(channels), "bias": v.normal(channels), "mean": mean,
               "var": var}, function,
              {"training_mode": int(training), "epsilon": epsilon, "momentum": 0.9}, note=note)

    case("batch_norm", v.normal(4, 3, 5, 5), True, 1e-5)
    case("batch_norm_far", v.normal(8, 2, 3, 3) + np.float32(100.0), True, 1e-5,
         "mean far from 0: a variance taken as a difference of squares fails here")
    case("batch_norm_narrow", v.normal(2, 4, 3, 3) * np.float32(1e-3), True, 1e-5)
    case("batch_norm_flat", v.normal(16, 5), True, 1e-3)
    case("batch_norm_one_pixel", v.normal(4, 3, 1, 1), True, 1e-5)


def add_slices(v: Vectors) -> None:
    """Slice, Pad, GlobalAveragePool."""
    for name, start, slices, attributes in (
            ("slice_stride", (2, 3, 6, 7), np.s_[:, :, ::2, ::2],
             {"starts": [0, 0], "ends": [6, 7], "axes": [2, 3], "steps": [2, 2]}),
            ("slice_middle", (4, 5), np.s_[1:3, 2:], {"starts": [1, 2], "ends": [3, 99]}),
            ("slice_negative", (4, 5), np.s_[:, -3:-1],
             {"starts": [-3], "ends": [-1], "axes": [-1]}),
            ("slice_empty", (3, 4), np.s_[2:2], {"starts": [2], "ends": [2], "axes": [0]})):
        v.add(name, "Slice", {"x": v.grid(*start)}, lambda x, slices=slices: x[slices],
              attributes, must_be_exact=True)
    for name, start, pads in (("pad_channels", (2, 3, 4, 4), [0, 1, 0, 0, 0, 2, 0, 0]),
                              ("pad_all", (2, 3), [1, 0, 2, 3])):
        rank = len(start)
        torch_pads = [pads[i + side * rank] for i in reversed(range(rank)) for side in (0, 1)]
        v.add(name, "Pad", {"x": v.grid(*start)},
              lambda x, torch_pads=torch_pads: F.pad(x, torch_pads), {"pads": pads},
              must_be_exact=True)
    v.add("global_average_pool", "GlobalAveragePool", {"x": v.grid(2, 3, 4, 8)},
          lambda x: F.adaptive_avg_pool2d(x, 1), must_be_exact=True)
    v.add("global_average_pool_odd", "GlobalAveragePool", {"x": v.normal(2, 3, 7, 5)},
          lambda x: F.adaptive_avg_pool2d(x, 1))


def add_optimizers(v: Vectors) -> None:
    """Five steps of torch.optim.SGD and torch.optim.Adam on given gradients."""
    optimizer_case(v, "sgd", "SGD", lr=0.1)
    optimizer_case(v, "sgd_momentum", "SGD", lr=0.1, momentum=0.9)
    optimizer_case(v, "sgd_weight_decay", "SGD", lr=0.1, weight_decay=0.01)
    optimizer_case(v, "sgd_momentum_weight_decay", "SGD", lr=0.05, momentum=0.9, weight_decay=0.01)
    adam = dict(betas=(0.9, 0.999), eps=1e-8)
    optimizer_case(v, "adam", "Adam", lr=0.001, **adam)
    optimizer_case(v, "adam_weight_decay", "Adam", lr=0.001, **adam, weight_decay=0.01)
    optimizer_case(v, "adam_other", "Adam", lr=0.01, betas=(0.8, 0.95), eps=1e-4)


def add_more_optimizers(v: Vectors) -> None:
    """The same for torch.optim.AdamW and torch.optim.RMSprop."""
    adam = dict(betas=(0.9, 0.999), eps=1e-8)
    optimizer_case(v, "adamw", "AdamW", lr=0.001, **adam, weight_decay=0.01)
    optimizer_case(v, "adamw_strong", "AdamW", lr=0.1, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3)
    optimizer_case(v, "adamw_none", "AdamW", lr=0.001, **adam, weight_decay=0.0)
    optimizer_case(v, "rmsprop", "RMSprop", lr=0.01, alpha=0.99, eps=1e-8)
    optimizer_case(v, "rmsprop_momentum", "RMSprop", lr=0.01, alpha=0.9, eps=1e-6, momentum=0.9,
                   weight_decay=0.01)


OPTIMIZER_NOTES = {
    "SGD": "m = momentum m + (g + weight_decay p), m = g + weight_decay p in the first step; "
           "p = p - lr m; no dampening",
    "Adam": "weight decay is added to the gradient (not AdamW)",
    "AdamW": "p = p (1 - lr weight_decay) before Adam's step",
    "RMSprop": "not centered; v = alpha v + (1 - alpha) g^2, m = momentum m + g / (sqrt(v) + eps)",
}


def optimizer_case(v: Vectors, name: str, op: str, **options: Any) -> None:
    start, grads = v.normal(12), v.normal(5, 12)
    grads[:, 0] = 0.0  # never moved but by weight decay
    grads[1, 1], grads[:, 2] = 0.0, grads[:, 2] * np.float32(1e-6)
    state: Dict[str, str] = {"SGD": {"m": "momentum_buffer"},
                             "Adam": {"m": "exp_avg", "v": "exp_avg_sq"},
                             "AdamW": {"m": "exp_avg", "v": "exp_avg_sq"},
                             "RMSprop": {"m": "momentum_buffer", "v": "square_avg"}}[op]
    arrays: Arrays = {"param0": start, "grads": grads}
    for suffix, dtype in (("", torch.float32), ("64", torch.float64)):
        parameter = torch.from_numpy(start.copy()).to(dtype).requires_grad_(True)
        optimizer = getattr(torch.optim, op)([parameter], **options)
        history: Dict[str, List[np.ndarray]] = {}
        for grad in grads:
            parameter.grad = torch.from_numpy(grad.copy()).to(dtype)
            optimizer.step()
            history.setdefault("params", []).append(parameter.detach().numpy().copy())
            for key, torch_key in state.items():
                value = optimizer.state[parameter].get(torch_key)
                if value is not None:
                    history.setdefault(key, []).append(value.numpy().copy())
        for key, values in history.items():
            arrays[key + suffix] = np.stack(values)
    for key, value in arrays.items():
        v.arrays[f"{name}/{key}"] = value
    outputs = [key for key in arrays if key not in ("param0", "grads")]
    note = f"{op}: {OPTIMIZER_NOTES[op]}"
    v.index.append({
        "case": name, "op": op, "attributes": options, "inputs": ["param0", "grads"],
        "outputs": outputs, "exact": False,
        "error": {key: Vectors._error(arrays[key], arrays[key + "64"])
                  for key in outputs if not key.endswith("64")},
        "note": note + "; PyTorch's CPU kernels may fuse multiply and add"})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent / "vectors",
                        help="folder for the two files (default: vectors beside this script)")
    parser.add_argument("--list", action="store_true", help="print every case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    v = Vectors()
    for add in (add_conv, add_pool, add_elementwise, add_shapes, add_linear, add_reductions,
                add_losses, add_optimizers, add_normalization, add_slices, add_more_optimizers):
        add(v)
    v.write(args.out_dir, "op_gradients", args.list)


if __name__ == "__main__":
    main()
