#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/onnx/files/recurrent_nodes.zip: small ONNX models of LSTM, GRU and RNN and of
operators that select and scatter, with inputs, and what ONNX Runtime computes from them.

    python3 tests/oracle/onnx_recurrent_nodes.py tests/onnx/files/recurrent_nodes.zip

Members are those of onnx_nodes.py. Needs onnx, onnxruntime and numpy. ONNX Runtime has no kernels
for layout = 1: its results come from the same network with layout = 0 between transposes.
"""
import io
import sys
import zipfile

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(11)
cases = {}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def real(*shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype(np.float32)


def ints(*values, dtype=np.int64):
    return np.array(values, dtype=dtype)


def model(nodes, inputs, outputs, initializers, opset):
    elem = lambda array: helper.np_dtype_to_tensor_dtype(array.dtype)
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info(k, elem(v), v.shape) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in initializers.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return made


def computed(made, inputs):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(made.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def add(name, nodes, inputs, outputs=("y",), initializers=(), opset=17):
    nodes = nodes if isinstance(nodes, list) else [nodes]
    made = model(nodes, inputs, outputs, dict(initializers), opset)
    assert name not in cases
    cases[name] = (made, list(inputs.values()), computed(made, inputs))


# ---- recurrent networks ----
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2


def recurrent(name, kind, *, bias=True, state=None, lengths=None, peepholes=False, layout=0,
              outputs="yhc", steps=STEPS, batch=BATCH, opset=17, **attributes):
    """state: "given" as inputs of the network, "known" as initializers, or None. lengths: values,
    known, or with "input" before them as an input."""
    both = attributes.get("direction") == "bidirectional"
    d, g, h = (2 if both else 1), GATES[kind], HIDDEN
    x = real(steps, batch, INPUTS)
    inputs = {"x": x}
    known = {"w": real(d, g * h, INPUTS), "r": real(d, g * h, h)}
    if bias:
        known["b"] = real(d, 2 * g * h)
    if peepholes:
        known["p"] = real(d, 3 * h)
    if lengths is not None:
        (inputs if lengths[0] == "input" else known)["lens"] = np.array(
            [v for v in lengths if v != "input"], dtype=np.int32)
    starts = ["h0", "c0"] if kind == "LSTM" else ["h0"]
    for start in starts if state else []:
        (inputs if state == "given" else known)[start] = real(d, batch, h)
    available = {**inputs, **known}
    names = [n if n in available else "" for n in ["x", "w", "r", "b", "lens", "h0", "c0", "p"]]
    while not names[-1]:
        names.pop()
    letters = [c for c in "yhc" if c != "c" or kind == "LSTM"]
    results = [c if c in outputs else "" for c in letters]
    while not results[-1]:
        results.pop()
    made_outputs = [c for c in results if c]
    node = helper.make_node(kind, names, results, name="cell", hidden_size=h, **attributes)
    made = model([node], inputs, made_outputs, known, opset)
    expected = computed(made, inputs)
    if layout == 1:
        swap = lambda a: np.ascontiguousarray(np.swapaxes(a, 0, 1))
        node = helper.make_node(kind, names, results, name="cell", hidden_size=h, layout=1,
                                **attributes)
        move = lambda k, v: swap(v) if k in ("x", "h0", "c0") else v
        inputs = {k: move(k, v) for k, v in inputs.items()}
        known = {k: move(k, v) for k, v in known.items()}
        expected = [np.ascontiguousarray(e.transpose(2, 0, 1, 3)) if c == "y" else swap(e)
                    for c, e in zip(made_outputs, expected)]
        made = model([node], inputs, made_outputs, known, opset)
    assert name not in cases
    cases[name] = (made, list(inputs.values()), expected)


DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
for kind in GATES:
    low = kind.lower()
    recurrent(low, kind)
    recurrent(low + "_opset_8", kind, opset=8, bias=False)
    recurrent(low + "_reverse", kind, direction="reverse", state="given")
    recurrent(low + "_bidirectional", kind, direction="bidirectional", state="known")
    recurrent(low + "_last_state", kind, outputs="h", direction="bidirectional")
    recurrent(low + "_sequence", kind, outputs="y", state="known")
    recurrent(low + "_one_step", kind, steps=1)
    recurrent(low + "_one_step_both", kind, steps=1, direction="bidirectional", state="given")
    recurrent(low + "_one_sample", kind, batch=1, state="given")
    recurrent(low + "_batch_first", kind, layout=1, direction="bidirectional", state="given")
    recurrent(low + "_batch_first_forward", kind, layout=1)
    recurrent(low + "_all_lengths", kind, lengths=[STEPS] * BATCH)
    recurrent(low + "_lengths", kind, lengths=[2, 5, 3], direction="bidirectional", state="known")
    recurrent(low + "_lengths_input", kind, lengths=["input", 4, 1, 5], direction="reverse")
    recurrent(low + "_clip", kind, clip=0.3, state="known")
    recurrent(low + "_two_activations", kind, direction="bidirectional",
              activations=DEFAULTS[kind] + ["HardSigmoid", "Elu", "Softsign"][:len(DEFAULTS[kind])],
              activation_alpha=[0.3, 0.6], activation_beta=[0.4])
recurrent("lstm_states_only", "LSTM", outputs="hc", state="given")
recurrent("lstm_peepholes", "LSTM", peepholes=True)
recurrent("lstm_peepholes_all", "LSTM", peepholes=True, direction="bidirectional", state="given",
          clip=0.8)
recurrent("lstm_input_forget", "LSTM", input_forget=1, state="known")
recurrent("gru_linear", "GRU", linear_before_reset=1)
recurrent("gru_linear_without_bias", "GRU", linear_before_reset=1, bias=False)
recurrent("gru_linear_both", "GRU", linear_before_reset=1, direction="bidirectional", state="given",
          clip=0.5)
recurrent("gru_linear_batch_first", "GRU", linear_before_reset=1, layout=1, state="known",
          direction="reverse")
for function in ["Relu", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus", "Sigmoid"]:
    recurrent("rnn_" + function.lower(), "RNN", activations=[function], state="known")
for function, alpha, beta in [("Affine", 0.7, 0.1), ("LeakyRelu", 0.2, None),
                              ("ThresholdedRelu", 0.3, None), ("ScaledTanh", 1.3, 0.8),
                              ("HardSigmoid", 0.3, 0.4), ("Elu", 0.5, None)]:
    factors = {"activation_alpha": [alpha]}
    if beta is not None:
        factors["activation_beta"] = [beta]
    recurrent("rnn_" + function.lower() + "_factors", "RNN", activations=[function], **factors)

# Exporters write this for an open batch: the initial state from the shape of the input.
x = real(4, 3, 5)
add("lstm_computed_zeros",
    [helper.make_node("Shape", ["x"], ["s"]),
     helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
     helper.make_node("Unsqueeze", ["n", "zero"], ["u"]),
     helper.make_node("Concat", ["one_list", "u", "two"], ["to"], axis=0),
     helper.make_node("ConstantOfShape", ["to"], ["z"]),
     helper.make_node("LSTM", ["x", "w", "r", "b", "", "z", "z"], ["y"], name="cell",
                      hidden_size=2)],
    {"x": x}, initializers={"one": np.array(1), "zero": ints(0), "one_list": ints(1),
                            "two": ints(2), "w": real(1, 8, 5), "r": real(1, 8, 2),
                            "b": real(1, 16)})
add("gru_learned_start",
    [helper.make_node("Expand", ["start", "to"], ["h0"], name="start"),
     helper.make_node("GRU", ["x", "w", "r", "b", "", "h0"], ["y", "h"], name="cell",
                      hidden_size=2, linear_before_reset=1)],
    {"x": x}, ("y", "h"), {"start": real(1, 1, 2), "to": ints(1, 3, 2), "w": real(1, 6, 5),
                           "r": real(1, 6, 2), "b": real(1, 12)})

# ---- tuples of indices ----
x = real(3, 4, 5)


def gather_nd(name, x, indices, known=True, **attributes):
    node = helper.make_node("GatherND", ["x", "i"], ["y"], name="pick", **attributes)
    if known:
        add("gather_nd_" + name, node, {"x": x}, initializers={"i": indices})
    else:
        add("gather_nd_" + name, node, {"x": x, "i": indices})


pairs = ints([0, 1], [2, -1], [-3, 0])
gather_nd("pairs", x, pairs)
gather_nd("pairs_input", x, pairs, known=False)
gather_nd("rows", x, ints([2], [-1], [0]))
gather_nd("rows_input", x, ints([2], [-1], [0]), known=False)
gather_nd("elements", x, ints([[0, 1, 2], [2, -1, -5]], [[1, 1, 1], [-3, 3, 4]]))
gather_nd("elements_input", x, ints([[0, 1, 2], [2, -1, -5]], [[1, 1, 1], [-3, 3, 4]]),
          known=False)
gather_nd("batch", x, ints([[1], [3]], [[-1], [0]], [[2], [2]]), batch_dims=1)
gather_nd("batch_input", x, ints([[1], [3]], [[-1], [0]], [[2], [2]]), known=False, batch_dims=1)
gather_nd("batch_pairs_input", x, ints([[1, 4]], [[-1, 0]], [[2, -2]]), known=False, batch_dims=1)
gather_nd("two_batches_input", x, rng.integers(-5, 5, (3, 4, 2, 1)), known=False, batch_dims=2)
add("gather_nd_of_integers",
    [helper.make_node("GatherND", ["n", "i"], ["g"], name="pick"),
     helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT, name="y")],
    {"n": ints([5, 6, 7], [8, 9, 10]), "i": ints([0, 1], [-1, -1])})
add("gather_nd_folded",
    [helper.make_node("GatherND", ["k", "i"], ["g"], name="pick", batch_dims=1),
     helper.make_node("GatherElements", ["k", "e"], ["h"], name="each", axis=1),
     helper.make_node("ScatterND", ["k", "s", "g2"], ["j"], name="put"),
     helper.make_node("ScatterElements", ["j", "e", "h"], ["l"], name="more", axis=1,
                      reduction="add"),
     helper.make_node("Gather", ["x", "l"], ["y"], axis=1, name="y"),
     helper.make_node("Gather", ["x", "g"], ["z"], axis=1, name="z")],
    {"x": real(2, 30)}, ("y", "z"), opset=18,
    initializers={"k": ints([1, 2, 3], [0, 3, 1]), "i": ints([[1], [-1]], [[0], [2]]),
                  "e": ints([2, 2], [-3, 1]), "s": ints([1]).reshape(1, 1),
                  "g2": ints([4, 5, 6])})

# ---- scattering by known indices ----


def scatter(name, kind, x, indices, updates, opset=18, **attributes):
    add(name, helper.make_node(kind, ["x", "i", "u"], ["y"], name="put", **attributes),
        {"x": x, "u": updates}, initializers={"i": indices}, opset=opset)


scatter("scatter_nd_rows", "ScatterND", x, ints([2], [0]), real(2, 4, 5))
scatter("scatter_nd_pairs", "ScatterND", x, pairs, real(3, 5))
scatter("scatter_nd_elements", "ScatterND", x, ints([[0, 1, 2]], [[-1, -1, -1]]), real(2, 1))
for name, order in [("all_rows", ints([2], [0], [1])), ("in_order", ints([0], [1], [2]))]:
    add("scatter_nd_" + name, helper.make_node("ScatterND", ["k", "i", "u"], ["y"], name="put"),
        {"u": real(3, 4, 5)}, initializers={"k": np.zeros((3, 4, 5), np.float32), "i": order})
for how in ["add", "mul", "max", "min"]:
    twice = ints([1], [0], [1], [1])
    scatter("scatter_nd_" + how, "ScatterND", x, twice, real(4, 4, 5), reduction=how)
    scatter("scatter_elements_" + how, "ScatterElements", x,
            rng.integers(-4, 4, (3, 3, 5)), real(3, 3, 5), reduction=how, axis=1)
scatter("scatter_elements", "ScatterElements", x, ints([[3, 1]], [[-3, -1]]), real(2, 1, 2), axis=2)
scatter("scatter_elements_11", "ScatterElements", x, ints([[2, 0]]), real(1, 1, 2), opset=11)
scatter("scatter_9", "Scatter", x, ints([[2, 0]]), real(1, 1, 2), opset=9)
add("scatter_nd_into_constant",
    helper.make_node("ScatterND", ["zeros", "i", "u"], ["y"], name="put"), {"u": real(2, 3)},
    initializers={"zeros": np.zeros((4, 3), np.float32), "i": ints([3], [1])})
add("scatter_nd_integers",
    [helper.make_node("ScatterND", ["n", "i", "u"], ["g"], name="put"),
     helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT, name="y")],
    {"n": ints([5, 6, 7], [8, 9, 10])}, initializers={"i": ints([0, 1], [-1, -1]),
                                                      "u": ints(100, 200)})

# ---- sums scattered by computed indices ----
for name, kind, updates, indices, attributes in [
        ("nd_rows", "ScatterND", real(4, 5), ints([1], [-2], [1], [0]), {}),
        ("nd_pairs", "ScatterND", real(3), ints([0, 1], [-1, -1], [0, 1]), {}),
        ("elements", "ScatterElements", real(2, 5), rng.integers(-3, 3, (2, 5)), {"axis": 0}),
        ("elements_inner", "ScatterElements", real(3, 7), rng.integers(-5, 5, (3, 7)),
         {"axis": -1})]:
    node = helper.make_node(kind, ["x", "i", "u"], ["y"], name="put", reduction="add", **attributes)
    add("scatter_sums_" + name, node, {"x": real(3, 5), "i": indices, "u": updates}, opset=18)
    add("scatter_sums_into_zeros_" + name,
        [helper.make_node("ConstantOfShape", ["shape"], ["x"]), node],
        {"i": indices, "u": updates}, opset=18, initializers={"shape": ints(3, 5)})

# ---- loops whose number of turns is known, and lists of tensors ----


def body(nodes, inputs, outputs, initializers=()):
    """inputs, outputs: {name: (type, shape)}"""
    info = lambda table: [helper.make_tensor_value_info(k, *v) for k, v in table.items()]
    return helper.make_graph(nodes, "body", info(inputs), info(outputs),
                             [numpy_helper.from_array(v, k) for k, v in dict(initializers).items()])


REAL, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
turn = {"i": (INT, []), "going": (BOOL, [])}
weights = {"w": real(4, 4), "three": np.array(3), "yes": np.array(True)}
add("loop_recurrence",
    [helper.make_node("Loop", ["three", "", "h0"], ["h", "all", "square"], name="loop", body=body(
        [helper.make_node("MatMul", ["h_in", "w"], ["p"], name="product"),
         helper.make_node("Add", ["p", "inner"], ["q"], name="shift"),
         helper.make_node("Add", ["q", "x"], ["s"], name="sum"),
         helper.make_node("Tanh", ["s"], ["h_out"], name="tanh"),
         helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(real(4))),
         helper.make_node("Mul", ["h_out", "c"], ["m"], name="scaled"),
         helper.make_node("Identity", ["going"], ["go"]),
         helper.make_node("Mul", ["i", "i"], ["ii"])],
        {**turn, "h_in": (REAL, [2, 4])},
        {"go": (BOOL, []), "h_out": (REAL, [2, 4]), "m": (REAL, [2, 4]), "ii": (INT, [])},
        {"inner": real(4)})),
     helper.make_node("Cast", ["square"], ["f"], to=REAL, name="f"),
     helper.make_node("Reshape", ["f", "column"], ["fc"], name="fc"),
     helper.make_node("Mul", ["all", "fc"], ["y"], name="y")],
    {"x": real(2, 4), "h0": real(2, 4)}, ("h", "y"),
    {**weights, "column": ints(3, 1, 1)})
add("loop_until",
    [helper.make_node("Loop", ["", "yes", "n", "x"], ["n_last", "y"], name="loop", body=body(
        [helper.make_node("Add", ["n_in", "one"], ["n_out"]),
         helper.make_node("Less", ["n_out", "three"], ["go"]),
         helper.make_node("Mul", ["x_in", "x_in"], ["x_out"], name="square")],
        {**turn, "n_in": (INT, []), "x_in": (REAL, [2, 4])},
        {"go": (BOOL, []), "n_out": (INT, []), "x_out": (REAL, [2, 4])}))],
    {"x": real(2, 4)}, initializers={"yes": np.array(True), "n": np.array(0), "one": np.array(1),
                                     "three": np.array(3)})
add("loop_no_turns",
    [helper.make_node("Loop", ["none", "", "x"], ["h"], name="loop", body=body(
        [helper.make_node("Neg", ["x_in"], ["x_out"]), helper.make_node("Identity", ["going"], ["go"])],
        {**turn, "x_in": (REAL, [2, 4])}, {"go": (BOOL, []), "x_out": (REAL, [2, 4])})),
     helper.make_node("Neg", ["h"], ["y"], name="y")],
    {"x": real(2, 4)}, initializers={"none": np.array(0)})
add("loop_of_slices",
    [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
     helper.make_node("Loop", ["n", "yes"], ["y"], name="loop", body=body(
         [helper.make_node("Gather", ["x", "i"], ["row"], name="row"),
          helper.make_node("ReduceMean", ["row"], ["mean"], axes=[0], keepdims=0, name="mean"),
          helper.make_node("Cast", ["yes"], ["go"], to=BOOL)],
         turn, {"go": (BOOL, []), "mean": (REAL, [4])}))],
    {"x": real(3, 2, 4)}, initializers={"zero": np.array(0), "yes": np.array(True)})
cell = body([helper.make_node("MatMul", ["h_in", "w"], ["p"], name="product"),
             helper.make_node("Add", ["p", "x_in"], ["s"], name="sum"),
             helper.make_node("Tanh", ["s"], ["h_out"], name="tanh"),
             helper.make_node("Mul", ["h_out", "k_in"], ["y_out"], name="scaled")],
            {"h_in": (REAL, [2, 4]), "x_in": (REAL, [2, 4]), "k_in": (REAL, [4])},
            {"h_out": (REAL, [2, 4]), "y_out": (REAL, [2, 4])})
add("scan", helper.make_node("Scan", ["h0", "x", "k"], ["h", "y"], name="scan", body=cell,
                             num_scan_inputs=2),
    {"h0": real(2, 4), "x": real(5, 2, 4)}, ("h", "y"), {"w": real(4, 4), "k": real(5, 4)})
add("scan_axes", helper.make_node("Scan", ["h0", "x", "k"], ["h", "y"], name="scan", body=cell,
                                  num_scan_inputs=2, scan_input_axes=[1, -1],
                                  scan_input_directions=[1, 0], scan_output_axes=[2],
                                  scan_output_directions=[1]),
    {"h0": real(2, 4), "x": real(2, 5, 4)}, ("h", "y"), {"w": real(4, 4), "k": real(4, 5)})
add("list_of_parts",
    [helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1, keepdims=0, name="parts"),
     helper.make_node("SequenceAt", ["parts", "last"], ["a"]),
     helper.make_node("SequenceInsert", ["parts", "a", "zero"], ["more"]),
     helper.make_node("SequenceLength", ["more"], ["n"]),
     helper.make_node("Gather", ["scales", "n"], ["scale"], name="scale"),
     helper.make_node("ConcatFromSequence", ["more"], ["stack"], axis=1, new_axis=1, name="stack"),
     helper.make_node("Mul", ["stack", "scale"], ["y"], name="y")],
    {"x": real(2, 3, 4), "scales": real(6)}, initializers={"last": np.array(-1),
                                                          "zero": np.array(0)})
add("list_from_loop",
    [helper.make_node("SequenceEmpty", [], ["empty"]),
     helper.make_node("Loop", ["three", "", "empty"], ["list"], name="loop", body=helper.make_graph(
         [helper.make_node("Gather", ["x", "i"], ["row"], name="row"),
          helper.make_node("CastLike", ["i", "row"], ["f"], name="f"),
          helper.make_node("Mul", ["row", "f"], ["m"], name="scaled"),
          helper.make_node("SequenceInsert", ["list_in", "m"], ["list_out"]),
          helper.make_node("Identity", ["going"], ["go"])],
         "body", [helper.make_tensor_value_info("i", INT, []),
                  helper.make_tensor_value_info("going", BOOL, []),
                  helper.make_tensor_sequence_value_info("list_in", REAL, None)],
         [helper.make_tensor_value_info("go", BOOL, []),
          helper.make_tensor_sequence_value_info("list_out", REAL, None)])),
     helper.make_node("ConcatFromSequence", ["list"], ["y"], axis=0, name="y")],
    {"x": real(3, 2, 4)}, initializers={"three": np.array(3)})

with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
    def put(name, content):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, content)

    for name, (made, inputs, results) in sorted(cases.items()):
        put(name + ".onnx", made.SerializeToString())
        for what, arrays in [("in", inputs), ("out", results)]:
            for i, array in enumerate(arrays):
                buffer = io.BytesIO()
                np.save(buffer, np.asarray(array))
                put(f"{name}.{what}{i}.npy", buffer.getvalue())
print(len(cases), "cases")
