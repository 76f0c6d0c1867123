# SPDX-License-Identifier: MIT
"""PyTorch's answers for operators that move, choose, multiply and pool, as test vectors.

    structure_ops.py [--out vectors/structure_ops.json]

One JSON file of cases as op_gradients.py has them, tensors included: {"shape": ..., "data": ...}.
Index tensors are inputs whose names begin with "at" or "if"; results that are indices are given as
numbers and have no gradients.
"""
import argparse
import json
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from op_gradients import Vectors


def indices(values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def add_moves(v: Vectors) -> None:
    def exact(case: str, op: str, inputs: Dict[str, np.ndarray], function: Callable[..., Any],
              **attributes: Any) -> None:
        v.add(case, op, inputs, function, attributes, must_be_exact=True)

    g = v.grid
    exact("transpose", "Transpose", {"x": g(2, 3, 4, 5)}, lambda x: x.permute(2, 0, 3, 1),
          perm=[2, 0, 3, 1])
    exact("concat", "Concat", {"a": g(2, 3, 2), "b": g(2, 1, 2), "c": g(2, 4, 2)},
          lambda *x: torch.cat(x, 1), axis=1)
    exact("slice_backwards", "Slice", {"x": g(5, 7)},
          lambda x: torch.flip(x, [0, 1])[1:4, ::3], starts=[-2, 99], ends=[0, -99],
          axes=[0, 1], steps=[-1, -3])
    exact("pad_negative", "Pad", {"x": g(3, 4, 5)},
          lambda x: F.pad(x, (2, -1, -1, 0, 0, 3), value=0.5),
          pads=[0, -1, 2, 3, 0, -1], value=0.5)
    table = g(6, 4)
    exact("gather_rows", "Gather", {"x": table, "at": indices([[1, 5, 1], [0, 1, 3]])},
          lambda x, at: x[at])
    exact("gather_axis1", "Gather", {"x": g(2, 5, 3), "at": indices([-1, 0, 2, -1])},
          lambda x, at: x[:, at], axis=1)
    exact("gather_scalar", "Gather", {"x": g(3, 4), "at": indices(2)}, lambda x, at: x[:, at],
          axis=-1)
    exact("gather_elements", "GatherElements",
          {"x": g(3, 4, 2), "at": indices([[[1], [0]], [[3], [3]]])},
          lambda x, at: torch.gather(x, 1, at), axis=1)
    exact("where", "Where", {"if": indices([[1], [0]]), "x": g(2, 3), "z": g(3)},
          lambda c, x, z: torch.where(c != 0, x, z))
    for reverse in (0, 1):
        for exclusive in (0, 1):
            def running(x: torch.Tensor, reverse: int = reverse,
                        exclusive: int = exclusive) -> torch.Tensor:
                x = torch.flip(x, [1]) if reverse else x
                y = torch.cumsum(x, 1)
                y = y - x if exclusive else y
                return torch.flip(y, [1]) if reverse else y
            exact(f"cumsum_{reverse}{exclusive}", "CumSum", {"x": g(3, 9, 2)}, running, axis=1,
                  reverse=reverse, exclusive=exclusive)
    ties = np.round(g(3, 5, 2) / 2).astype(np.float32)
    v.add("reduce_min", "ReduceMin", {"x": ties}, lambda x: torch.amin(x, (1,)),
          {"axes": [1], "keepdims": 0})
    v.add("reduce_min_keep", "ReduceMin", {"x": g(3, 5, 2)}, lambda x: torch.amin(x, (0, 2), True),
          {"axes": [0, 2], "keepdims": 1}, must_be_exact=True)


def add_products(v: Vectors) -> None:
    g = v.grid
    shapes = [((3, 4), (4, 2)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 2)), ((4,), (4,)),
              ((4,), (4, 3)), ((3, 4), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)),
              ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 4, 2)), ((2, 3, 4), (1, 4, 2))]
    for i, (a, b) in enumerate(shapes):
        v.add(f"matmul_{i}", "MatMul", {"a": g(*a), "b": g(*b)}, torch.matmul, must_be_exact=True)
    v.add("matmul_normal", "MatMul", {"a": v.normal(2, 3, 17), "b": v.normal(17, 5)}, torch.matmul)
    for i, c in enumerate([(3, 5), (3, 1), (1, 5), (5,), (1,), ()]):
        v.add(f"gemm_{i}", "Gemm", {"a": g(4, 3), "b": g(5, 4), "c": np.asarray(g(*c))},
              lambda a, b, c: 0.5 * (a.T @ b.T) + 2.0 * c,
              {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}, must_be_exact=True)

    def conv(case: str, x: Sequence[int], w: Sequence[int], group: int, bias: bool,
             stride: int = 1, pad: int = 0, dilation: int = 1) -> None:
        inputs = {"x": g(*x), "w": g(*w)}
        if bias:
            inputs["b"] = g(w[0])

        def function(x: torch.Tensor, w: torch.Tensor, *b: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x, w, b[0] if b else None, stride, pad, dilation, group)
        v.add(case, "Conv", inputs, function,
              {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2,
               "group": group}, must_be_exact=True)

    conv("conv_groups", (2, 6, 5, 6), (4, 3, 3, 3), 2, True, pad=1)
    conv("conv_depthwise", (2, 5, 8, 7), (5, 1, 3, 3), 5, True, pad=1)
    conv("conv_depthwise_s2", (1, 4, 9, 8), (4, 1, 3, 3), 4, False, stride=2, pad=1)
    conv("conv_multiplier_d2", (2, 3, 9, 9), (6, 1, 3, 3), 3, True, dilation=2, pad=2)
    conv("conv_groups_s3", (1, 8, 11, 10), (12, 2, 5, 5), 4, True, stride=3, pad=2)


