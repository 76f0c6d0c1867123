// SPDX-License-Identifier: MIT
// ReduceSum, ReduceMean, ReduceMax over attribute axes (empty: all), keepdims as in ONNX.
// The gradient of ReduceMax is shared evenly between equal maxima, as in PyTorch's amax.
#include <algorithm>

#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const std::vector<int64_t> axes = reduction_axes(node, x.size());
  const bool keep = int_attribute(node, "keepdims", 1) != 0;
  Shape out;
  size_t next = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (next < axes.size() && axes[next] == static_cast<int64_t>(i)) {
      ++next;
      if (keep) out.push_back(1);
    } else {
      out.push_back(x[i]);
    }
  }
  return {{out}};
}

/// The output's gradient with the reduced axes put back as ones.
ValueId with_kept_axes(GradientContext& c, ValueId value) {
  Shape kept = c.input_shape(0);
  for (int64_t axis : reduction_axes(c.node(), kept.size())) kept[static_cast<size_t>(axis)] = 1;
  if (c.graph().value(value).shape == kept) return value;
  return c.reshape(value, kept);
}

std::vector<ValueId> sum_gradient(GradientContext& c) {
  const Shape shape = c.input_shape(0);
  return {c.add("Expand", {with_kept_axes(c, c.output_gradient(0))}, {{"shape", shape}})};
}

std::vector<ValueId> mean_gradient(GradientContext& c) {
  const Shape shape = c.input_shape(0);
  const int64_t count = element_count(shape) / std::max<int64_t>(1, element_count(c.graph().value(c.output(0)).shape));
  const ValueId divisor = c.graph().add_constant(static_cast<float>(count));
  const ValueId share = c.add("Div", {with_kept_axes(c, c.output_gradient(0)), divisor});
  return {c.add("Expand", {share}, {{"shape", shape}})};
}

std::vector<ValueId> max_gradient(GradientContext& c) {
  const ValueId dy = with_kept_axes(c, c.output_gradient(0));
  const ValueId y = with_kept_axes(c, c.output(0));
  const std::vector<int64_t> axes = reduction_axes(c.node(), c.input_shape(0).size());
  return {c.add("ReduceMaxGrad", {dy, c.input(0), y}, {{"axes", axes}})};
}

std::vector<OutputType> infer_max_grad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 3, "needs three inputs");
  return {{graph.value(node.inputs[1]).shape}};
}

}  // namespace

const std::vector<OpDef>& reductions() {
  static const std::vector<OpDef> defs{
      {"ReduceSum", "", infer, sum_gradient},
      {"ReduceMean", "", infer, mean_gradient},
      {.name = "ReduceMax", .domain = "", .infer = infer, .gradient = max_gradient, .selects = true},
      {"ReduceMaxGrad", "halfscope", infer_max_grad},
  };
  return defs;
}

}  // namespace halfscope::ops
