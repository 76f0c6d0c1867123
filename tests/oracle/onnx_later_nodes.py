# SPDX-License-Identifier: MIT
"""More cases of onnx_nodes.py, which draws its numbers before: integers at run time, resizing,
functions."""
import numpy as np
from onnx import AttributeProto, TensorProto, helper

i64 = lambda *v: np.array(v, dtype=np.int64)
f32 = lambda *v: np.array(v, dtype=np.float32)


def add_cases(add, op, real):
    # ---- integers at run time ----
    ids = i64(5, 2, 7, 1, 0, 3, 3, 6, 1, 1, 4, 2).reshape(3, 4)
    table, places = real(8, 6), real(9, 6)
    node = helper.make_node
    scalar = lambda v: np.array(v, dtype=np.int64)


    def integers(name, nodes, inputs=None, outputs=("y",), opset=17, **known):
        add("int_" + name, nodes, inputs or {"ids": ids}, outputs, initializers=known, opset=opset)


    integers("sliced_tokens",
             [node("Slice", ["ids", "from", "to", "axis"], ["s"], name="cut"),
              node("Gather", ["table", "s"], ["y"], name="embed")],
             table=table, to=i64(-1), axis=i64(1), **{"from": i64(0)})
    integers("joined_tokens",
             [node("Expand", ["first", "size"], ["f"], name="starts"),
              node("Concat", ["f", "ids"], ["j"], axis=1, name="joined"),
              node("Transpose", ["j"], ["t"], perm=[1, 0], name="turned"),
              node("Gather", ["table", "t"], ["y"], name="embed")],
             table=table, first=i64(6).reshape(1, 1), size=i64(3, 1))
    integers("positions_of_a_mask",
             [node("Equal", ["ids", "pad"], ["e"], name="is_pad"),
              node("Not", ["e"], ["n"], name="used"),
              node("Cast", ["n"], ["m"], to=TensorProto.INT64, name="mask"),
              node("CumSum", ["m", "axis"], ["c"], name="count"),
              node("Mul", ["c", "m"], ["p"], name="hide"),
              node("Add", ["p", "pad"], ["q"], name="shift"),
              node("Gather", ["places", "q"], ["x"], name="embed"),
              node("Cast", ["n"], ["f"], to=TensorProto.FLOAT, name="weight"),
              node("Unsqueeze", ["f", "last"], ["u"], name="wide"),
              node("Mul", ["x", "u"], ["y"], name="y")],
             pad=scalar(1), axis=scalar(1), last=i64(-1), places=places)
    integers("mask_both_ways",
             [node("Cast", ["mask"], ["f"], to=TensorProto.FLOAT, name="real_mask"),
              node("ReduceSum", ["f", "axis"], ["n"], keepdims=1, name="number"),
              node("ReduceSum", ["mask", "axis"], ["k"], keepdims=1, name="count"),
              node("Sub", ["k", "one"], ["last"], name="last"),
              node("GatherElements", ["x", "last"], ["g"], axis=1, name="pick"),
              node("Add", ["g", "n"], ["y"], name="y")],
             {"x": real(3, 4), "mask": i64(1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1).reshape(3, 4)},
             axis=i64(1), one=scalar(1))
    integers("most_likely_token",
             [node("ArgMax", ["x"], ["a"], axis=-1, keepdims=0, name="most"),
              node("Gather", ["table", "a"], ["y"], name="embed")],
             {"x": real(2, 3, 8)}, table=table)
    integers("end_of_text",
             [node("Cast", ["ids"], ["i"], to=TensorProto.INT32, name="narrow"),
              node("ArgMax", ["i"], ["a"], axis=-1, keepdims=0, name="end"),
              node("Gather", ["places", "a"], ["y"], name="embed")], places=places)
    integers("arithmetic",
             [node("Mul", ["ids", "three"], ["m"], name="times"),
              node("Sub", ["m", "b"], ["s"], name="less"),
              node("Div", ["s", "two"], ["d"], name="half"),
              node("Neg", ["d"], ["n"], name="minus"),
              node("Mod", ["n", "three"], ["r"], name="rest"),
              node("Abs", ["n"], ["a"], name="size"),
              node("Add", ["a", "r"], ["y"], name="y")],
             {"ids": ids, "b": i64(9, -4, 2, 8)}, three=scalar(3), two=scalar(2))
    integers("bounds",
             [node("Clip", ["ids", "low", "high"], ["c"], name="clip"),
              node("Clip", ["b", "", "high"], ["k"], name="below"),
              node("Max", ["c", "k", "low"], ["x"], name="largest"),
              node("Min", ["x", "b"], ["y"], name="least"),
              node("ReduceMax", ["y", "axis"], ["z"], keepdims=0, name="most"),
              node("ReduceMin", ["b"], ["w"], keepdims=1, name="few")],
             {"ids": ids, "b": i64(9, -4, 2, 8)}, ("y", "z", "w"), opset=18, low=scalar(2),
             high=scalar(6), axis=i64(1))
    integers("comparisons",
             [node("Less", ["ids", "b"], ["l"], name="less"),
              node("Equal", ["ids", "three"], ["e"], name="same"),
              node("Xor", ["l", "e"], ["x"], name="either"),
              node("Where", ["x", "ids", "minus"], ["y"], name="pick"),
              node("GreaterOrEqual", ["y", "three"], ["g"], name="high"),
              node("Slice", ["g", "one", "four", "one"], ["h"], name="part"),
              node("Cast", ["h"], ["z"], to=TensorProto.FLOAT, name="z")],
             {"ids": ids, "b": i64(4, 3, 2, 8)}, ("y", "z"), three=scalar(3), minus=scalar(-100),
             one=i64(1), four=i64(4))
    integers("truncated",
             [node("Cast", ["x"], ["i"], to=TensorProto.INT64, name="cut"),
              node("Add", ["i", "b"], ["y"], name="y"),
              node("Cast", ["i"], ["f"], to=TensorProto.FLOAT, name="back"),
              node("Sub", ["x", "f"], ["z"], name="z")],
             {"x": real(3, 4, low=-5, high=5)}, ("y", "z"), b=i64(1, 2, 3, 4))
    integers("moved",
             [node("Split", ["ids", "sizes"], ["a", "b"], axis=1, name="parts"),
              node("Tile", ["a", "twice"], ["t"], name="repeat"),
              node("Pad", ["b", "pads", "seven"], ["p"], name="pad"),
              node("Concat", ["t", "p"], ["c"], axis=1, name="join"),
              node("Flatten", ["c"], ["f"], axis=0, name="line"),
              node("GatherElements", ["f", "last"], ["y"], axis=1, name="y")],
             sizes=i64(1, 3), twice=i64(1, 2), pads=i64(0, 1, 0, 1), seven=scalar(7),
             last=i64(-1, 0, 3).reshape(1, 3))
    integers("table_of_integers",
             [node("Gather", ["buckets", "ids"], ["g"], name="bucket"),
              node("Gather", ["table", "g"], ["y"], name="embed")],
             buckets=i64(7, 6, 5, 0, 1, 2, 3, 4), table=table)
    integers("reversed_count",
             [node("CumSum", ["ids", "axis"], ["y"], exclusive=1, reverse=1, name="count")],
             axis=scalar(-1))

    # ---- resizing: ties of scales that are no fractions of two, in float ----
    for name, size, scale, attributes in [
            ("half_pixel", 28, 38 / 28, {}),
            ("half_pixel_near", 32, 1.3, {}),
            ("half_pixel_further", 37, 2.1, {}),
            ("half_pixel_up", 58, 45 / 58, {"nearest_mode": "round_prefer_ceil"}),
            ("asymmetric_up", 26, 1.2, {"nearest_mode": "round_prefer_ceil",
                                        "coordinate_transformation_mode": "asymmetric"}),
            ("asymmetric_down", 58, 72 / 58, {"coordinate_transformation_mode": "asymmetric"}),
            ("thirds", 57, 1 / 3, {"nearest_mode": "floor",
                                   "coordinate_transformation_mode": "asymmetric"}),
            ("torch_ceil", 30, 0.7, {"nearest_mode": "ceil",
                                     "coordinate_transformation_mode": "pytorch_half_pixel"}),
            ("corners", 25, 0.7, {"coordinate_transformation_mode": "align_corners"}),
            ("of_its_size", 9, 1.1, {"nearest_mode": "floor"})]:
        line = np.arange(size, dtype=np.float32).reshape(1, 1, -1)
        op("resize_ties_" + name, "Resize", {"x": line},
           {"s": f32(1, 1, scale)}, order=["x", "", "s"], opset=13, mode="nearest", **attributes)
    op("resize_ties_sizes", "Resize", {"x": np.arange(28, dtype=np.float32).reshape(1, 1, -1)},
       {"s": i64(1, 1, 38)}, order=["x", "", "", "s"], opset=13, mode="nearest")
    op("resize_ties_one_axis", "Resize", {"x": real(1, 1, 5, 4)}, {"s": f32(1, 1, 1.15, 1.5)},
       order=["x", "", "s"], opset=13, mode="nearest")
    op("resize_ties_linear", "Resize", {"x": real(1, 1, 5, 4)}, {"s": f32(1, 1, 1.15, 1.5)},
       order=["x", "", "s"], opset=13, mode="linear")
    op("resize_10_smaller", "Resize", {"x": np.arange(32, dtype=np.float32).reshape(1, 1, -1)},
       {"s": f32(1, 1, 0.9)}, opset=10, mode="nearest")
    op("upsample_9_ties", "Upsample", {"x": np.arange(30, dtype=np.float32).reshape(1, 1, -1)},
       {"s": f32(1, 1, 1.2)}, opset=9, mode="nearest")

    # ---- functions with defaults of their own ----
    slope = helper.make_attribute("slope", 0.25)
    leak = node("LeakyRelu", ["a"], ["b"], name="leak")
    leak.attribute.append(helper.make_attribute_ref("alpha", AttributeProto.FLOAT))
    leak.attribute[0].ref_attr_name = "slope"
    function = helper.make_function("local", "Leaky", ["a"], ["b"], [leak],
                                    [helper.make_opsetid("", 17)], attribute_protos=[slope])
    add("function_default",
        [node("Leaky", ["x"], ["h"], name="first", domain="local"),
         node("Leaky", ["h"], ["y"], name="second", domain="local", slope=0.5)],
        {"x": real(3, 4)}, opset=17, functions=[function], ir=9)

    # ---- a slice that begins before the first element, downwards ----
    for name, start, end in [("before", -99, -100), ("beyond", 99, -99), ("empty_ends", -6, -9)]:
        op("slice_downwards_" + name, "Slice", {"x": real(5, 2)},
           {"from": i64(start), "to": i64(end), "axis": i64(0), "step": i64(-1)}, opset=13)