def add_pools(v: Vectors) -> None:
    def case(name: str, op: str, x: np.ndarray, kernel: Sequence[int], stride: Sequence[int],
             pad: Sequence[int], ceil: int, dilation: Optional[Sequence[int]] = None,
             counts: int = 0) -> None:
        attributes: Dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(stride),
                                      "pads": list(pad) * 2, "ceil_mode": ceil}
        if op == "MaxPool":
            attributes["dilations"] = list(dilation or (1, 1))

            def function(x: torch.Tensor) -> torch.Tensor:
                return F.max_pool2d(x, tuple(kernel), tuple(stride), tuple(pad),
                                    tuple(dilation or (1, 1)), bool(ceil))
        else:
            attributes["count_include_pad"] = counts

            def function(x: torch.Tensor) -> torch.Tensor:
                return F.avg_pool2d(x, tuple(kernel), tuple(stride), tuple(pad), bool(ceil),
                                    bool(counts))
        v.add(name, op, {"x": x}, function, attributes)

    g = v.grid
    for ceil in (0, 1):
        case(f"maxpool_d2_ceil{ceil}", "MaxPool", v.normal(2, 2, 10, 11), (2, 3), (3, 2), (1, 1),
             ceil, (2, 1))
        case(f"maxpool_ceil{ceil}", "MaxPool", v.normal(1, 3, 8, 7), (3, 3), (2, 2), (1, 0), ceil)
        for counts in (0, 1):
            case(f"avgpool_ceil{ceil}_counts{counts}", "AveragePool", g(2, 3, 8, 9), (3, 2), (2, 3),
                 (1, 1), ceil, counts=counts)
            case(f"avgpool_k2s3_ceil{ceil}_counts{counts}", "AveragePool", g(1, 2, 7, 8), (2, 2),
                 (3, 3), (1, 1), ceil, counts=counts)
    case("avgpool_2x2", "AveragePool", g(2, 3, 6, 8), (2, 2), (2, 2), (0, 0), 0)
    case("avgpool_overlap", "AveragePool", v.normal(2, 2, 7, 7), (3, 3), (1, 1), (1, 1), 0,
         counts=1)


