# SPDX-License-Identifier: MIT
"""More cases of onnx_more_nodes.py, which draws its numbers before: bits of integers, norms of
zeros, sorting, scatter with indices that are computed at run time."""
import numpy as np
import torch
from onnx import TensorProto, helper

node = helper.make_node
i64 = lambda *v: np.array(v, dtype=np.int64)
f32 = lambda *v: np.array(v, dtype=np.float32)


def add_cases(add, op, real, constant):
    for kind, width in (("And", np.int64), ("Or", np.uint8), ("Xor", np.int32)):
        add("bitwise_" + kind.lower(), [node("Bitwise" + kind, ["a", "b"], ["c"], name="bits"),
                                        node("Cast", ["c"], ["y"], to=TensorProto.FLOAT)],
            {"a": (np.arange(12).reshape(3, 4) * 17 % 200).astype(width),
             "b": (np.arange(4) * 51 % 190).astype(width)})
    add("bitwise_known", [constant("a", i64(12, -7, 5)), constant("b", i64(10, 3, -2)),
                          node("BitwiseAnd", ["a", "b"], ["i"]),
                          node("BitwiseOr", ["a", "b"], ["j"]),
                          node("BitwiseXor", ["i", "j"], ["k"]),
                          node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
                          node("Add", ["x", "f"], ["y"])], {"x": real(3)})
    for width in (np.int64, np.int32, np.int16, np.uint8):
        add("bitwise_not_" + width.__name__, [node("BitwiseNot", ["a"], ["b"], name="bits"),
                                              node("Cast", ["b"], ["y"], to=TensorProto.FLOAT)],
            {"a": (np.arange(12).reshape(3, 4) * 17 % 200).astype(width)})
    add("bitwise_not_known", [constant("a", i64(12, -7, 0)),
                              constant("b", np.array([0, 7, 255], np.uint8)),
                              node("BitwiseNot", ["a"], ["i"]), node("BitwiseNot", ["b"], ["j"]),
                              node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
                              node("Cast", ["j"], ["g"], to=TensorProto.FLOAT),
                              node("Sum", ["x", "f", "g"], ["y"])], {"x": real(3)})

    # ---- the norm of zeros has the gradient 0 ----
    zeros = real(3, 4)
    zeros[1] = 0.0
    op("norm_of_zeros", "ReduceL2", {"x": zeros}, {"axes": i64(1)},
       torch_y=lambda t: torch.linalg.vector_norm(t["x"], dim=1, keepdim=True))

    # ---- sorting, and scatter with computed indices ----
    op("largest_sorted", "TopK", {"x": real(3, 70)}, {"k": i64(66)}, outputs=("y", "places"),
       torch_y=lambda t: t["x"].topk(66).values)
    op("largest_of_columns", "TopK", {"x": np.round(real(7, 3))}, {"k": i64(4)},
       outputs=("y", "places"), axis=0)
    for largest in (0, 1):
        op(f"sorted_reals_{largest}", "TopK", {"x": np.round(real(3, 70))}, {"k": i64(70)},
           outputs=("y", "places"), largest=largest)
        op(f"sorted_integers_{largest}", "TopK",
           {"x": i64(5, 2, 7, 1, 0, 3, 3, -6, 1, 1).reshape(2, 5)}, {"k": i64(5)},
           outputs=("y", "places"), largest=largest)
    op("scatter_elements_computed", "ScatterElements",
       {"x": real(3, 4), "at": i64(0, 1, 2, 3, 3, 1).reshape(3, 2), "u": real(3, 2)},
       axis=1, torch_y=lambda t: t["x"].scatter(1, t["at"], t["u"]))
    op("scatter_elements_computed_down", "ScatterElements",
       {"x": real(3, 4), "at": i64(1, 0, -1, 2).reshape(1, 4), "u": real(1, 4)})
    op("scatter_nd_computed_rows", "ScatterND",
       {"x": real(4, 2), "at": i64(3, -4).reshape(2, 1), "u": real(2, 2)},
       torch_y=lambda t: t["x"].index_put((t["at"][:, 0],), t["u"]))
    op("scatter_nd_computed_pairs", "ScatterND",
       {"x": real(2, 3, 2), "at": i64(1, 0, 0, -1).reshape(2, 2), "u": real(2, 2)},
       torch_y=lambda t: t["x"].index_put((t["at"][:, 0], t["at"][:, 1]), t["u"]))
    add("scatter_nd_computed_all", [node("ScatterND", ["x", "at", "u"], ["p"], name="put"),
                                    node("Add", ["p", "x"], ["y"], name="y")],
        {"x": real(3, 2), "at": i64(2, 0, -2).reshape(3, 1), "u": real(3, 2)},
        torch_y=lambda t: t["x"].index_put((t["at"][:, 0],), t["u"]) + t["x"])
    add("scatter_elements_booleans",
        [node("Greater", ["x", "one"], ["b"], name="more"),
         node("ScatterElements", ["b", "at", "u"], ["m"], name="put", axis=1),
         node("Where", ["m", "x", "one"], ["y"], name="y")],
        {"x": real(3, 4), "at": i64(0, 1, 2, 3, 3, 1).reshape(3, 2)},
        known={"one": f32(1).reshape(()), "u": np.array([[1, 0], [1, 1], [0, 1]], dtype=bool)})
    add("scatter_nd_places", [node("ScatterND", ["at", "tuples", "u"], ["p"], name="put"),
                              node("Sub", ["p", "at"], ["y"], name="y")],
        {"at": i64(2, 0, 3, 1), "tuples": i64(2, 0, 3, 1).reshape(4, 1), "u": i64(0, 1, 2, 3)})
