// SPDX-License-Identifier: MIT
// Transpose (attribute perm; without it all axes in reverse order), Concat (attribute axis, any
// number of inputs) and Split (attributes axis and split, the lengths of the parts) of reals or
// indices, as in ONNX. They move elements and compute nothing.
#include <algorithm>
#include <numeric>

#include "core/ops/definitions.h"
#include "core/ops/movement.h"
#include "core/ops/samples.h"

namespace halfscope {

std::vector<int64_t> transpose_axes(const Node& node, size_t rank) {
  std::vector<int64_t> reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), int64_t{0});
  const std::vector<int64_t> perm = ints_attribute(node, "perm", reversed);
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.rbegin(), sorted.rend());
  check_node(node, sorted == reversed, "perm must name every axis once");
  return perm;
}

namespace ops {
namespace {

std::vector<OutputType> infer_transpose(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  Shape shape;
  for (const int64_t axis : transpose_axes(node, x.size())) {
    shape.push_back(x[static_cast<size_t>(axis)]);
  }
  return {{shape, common_type(graph, node)}};
}

std::vector<ValueId> transpose_gradient(GradientContext& c) {
  const std::vector<int64_t> perm = transpose_axes(c.node(), c.input_shape(0).size());
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  return {c.add("Transpose", {c.output_gradient(0)}, {{"perm", back}})};
}

std::vector<OutputType> infer_concat(const Graph& graph, const Node& node) {
  check_node(node, !node.inputs.empty(), "needs at least one input");
  Shape shape = graph.value(node.inputs[0]).shape;
  const size_t axis = static_cast<size_t>(axis_attribute(node, shape.size()));
  int64_t length = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Shape each = graph.value(node.inputs[i]).shape;
    check_node(node, each.size() == shape.size(), "inputs differ in rank");
    length += each[axis];
    each[axis] = shape[axis];
    check_node(node, each == shape,
               to_string(graph.value(node.inputs[i]).shape) + " does not fit " + to_string(shape));
  }
  shape[axis] = length;
  return {{shape, common_type(graph, node)}};
}

std::vector<ValueId> concat_gradient(GradientContext& c) {
  const size_t count = c.node().inputs.size();
  const int64_t axis = axis_attribute(c.node(), c.input_shape(0).size());
  std::vector<ValueId> result(count, kNone);
  int64_t start = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t end = start + c.input_shape(i)[static_cast<size_t>(axis)];
    if (c.needed(i)) {
      result[i] = c.add("Slice", {c.output_gradient(0)},
                        {{"starts", std::vector<int64_t>{start}},
                         {"ends", std::vector<int64_t>{end}},
                         {"axes", std::vector<int64_t>{axis}}});
    }
    start = end;
  }
  return result;
}

std::vector<OutputType> infer_split(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const size_t axis = static_cast<size_t>(axis_attribute(node, x.size(), 0));
  std::vector<OutputType> parts;
  int64_t left = x[axis];
  for (const int64_t length : ints_attribute(node, "split")) {
    check_node(node, length >= 0 && length <= left, "the parts do not fit " + to_string(x));
    left -= length;
    Shape part = x;
    part[axis] = length;
    parts.push_back({part, common_type(graph, node)});
  }
  check_node(node, left == 0 && !parts.empty(), "the parts do not fit " + to_string(x));
  return parts;
}

/// Concatenates the parts' gradients. If a part has none, sums the existing ones with zeros around
/// them.
std::vector<ValueId> split_gradient(GradientContext& c) {
  const Shape x = c.input_shape(0);
  const int64_t axis = axis_attribute(c.node(), x.size(), 0);
  const std::vector<int64_t> lengths = ints_attribute(c.node(), "split");
  std::vector<ValueId> parts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (c.output_gradient(i) != kNone) parts.push_back(c.output_gradient(i));
  }
  if (parts.size() == lengths.size()) return {c.add("Concat", parts, {{"axis", axis}})};
  ValueId sum = kNone;
  int64_t start = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t end = start + lengths[i];
    if (c.output_gradient(i) != kNone) {
      std::vector<int64_t> pads(2 * x.size(), 0);
      pads[static_cast<size_t>(axis)] = start;
      pads[x.size() + static_cast<size_t>(axis)] = x[static_cast<size_t>(axis)] - end;
      const ValueId spread = c.add("Pad", {c.output_gradient(i)}, {{"pads", pads}});
      sum = sum == kNone ? spread : c.add("Add", {sum, spread});
    }
    start = end;
  }
  return {sum};
}

SampleResult transpose_keeps_samples(const SampleNode& n) {
  const std::vector<int64_t> order = transpose_axes(n.node(), n.rank(0));
  SamplePlace place = n.place(0).value();
  const auto found = std::find(order.begin(), order.end(), static_cast<int64_t>(place.axis));
  place.axis = static_cast<size_t>(found - order.begin());
  return samples::at(place);
}

/// Operands that are the same for all samples are copied for each.
SampleResult concat_keeps_samples(const SampleNode& n) {
  SampleResult result = samples::broadcast(n);
  if (!result.place) return result;
  if (result.place->axis == n.axis(n.rank(0), 0)) return samples::mixes("it concatenates samples");
  result.copies.clear();
  for (size_t i = 0; i < n.input_count(); ++i) {
    if (!n.place(i)) result.copies.push_back({i, *result.place});
  }
  return result;
}

}  // namespace

const std::vector<OpDef>& move() {
  static const std::vector<OpDef> defs{
      {.name = "Transpose",
       .domain = "",
       .infer = infer_transpose,
       .gradient = transpose_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true, .attributes = {{"perm"}}},
       .keeps_samples = transpose_keeps_samples,
       .selects = true,
       .moves = {0, 1},
       .movement = movements::transpose},
      {.name = "Concat",
       .domain = "",
       .infer = infer_concat,
       .gradient = concat_gradient,
       .autocast = Autocast::promote,
       .onnx = {.written = true, .attributes = {{"axis"}}},
       .keeps_samples = concat_keeps_samples,
       .selects = true,
       .moves = {0, OpDef::kAllInputs},
       .movement = movements::concat},
      {.name = "Split",
       .domain = "",
       .infer = infer_split,
       .gradient = split_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::inner_axis<0>,
       .selects = true,
       .moves = {0, 1},
       .movement = movements::split},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