def index_results(v: Vectors) -> list:
    """Cases without gradients."""
    cases = []

    def case(name: str, op: str, inputs: Dict[str, np.ndarray], y: torch.Tensor,
             **attributes: Any) -> None:
        cases.append({"case": name, "op": op, "attributes": attributes, "inputs": list(inputs),
                      "tensors": {**inputs, "y": y.to(torch.int64).numpy()}})

    x = np.round(v.grid(3, 5, 2)).astype(np.float32)
    x[1, 2, 1] = np.nan
    t = torch.from_numpy(x)
    case("argmax_last_axis", "ArgMax", {"x": x}, torch.argmax(t, 2), axis=-1, keepdims=0)
    case("argmax_keep", "ArgMax", {"x": x}, torch.argmax(t, 1, keepdim=True), axis=1)
    flipped = torch.flip(t, [1])
    case("argmax_last", "ArgMax", {"x": x}, 4 - torch.argmax(flipped, 1), axis=1, keepdims=0,
         select_last_index=1)
    a, b = np.round(v.grid(2, 3)).astype(np.float32), np.round(v.grid(3)).astype(np.float32)
    a[0, :] = b
    b[2] = np.nan
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    for op, function in (("Equal", torch.eq), ("Less", torch.lt), ("LessOrEqual", torch.le),
                         ("Greater", torch.gt), ("GreaterOrEqual", torch.ge)):
        case(op.lower(), op, {"a": a, "b": b}, function(ta, tb))
    p, q = indices([[0, 1, 2], [0, -1, 0]]), indices([0, 1, 0])
    tp, tq = torch.from_numpy(p), torch.from_numpy(q)
    case("equal_indices", "Equal", {"at_a": p, "at_b": q}, torch.eq(tp, tq))
    case("and", "And", {"if_a": p, "if_b": q}, torch.logical_and(tp, tq))
    case("or", "Or", {"if_a": p, "if_b": q}, torch.logical_or(tp, tq))
    case("not", "Not", {"if": p}, torch.logical_not(tp))
    return cases


def add_transposed(v: Vectors) -> None:
    """Transposed convolutions, which are ours as ConvGradInput with the shape of the result."""
    def case(name: str, x: Sequence[int], w: Sequence[int], group: int = 1, stride: int = 1,
             pad: int = 0, dilation: int = 1, extra: int = 0) -> None:
        def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.conv_transpose2d(x, w, None, stride, pad, extra, group, dilation)
        inputs = {"x": v.grid(*x), "w": v.grid(*w)}
        shape = function(*(torch.from_numpy(a) for a in inputs.values())).shape
        v.add(name, "ConvGradInput", inputs, function,
              {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2,
               "group": group, "shape": list(shape)}, must_be_exact=True)

    case("transposed", (2, 3, 4, 5), (3, 4, 3, 3))
    case("transposed_s2", (2, 3, 4, 5), (3, 4, 3, 3), stride=2, pad=1, extra=1)
    case("transposed_groups", (2, 6, 3, 4), (6, 2, 4, 4), group=3, stride=2, pad=1)
    case("transposed_d3_padded", (1, 2, 4, 3), (2, 3, 2, 2), stride=2, dilation=3, extra=1)


def tensor(value: np.ndarray) -> Dict[str, Any]:
    data = [None if isinstance(x, float) and np.isnan(x) else x for x in value.ravel().tolist()]
    return {"shape": list(value.shape), "data": data}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parent / "vectors" / "structure_ops.json"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    v = Vectors()
    add_moves(v)
    add_products(v)
    add_pools(v)

    def with_tensors(entry: Dict[str, Any]) -> Dict[str, Any]:
        prefix = entry["case"] + "/"
        tensors = {k[len(prefix):]: a for k, a in v.arrays.items() if k.startswith(prefix)}
        return {**entry, "tensors": tensors}
    cases = [with_tensors(entry) for entry in v.index] + index_results(v)
    before = len(v.index)
    add_transposed(v)
    cases += [with_tensors(entry) for entry in v.index[before:]]
    for each in cases:
        each["tensors"] = {name: tensor(value) for name, value in each["tensors"].items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(each, sort_keys=True) for each in cases)
    out.write_text('{"cases": [\n' + lines + "\n]}\n")
    print(f"{len(cases)} cases in {out.name}")


if __name__ == "__main__":
    main()
