// SPDX-License-Identifier: MIT
// Normalizations within a sample, as in ONNX: groups of neighbouring elements, each with its own
// statistics,
//   y = (x - mean) / sqrt(var + epsilon) * scale + bias
//   LayerNormalization(x, scale, bias?; axis)       a group is everything from `axis` (-1) on;
//   scale
//                                                   and bias have the shape of a group
//   RMSNormalization(x, scale; axis)                (opset 23) the same with a mean of 0
//   GroupNormalization(x, scale, bias; num_groups)  x [n, c, ...]: neighbouring channels of a
//                                                   sample; scale and bias [c] (opset 21)
//   InstanceNormalization(x, scale, bias)           the same, each channel is a group
// Further outputs serve the gradient: every group's mean (except for RMSNormalization) and 1 /
// sqrt(var + epsilon), flat. NormalizationGrad(dy, x, scale, mean?, inverse) with attributes size
// and inner (NormGroups) -> dx, dscale and, with attribute bias, dbias; h = (x - mean) inverse:
//   dbias = sum dy;  dscale = sum dy h;  dx = inverse (g - sum g / size - h sum g h / size)
// where g = dy scale, and sum g is 0 without a mean. Fused, statistics and sums are computed in
// double and the rest in fp32; parameters and statistics are fp32 whatever the activations' format.
// Stagewise they become ReduceMean, Sub, Mul, ReduceMean, Add, Sqrt, Div, Mul, Add.
#include <algorithm>

#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

bool by_channel(const Node& node) {
  return node.op == "GroupNormalization" || node.op == "InstanceNormalization";
}

bool has_mean(const Node& node) { return node.op != "RMSNormalization"; }

size_t first_axis(const Node& node, size_t rank) {
  int64_t axis = int_attribute(node, "axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  check_node(node, axis >= 0 && axis < static_cast<int64_t>(rank), "axis out of range");
  return static_cast<size_t>(axis);
}

/// Returns the shape of scale and bias.
Shape parameter_shape(const Node& node, const Shape& x) {
  if (by_channel(node)) return {x.at(1)};
  return Shape(x.begin() + static_cast<std::ptrdiff_t>(first_axis(node, x.size())), x.end());
}

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  const bool bias_needed = by_channel(node);
  check_node(node,
             node.inputs.size() == (has_mean(node) ? 3u : 2u) ||
                 (has_mean(node) && !bias_needed && node.inputs.size() == 2),
             has_mean(node) ? "needs x, scale and bias" : "needs x and scale");
  const Shape& x = graph.value(node.inputs[0]).shape;
  check_node(node, x.size() >= (bias_needed ? 2u : 1u), "has too few dimensions");
  const Shape wanted = parameter_shape(node, x);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone && !bias_needed && i == 2) continue;
    check_node(node, graph.value(node.inputs[i]).shape == wanted,
               "scale and bias must have shape " + to_string(wanted));
  }
  const Shape groups{norm_groups(node, x).groups};
  if (!has_mean(node)) return {{x}, {groups}};
  return {{x}, {groups}, {groups}};
}

std::vector<OutputType> infer_grad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 5, "needs five inputs");
  const Shape& params = graph.value(node.inputs[2]).shape;
  std::vector<OutputType> types{{graph.value(node.inputs[1]).shape}, {params}};
  if (int_attribute(node, "bias", 0) != 0) types.push_back({params});
  return types;
}

std::vector<ValueId> gradient(GradientContext& c) {
  const NormGroups groups = norm_groups(c.node(), c.input_shape(0));
  const bool bias = c.node().inputs.size() > 2 && c.input(2) != kNone;
  const bool mean = has_mean(c.node());
  std::vector<ValueId> result =
      c.add_all("NormalizationGrad",
                {c.output_gradient(0), c.input(0), c.input(1), mean ? c.output(1) : kNone,
                 c.output(mean ? 2 : 1)},
                {{"size", groups.size}, {"inner", groups.inner}, {"bias", int64_t{bias ? 1 : 0}}});
  result.resize(c.node().inputs.size(), kNone);
  return result;
}

