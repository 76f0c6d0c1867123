// SPDX-License-Identifier: MIT
// Operators that compare and select, as in ONNX, with numpy broadcasting. ONNX's booleans are index
// tensors here, nonzero meaning true:
//   Equal, Less, LessOrEqual, Greater, GreaterOrEqual   two real or two index operands
//   And, Or, Not                                        index operands
//   ArgMax       position of the largest element along `axis` (keepdims, select_last_index); a NaN
//                counts as larger than everything
//   ArgSort      positions of the largest elements along `axis`, the largest one first; `count` of
//                them, or all. Equal elements keep their order; a NaN counts as in ArgMax
//   Where(c, x, y)   x where c is true, else y, both real or both indices; an omitted one means
//                    zeros (ours), which the gradient needs
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_compare(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  const Value &a = graph.value(node.inputs[0]), &b = graph.value(node.inputs[1]);
  check_node(node, a.type == b.type, "cannot compare real numbers with indices");
  return {{broadcast_shapes(node, a.shape, b.shape), ElementType::index}};
}

std::vector<OutputType> infer_logic(const Graph& graph, const Node& node) {
  const size_t count = node.op == "Not" ? 1 : 2;
  check_node(node, node.inputs.size() == count,
             count == 1 ? "needs one input" : "needs two inputs");
  Shape shape = graph.value(node.inputs[0]).shape;
  for (size_t i = 0; i < count; ++i) {
    check_index(graph, node, i);
    shape = broadcast_shapes(node, shape, graph.value(node.inputs[i]).shape);
  }
  return {{shape, ElementType::index}};
}

std::vector<OutputType> infer_arg_max(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  Shape shape = graph.value(node.inputs[0]).shape;
  const int64_t axis = axis_attribute(node, shape.size(), 0);
  check_node(node, shape[static_cast<size_t>(axis)] > 0, "the axis has no elements");
  if (int_attribute(node, "keepdims", 1) != 0) {
    shape[static_cast<size_t>(axis)] = 1;
  } else {
    shape.erase(shape.begin() + axis);
  }
  return {{shape, ElementType::index}};
}

std::vector<OutputType> infer_arg_sort(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  Shape shape = graph.value(node.inputs[0]).shape;
  int64_t& size = shape[static_cast<size_t>(axis_attribute(node, shape.size(), -1))];
  const int64_t count = int_attribute(node, "count", size);
  check_node(node, count >= 1 && count <= size, "count is not within the axis");
  size = count;
  return {{shape, ElementType::index}};
}

std::vector<OutputType> infer_where(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 3, "needs three inputs");
  check_node(node, node.inputs[1] != kNone || node.inputs[2] != kNone,
             "has no values to choose from");
  check_index(graph, node, 0);
  Shape shape = graph.value(node.inputs[0]).shape;
  for (size_t i = 1; i < 3; ++i) {
    if (node.inputs[i] == kNone) continue;
    shape = broadcast_shapes(node, shape, graph.value(node.inputs[i]).shape);
  }
  return {{shape, common_type(graph, node, 1)}};
}

std::vector<ValueId> where_gradient(GradientContext& c) {
  const ValueId condition = c.input(0), dy = c.output_gradient(0);
  std::vector<ValueId> result(3, kNone);
  if (c.needed(1)) {
    result[1] = c.unbroadcast(c.add("Where", {condition, dy, kNone}), c.input_shape(1));
  }
  if (c.needed(2)) {
    result[2] = c.unbroadcast(c.add("Where", {condition, kNone, dy}), c.input_shape(2));
  }
  return result;
}

SampleResult keeps_choice(const SampleNode& n) {
  return samples::reduced(n, {axis_attribute(n.node(), n.rank(0), 0)});
}

OpDef choice_def(const char* name, std::vector<OutputType> (*infer)(const Graph&, const Node&),
                 Autocast autocast) {
  return {.name = name,
          .domain = "",
          .infer = infer,
          .autocast = autocast,
          .keeps_samples = samples::broadcast};
}

}  // namespace

const std::vector<OpDef>& choice() {
  static const std::vector<OpDef> defs{
      choice_def("Equal", infer_compare, Autocast::promote),
      choice_def("Less", infer_compare, Autocast::promote),
      choice_def("LessOrEqual", infer_compare, Autocast::promote),
      choice_def("Greater", infer_compare, Autocast::promote),
      choice_def("GreaterOrEqual", infer_compare, Autocast::promote),
      choice_def("And", infer_logic, Autocast::follow),
      choice_def("Or", infer_logic, Autocast::follow),
      choice_def("Not", infer_logic, Autocast::follow),
      {.name = "ArgMax",
       .domain = "",
       .infer = infer_arg_max,
       .autocast = Autocast::follow,
       .keeps_samples = keeps_choice},
      {.name = "ArgSort",
       .domain = "halfscope",
       .infer = infer_arg_sort,
       .autocast = Autocast::follow,
       .keeps_samples = samples::inner_axis<-1>},
      {.name = "Where",
       .domain = "",
       .infer = infer_where,
       .gradient = where_gradient,
       .autocast = Autocast::promote,
       .keeps_samples = samples::broadcast,
       .selects = true,
       .moves = {1, 3}},
  };
  return defs;
}

}  // namespace halfscope::ops
