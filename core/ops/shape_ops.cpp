// SPDX-License-Identifier: MIT
// Operators that move elements, reals or indices, and compute nothing: Flatten (attribute axis),
// Reshape and Expand with the target as attribute `shape`, Identity. StopGradient is an Identity
// that no gradient passes. As in ONNX, Reshape accepts one -1 for the remaining size, and 0 for the
// input's own size unless allowzero is 1. Slice (attributes starts, ends, axes, steps) and Pad in
// mode constant (attributes pads: all beginnings, then all ends; value, 0 by default) are as in
// ONNX. SliceGrad(dy), with attribute `shape`, puts every element back where it came from.
#include <algorithm>
#include <cmath>

#include "core/ops/definitions.h"
#include "core/ops/movement.h"
#include "core/ops/samples.h"
#include "core/ops/slice_range.h"

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
                 element_count(Shape(x.begin() + axis, x.end()))},
           common_type(graph, node)}};
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
  return {{shape, graph.value(node.inputs[0]).type}};
}

std::vector<OutputType> infer_expand(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  Shape shape = ints_attribute(node, "shape");
  check_node(
      node, broadcast_shapes(node, graph.value(node.inputs[0]).shape, shape) == shape,
      to_string(graph.value(node.inputs[0]).shape) + " does not expand to " + to_string(shape));
  return {{shape, common_type(graph, node)}};
}

std::vector<OutputType> infer_same(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Value& x = graph.value(node.inputs[0]);
  return {{x.shape, x.type}};
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

std::vector<OutputType> infer_slice(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  Shape shape = graph.value(node.inputs[0]).shape;
  const std::vector<SliceAxis> axes = slice_axes(node, shape);
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = axes[i].count;
  return {{shape, common_type(graph, node)}};
}

std::vector<OutputType> infer_slice_grad(const Graph&, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{ints_attribute(node, "shape")}};
}

std::vector<ValueId> slice_gradient(GradientContext& c) {
  Attributes attributes = c.node().attributes;
  attributes["shape"] = c.input_shape(0);
  return {c.add("SliceGrad", {c.output_gradient(0)}, attributes)};
}

std::vector<OutputType> infer_pad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  if (common_type(graph, node) == ElementType::index) {
    const double value = real_attribute(node, "value", 0.0);
    check_node(node, std::fabs(value) <= INT32_MAX && value == std::floor(value),
               "pads indices with a value that is not an index");
  }
  Shape shape;
  for (const PadAxis& axis : pad_axes(node, graph.value(node.inputs[0]).shape)) {
    shape.push_back(axis.result);
  }
  return {{shape, common_type(graph, node)}};
}

// Drops the gradient of added elements; removed elements have no gradient.
std::vector<ValueId> pad_gradient(GradientContext& c) {
  std::vector<int64_t> pads = ints_attribute(c.node(), "pads");
  for (int64_t& pad : pads) pad = -pad;
  return {c.add("Pad", {c.output_gradient(0)}, {{"pads", pads}})};
}

SampleResult flatten_keeps_samples(const SampleNode& n) {
  const Shape& x = n.shape(0);
  const int64_t given = int_attribute(n.node(), "axis", 1);
  const auto rank = static_cast<int64_t>(x.size());
  const auto axis = static_cast<size_t>(given < 0 ? given + rank : given);
  SamplePlace place = n.place(0).value();
  const size_t first = place.axis < axis ? 0 : axis;
  for (size_t i = first; i < place.axis; ++i) place.before *= x[i];
  place.axis = first == 0 && axis > 0 ? 0 : 1;
  return samples::at(place);
}

SampleResult expand_keeps_samples(const SampleNode& n) {
  SamplePlace place = n.place(0).value();
  const int64_t size = n.shape(0)[place.axis];
  place.axis += n.result().size() - n.rank(0);
  if (n.result()[place.axis] != size) return samples::unfit("it repeats along the samples");
  return samples::at(place);
}