std::vector<ValueId> expand(Graph& graph, const Node& node) {
  const auto add = [&](const char* op, const char* name, std::vector<ValueId> inputs,
                       Attributes attributes = {}) {
    return graph.add1(op, node.path + "/" + name, std::move(inputs), std::move(attributes));
  };
  const Shape shape = graph.value(node.inputs[0]).shape;
  const NormGroups groups = norm_groups(node, shape);
  // Groups of channels are not an axis of x, so they get one.
  const bool reshaped = node.op == "GroupNormalization";
  ValueId x = node.inputs[0];
  std::vector<int64_t> axes;
  if (reshaped) {
    x = add(
        "Reshape", "groups", {x},
        {{"shape", Shape{shape[0], groups.groups / std::max<int64_t>(1, shape[0]), groups.size}},
         {"allowzero", int64_t{1}}});
    axes = {2};
  } else {
    const size_t first = by_channel(node) ? 2 : first_axis(node, shape.size());
    for (size_t i = first; i < shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  const Attributes lines{{"axes", axes}, {"keepdims", int64_t{1}}};
  const ValueId mean = has_mean(node) ? add("ReduceMean", "mean", {x}, lines) : kNone;
  const ValueId centred = has_mean(node) ? add("Sub", "centre", {x, mean}) : x;
  const ValueId square = add("Mul", "square", {centred, centred});
  const ValueId var = add("ReduceMean", "var", {square}, lines);
  const ValueId epsilon =
      graph.add_constant(static_cast<float>(real_attribute(node, "epsilon", 1e-5)));
  const ValueId deviation = add("Sqrt", "sqrt", {add("Add", "eps", {var, epsilon})});
  ValueId y = add("Div", "normalize", {centred, deviation});
  if (reshaped) y = add("Reshape", "ungroup", {y}, {{"shape", shape}, {"allowzero", int64_t{1}}});
  const auto parameter = [&](const char* name, ValueId value) {
    if (!by_channel(node)) return value;
    Shape wide(shape.size() - 1, 1);
    wide[0] = shape[1];
    return add("Reshape", name, {value}, {{"shape", wide}, {"allowzero", int64_t{1}}});
  };
  y = add("Mul", "scale", {y, parameter("weight", node.inputs[1])});
  if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
    y = add("Add", "shift", {y, parameter("bias", node.inputs[2])});
  }
  // The other outputs serve the fused gradient; the primitives have their own gradients.
  if (!has_mean(node)) return {y, deviation};
  return {y, mean, deviation};
}

/// Axes before the normalized ones.
SampleResult keeps_rows(const SampleNode& n) {
  if (n.others_hold_samples()) return samples::unfit("its parameters differ between samples");
  if (n.place(0)->axis >= n.axis(n.rank(0), -1))
    return samples::mixes("it normalizes over the samples");
  return samples::at(n.place(0));
}

OpDef normalization_def(const char* name, Autocast autocast,
                        SampleResult (*keeps_samples)(const SampleNode&), OnnxForm onnx = {}) {
  return {.name = name,
          .domain = "",
          .infer = infer,
          .gradient = gradient,
          .expand = expand,
          .autocast = autocast,
          .onnx = std::move(onnx),
          .keeps_samples = keeps_samples,
          .stored_inputs_from = 1,
          .statistics_from = 1};
}

}  // namespace

const std::vector<OpDef>& group_normalization() {
  static const std::vector<OpDef> defs{
      normalization_def("GroupNormalization", Autocast::fp32, samples::only_first,
                        {.written = true, .attributes = {{"num_groups"}, {"epsilon"}}}),
      normalization_def("InstanceNormalization", Autocast::follow, samples::only_first,
                        {.written = true, .attributes = {{"epsilon"}}}),
      normalization_def("LayerNormalization", Autocast::fp32, keeps_rows,
                        {.written = true, .attributes = {{"axis"}, {"epsilon"}}}),
      normalization_def("RMSNormalization", Autocast::fp32, keeps_rows),
      {.name = "NormalizationGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .autocast = Autocast::internal,
       .stored_inputs_from = 2},
  };
  return defs;
}

}  // namespace halfscope::ops

namespace halfscope {

NormGroups norm_groups(const Node& node, const Shape& x) {
  const int64_t count = element_count(x);
  NormGroups result;
  if (ops::by_channel(node)) {
    const int64_t channels = x.at(1);
    const int64_t per_sample =
        node.op == "InstanceNormalization" ? channels : int_attribute(node, "num_groups", 0);
    check_node(node, per_sample > 0 && channels % per_sample == 0,
               "num_groups must divide the " + std::to_string(channels) + " channels");
    result.params = channels;
    result.inner = 1;
    for (size_t i = 2; i < x.size(); ++i) result.inner *= x[i];
    result.groups = x[0] * per_sample;
    result.size = channels / per_sample * result.inner;
  } else {
    const size_t first = ops::first_axis(node, x.size());
    result.size = 1;
    for (size_t i = first; i < x.size(); ++i) result.size *= x[i];
    result.params = result.size;
    result.groups = result.size == 0 ? 0 : count / result.size;
  }
  check_node(node, result.size > 0, "empty groups have no mean");
  return result;
}

NormGroups norm_groups_of_gradient(const Node& node, const Shape& x, const Shape& scale) {
  const int64_t size = int_attribute(node, "size", 1);
  return {.groups = element_count(x) / size,
          .size = size,
          .params = element_count(scale),
          .inner = int_attribute(node, "inner", 1)};
}

}  // namespace halfscope
