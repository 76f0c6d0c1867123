// SPDX-License-Identifier: MIT
// Operators that move elements and compute nothing: Flatten (axis 1), Reshape and Expand with the
// target as attribute `shape`, Identity; StopGradient is Identity that no gradient passes.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_flatten(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  check_node(node, !x.empty(), "needs at least one dimension");
  int64_t rest = 1;
  for (size_t i = 1; i < x.size(); ++i) rest *= x[i];
  return {{Shape{x[0], rest}}};
}

std::vector<OutputType> infer_reshape(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  Shape shape = ints_attribute(node, "shape");
  check_node(node, element_count(shape) == element_count(x),
             to_string(x) + " cannot be reshaped to " + to_string(shape));
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
  return {c.add("Reshape", {c.output_gradient(0)}, {{"shape", c.input_shape(0)}})};
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