SampleResult slice_keeps_samples(const SampleNode& n) {
  const SamplePlace place = n.place(0).value();
  const SliceAxis range = slice_axes(n.node(), n.shape(0)).at(place.axis);
  if (range.step != 1 || range.count != n.shape(0)[place.axis])
    return samples::mixes("it picks or reverses samples");
  return samples::at(place);
}

SampleResult pad_keeps_samples(const SampleNode& n) {
  const std::vector<int64_t> pads = ints_attribute(n.node(), "pads");
  const SamplePlace place = n.place(0).value();
  if (pads.at(place.axis) != 0 || pads.at(place.axis + n.rank(0)) != 0)
    return samples::mixes("it adds or removes samples");
  return samples::at(place);
}

}  // namespace

const std::vector<OpDef>& shape_ops() {
  static const std::vector<OpDef> defs{
      {.name = "Flatten",
       .domain = "",
       .infer = infer_flatten,
       .gradient = reshape_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true, .attributes = {{"axis"}}},
       .keeps_samples = flatten_keeps_samples,
       .selects = true,
       .view = true,
       .moves = {0, 1}},
      {.name = "Reshape",
       .domain = "",
       .infer = infer_reshape,
       .gradient = reshape_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::reshape,
       .selects = true,
       .view = true,
       .moves = {0, 1}},
      {.name = "Expand",
       .domain = "",
       .infer = infer_expand,
       .gradient = expand_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = expand_keeps_samples,
       .selects = true,
       .moves = {0, 1},
       .movement = movements::expand},
      {.name = "Identity",
       .domain = "",
       .infer = infer_same,
       .gradient = identity_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true},
       .keeps_samples = samples::alone,
       .selects = true,
       .view = true,
       .moves = {0, 1}},
      {.name = "StopGradient",
       .domain = "halfscope",
       .infer = infer_same,
       .gradient = no_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::alone,
       .selects = true,
       .view = true,
       .moves = {0, 1}},
      {.name = "Slice",
       .domain = "",
       .infer = infer_slice,
       .gradient = slice_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = slice_keeps_samples,
       .selects = true,
       .moves = {0, 1},
       .movement = movements::slice},
      {.name = "SliceGrad",
       .domain = "halfscope",
       .infer = infer_slice_grad,
       .autocast = Autocast::internal,
       .selects = true,
       .movement = movements::slice_grad},
      {.name = "Pad",
       .domain = "",
       .infer = infer_pad,
       .gradient = pad_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = pad_keeps_samples,
       .selects = true,
       .movement = movements::pad},
  };
  return defs;
}

}  // namespace halfscope::ops

namespace halfscope {

std::vector<SliceAxis> slice_axes(const Node& node, const Shape& shape) {
  SliceArguments arguments{ints_attribute(node, "starts"), ints_attribute(node, "ends"),
                           std::nullopt, std::nullopt};
  if (node.attributes.contains("axes")) arguments.axes = ints_attribute(node, "axes");
  if (node.attributes.contains("steps")) arguments.steps = ints_attribute(node, "steps");
  return slice_ranges(arguments, shape, node.path + " (" + node.op + ")");
}

std::vector<PadAxis> pad_axes(const Node& node, const Shape& shape) {
  const std::vector<int64_t> pads = ints_attribute(node, "pads");
  check_node(node, pads.size() == 2 * shape.size(),
             "pads need a beginning and an end per dimension");
  std::vector<PadAxis> result;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t before = pads[i], after = pads[i + shape.size()], size = shape[i];
    const int64_t source = std::max<int64_t>(-before, 0);
    const int64_t kept = size - source - std::max<int64_t>(-after, 0);
    result.push_back({.source = source,
                      .target = std::max<int64_t>(before, 0),
                      .count = std::max<int64_t>(kept, 0),
                      .result = size + before + after});
    check_node(node, result.back().result >= 0,
               "negative pads remove more elements than there are");
  }
  return result;
}

}  // namespace halfscope
