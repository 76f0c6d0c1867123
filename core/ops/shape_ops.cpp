// SPDX-License-Identifier: MIT
// Operators that move elements and compute nothing: Flatten (attribute axis), Reshape and Expand
// with the target as attribute `shape`, Identity; StopGradient is Identity that no gradient
// passes. As in ONNX, Reshape takes one -1 for what is left, and 0 for the input's own size
// unless allowzero is 1.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_flatten(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const int64_t rank = static_cast<int64_t>(x.size());
  const int64_t given = int_attribute(node, "axis", 1);
  const int64_t axis = given < 0 ? given + rank : given;
  check_node(node, axis >= 0 && axis <= rank, "axis out of range");
  return {{Shape{element_count(Shape(x.begin(), x.begin() + axis)),
                 element_count(Shape(x.begin() + axis, x.end()))}}};
}

std::vector<OutputType> infer_reshape(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const Shape target = ints_attribute(node, "shape");
  const bool zero_copies = int_attribute(node, "allowzero", 0) == 0;
  const std::string text = to_string(x) + " cannot be reshaped to " + to_string(target);
  Shape shape = target;
  int64_t known = 1;
  size_t left = target.size();  // position of the -1
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && zero_copies) {
      check_node(node, i < x.size(), text);
      shape[i] = x[i];
    }
    check_node(node, shape[i] >= 0 || (shape[i] == -1 && left == target.size()), text);
    if (shape[i] == -1) {
      left = i;
    } else {
      known *= shape[i];
    }
  }
  if (left < target.size()) {
    check_node(node, known > 0, text);
    shape[left] = element_count(x) / known;
  }
  check_node(node, element_count(shape) == element_count(x), text);
  return {{shape}};
}

std::vector<OutputType> infer_expand(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  Shape shape = ints_attribute(node, "shape");
  check_node(node, broadcast_shapes(node, graph.value(node.inputs[0]).shape, shape) == shape,
             to_string(graph.value(node.inputs[0]).shape) + " does not expand to " + to_string(shape));
  return {{shape}};
}

std::vector<OutputType> infer_same(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{graph.value(node.inputs[0]).shape}};
}

std::vector<ValueId> reshape_gradient(GradientContext& c) {
  return {c.reshape(c.output_gradient(0), c.input_shape(0))};
}

std::vector<ValueId> expand_gradient(GradientContext& c) {
  return {c.unbroadcast(c.output_gradient(0), c.input_shape(0))};
}

std::vector<ValueId> no_gradient(GradientContext&) { return {kNone}; }

std::vector<ValueId> identity_gradient(GradientContext& c) {
  return {c.add("Identity", {c.output_gradient(0)})};
}

}  // namespace

const std::vector<OpDef>& shape_ops() {
  static const std::vector<OpDef> defs{
      {.name = "Flatten", .domain = "", .infer = infer_flatten, .gradient = reshape_gradient, .selects = true},
      {.name = "Reshape", .domain = "", .infer = infer_reshape, .gradient = reshape_gradient, .selects = true},
      {.name = "Expand", .domain = "", .infer = infer_expand, .gradient = expand_gradient, .selects = true},
      {.name = "Identity", .domain = "", .infer = infer_same, .gradient = identity_gradient, .selects = true},
      {.name = "StopGradient", .domain = "halfscope", .infer = infer_same, .gradient = no_gradient, .selects = true},
  };
  return defs;
}

}  // namespace halfscope::ops
