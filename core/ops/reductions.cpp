// SPDX-License-Identifier: MIT
// ReduceSum, ReduceMean, ReduceMax, ReduceMin over attribute axes (empty: all, or none with
// noop_with_empty_axes), keepdims as in ONNX;
// GlobalAveragePool, the mean over all but batch and channels. ReduceMeanGrad(dy) spreads dy over
// `axes` of `shape`, divided by their size in fp32: the size itself need not fit the format.
// The gradient of ReduceMax (ReduceMin) is shared evenly between equal maxima (minima), as in
// PyTorch's amax (amin).
#include <algorithm>
#include <numeric>

#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  if (node.op == "ReduceMean") check_real(graph, node, 0);
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
  return {{out, common_type(graph, node)}};
}

/// The output's gradient with the reduced axes put back as ones.
ValueId with_kept_axes(GradientContext& c, ValueId value) {
  Shape kept = c.input_shape(0);
  for (int64_t axis : reduction_axes(c.node(), kept.size())) kept[static_cast<size_t>(axis)] = 1;
  if (c.graph().value(value).shape == kept) return value;
  return c.reshape(value, kept);
}

/// Returns the axes for operators of the gradient, where an empty list does not mean all.
Attributes reduced_axes(GradientContext& c) {
  return {{"axes", reduction_axes(c.node(), c.input_shape(0).size())},
          {"noop_with_empty_axes", int64_t{1}}};
}

std::vector<ValueId> sum_gradient(GradientContext& c) {
  const Shape shape = c.input_shape(0);
  return {c.add("Expand", {with_kept_axes(c, c.output_gradient(0))}, {{"shape", shape}})};
}

std::vector<ValueId> mean_gradient(GradientContext& c) {
  const Shape shape = c.input_shape(0);
  Attributes attributes = reduced_axes(c);
  attributes["shape"] = shape;
  return {c.add("ReduceMeanGrad", {c.output_gradient(0)}, attributes)};
}

std::vector<OutputType> infer_global_pool(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  Shape shape = graph.value(node.inputs[0]).shape;
  check_node(node, shape.size() > 2, "needs a batch, channels and at least one dimension to pool");
  std::fill(shape.begin() + 2, shape.end(), 1);
  return {{shape}};
}

std::vector<ValueId> global_pool_gradient(GradientContext& c) {
  const Shape shape = c.input_shape(0);
  std::vector<int64_t> axes(shape.size() - 2);
  std::iota(axes.begin(), axes.end(), int64_t{2});
  return {c.add("ReduceMeanGrad", {c.output_gradient(0)}, {{"shape", shape}, {"axes", axes}})};
}

std::vector<ValueId> max_gradient(GradientContext& c) {
  const ValueId dy = with_kept_axes(c, c.output_gradient(0));
  const ValueId y = with_kept_axes(c, c.output(0));
  return {c.add("ReduceMaxGrad", {dy, c.input(0), y}, reduced_axes(c))};
}

std::vector<OutputType> infer_mean_grad(const Graph&, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{ints_attribute(node, "shape")}};
}

std::vector<OutputType> infer_max_grad(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 3, "needs three inputs");
  return {{graph.value(node.inputs[1]).shape}};
}

}  // namespace

const std::vector<OpDef>& reductions() {
  static const std::vector<OpDef> defs{
      {.name = "ReduceSum",
       .domain = "",
       .infer = infer,
       .gradient = sum_gradient,
       .autocast = Autocast::fp32,
       .keeps_samples = samples::reduction},
      {.name = "ReduceMean",
       .domain = "",
       .infer = infer,
       .gradient = mean_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::reduction},
      {.name = "GlobalAveragePool",
       .domain = "",
       .infer = infer_global_pool,
       .gradient = global_pool_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true},
       .keeps_samples = samples::planes},
      {.name = "ReduceMeanGrad",
       .domain = "halfscope",
       .infer = infer_mean_grad,
       .autocast = Autocast::internal},
      {.name = "ReduceMax",
       .domain = "",
       .infer = infer,
       .gradient = max_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::reduction,
       .selects = true},
      {.name = "ReduceMin",
       .domain = "",
       .infer = infer,
       .gradient = max_gradient,
       .autocast = Autocast::follow,
       .keeps_samples = samples::reduction,
       .selects = true},
      {.name = "ReduceMaxGrad",
       .domain = "halfscope",
       .infer = infer_max_grad,
       .autocast = Autocast::internal},
  };
  return defs;
}

}  // namespace halfscope::ops
