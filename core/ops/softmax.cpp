// SPDX-License-Identifier: MIT
// Softmax and LogSoftmax along `axis` (-1) as in ONNX:
//   y = exp(x - max) / sum exp(x - max),   y = (x - max) - log(sum exp(x - max))
// A line of only -inf, or with a +inf, gives NaN, as in PyTorch. With attribute zero_masked (ours)
// Softmax gives zeros for a line of only -inf, and no gradient, as in PyTorch's
// scaled_dot_product_attention when everything is masked. Fused they are computed in double and
// rounded once. Stagewise they become ReduceMax, Sub, Exp, ReduceSum, Div, or Log, Sub; with
// zero_masked, an Equal finds such lines and two Where replace their maximum by 0 and their sum by
// 1. SoftmaxGrad(dy, y) = y (dy - sum dy y);  LogSoftmaxGrad(dy, y) = dy - exp(y) sum dy.
#include "core/ops/softmax.h"

#include <limits>

#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  axis_lines(node, x);
  return {{x}};
}

std::vector<OutputType> infer_grad(const Graph& graph, const Node& node) {
  return {{graph.value(node.inputs[1]).shape}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  Attributes attributes = c.node().attributes;
  attributes.erase("zero_masked");
  return {c.add(c.node().op + "Grad", {c.output_gradient(0), c.output(0)}, attributes)};
}

std::vector<ValueId> expand(Graph& graph, const Node& node) {
  const ValueId x = node.inputs[0];
  const std::string base = node.path + "/";
  const Attributes lines{{"axes", std::vector<int64_t>{int_attribute(node, "axis", -1)}},
                         {"keepdims", int64_t{1}}};
  // The maximum cancels out of the result, so its gradient is zero in exact arithmetic.
  ValueId largest = graph.add1("StopGradient", base + "StopGradient",
                               {graph.add1("ReduceMax", base + "ReduceMax", {x}, lines)});
  ValueId masked = kNone;
  if (zeroes_masked_lines(node)) {
    const ValueId nothing = graph.add_constant(-std::numeric_limits<float>::infinity());
    masked = graph.add1("Equal", base + "Masked", {largest, nothing});
    largest = graph.add1("Where", base + "Largest", {masked, kNone, largest});
  }
  const ValueId shifted = graph.add1("Sub", base + "Shift", {x, largest});
  const ValueId powers = graph.add1("Exp", base + "Exp", {shifted});
  ValueId sum = graph.add1("ReduceSum", base + "ReduceSum", {powers}, lines);
  if (masked != kNone) {
    sum = graph.add1("Where", base + "Sum", {masked, graph.add_constant(1.0f), sum});
  }
  if (node.op == "Softmax") return {graph.add1("Div", base + "Div", {powers, sum})};
  return {graph.add1("Sub", base + "Sub", {shifted, graph.add1("Log", base + "Log", {sum})})};
}

OpDef softmax_def(const char* name) {
  return {.name = name,
          .domain = "",
          .infer = infer,
          .gradient = gradient,
          .expand = expand,
          .autocast = Autocast::fp32,
          .onnx = {.written = true, .attributes = {{"axis"}}},
          .keeps_samples = samples::inner_axis<-1>};
}

}  // namespace

const std::vector<OpDef>& softmax() {
  static const std::vector<OpDef> defs{
      softmax_def("Softmax"),
      softmax_def("LogSoftmax"),
      {.name = "SoftmaxGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .autocast = Autocast::internal},
      {.name = "LogSoftmaxGrad",
       .domain = "halfscope",
       .infer = infer_grad,
       .autocast = Autocast::internal},
  };
  return defs;
}

}  // namespace halfscope::ops

namespace halfscope {

bool zeroes_masked_lines(const Node& node) { return int_attribute(node, "zero_masked", 0) != 0; }

AxisLines axis_lines(const Node& node, const Shape& shape, int64_t default_axis) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  int64_t axis = int_attribute(node, "axis", default_axis);
  if (axis < 0) axis += rank;
  check_node(node, axis >= 0 && axis < rank, "axis out of range");
  AxisLines lines{.count = 1, .size = shape[static_cast<size_t>(axis)], .stride = 1};
  for (int64_t i = 0; i < rank; ++i) {
    if (i != axis) lines.count *= shape[static_cast<size_t>(i)];
    if (i > axis) lines.stride *= shape[static_cast<size_t>(i)];
  }
  return lines;
}

}  // namespace halfscope
