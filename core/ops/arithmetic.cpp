// SPDX-License-Identifier: MIT
// Element-wise operators: Add, Sub, Mul, Div with numpy broadcasting; Neg, Exp, Log, Sqrt. All but
// the last three also accept indices, see core/numeric/elementary/integers.h.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"
#include "core/ops/zero_slope.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_binary(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  return {
      {broadcast_shapes(node, graph.value(node.inputs[0]).shape, graph.value(node.inputs[1]).shape),
       common_type(graph, node)}};
}

std::vector<OutputType> infer_negation(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{graph.value(node.inputs[0]).shape, common_type(graph, node)}};
}

std::vector<OutputType> infer_unary(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  check_real(graph, node, 0);
  return {{graph.value(node.inputs[0]).shape}};
}

using Gradients = std::vector<ValueId>;

Gradients add_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  Gradients result(2, kNone);
  for (size_t i = 0; i < 2; ++i) {
    if (c.needed(i)) result[i] = c.unbroadcast(dy, c.input_shape(i));
  }
  return result;
}

Gradients sub_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  Gradients result(2, kNone);
  if (c.needed(0)) result[0] = c.unbroadcast(dy, c.input_shape(0));
  if (c.needed(1)) result[1] = c.unbroadcast(c.add("Neg", {dy}), c.input_shape(1));
  return result;
}

Gradients mul_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  Gradients result(2, kNone);
  for (size_t i = 0; i < 2; ++i) {
    if (c.needed(i)) {
      result[i] = c.unbroadcast(c.add("Mul", {dy, c.input(1 - i)}), c.input_shape(i));
    }
  }
  return result;
}

/// dA = dy / B, dB = -dy ((A / B) / B), in the order of PyTorch (div_tensor_other_grad) and
/// TensorFlow (_RealDivGrad).
Gradients div_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  Gradients result(2, kNone);
  const auto divided = [&](ValueId by_divisor) { return c.add("Div", {by_divisor, c.input(1)}); };
  if (c.needed(0)) result[0] = c.unbroadcast(divided(dy), c.input_shape(0));
  if (c.needed(1)) {
    const ValueId product = c.add("Mul", {dy, divided(c.output(0))});
    result[1] = c.unbroadcast(c.add("Neg", {product}), c.input_shape(1));
  }
  return result;
}

Gradients neg_gradient(GradientContext& c) { return {c.add("Neg", {c.output_gradient(0)})}; }

Gradients exp_gradient(GradientContext& c) {
  return {c.add("Mul", {c.output_gradient(0), c.output(0)})};
}

Gradients log_gradient(GradientContext& c) {
  return {c.add("Div", {c.output_gradient(0), c.input(0)})};
}

// d sqrt(x) = dy / (2 y)
Gradients sqrt_gradient(GradientContext& c) {
  const ValueId two = c.graph().add_constant(2.0f);
  const ValueId doubled = c.add("Mul", {c.output(0), two});
  const ValueId dx = c.add("Div", {c.output_gradient(0), doubled});
  if (int_attribute(c.node(), kZeroSlopeAtZero, 0) == 0) return {dx};
  const ValueId is_zero = c.add("Equal", {c.output(0), c.graph().add_constant(0.0f)});
  return {c.add("Where", {is_zero, kNone, dx})};
}

OpDef binary(const char* name, std::vector<ValueId> (*gradient)(GradientContext&)) {
  return {.name = name,
          .domain = "",
          .infer = infer_binary,
          .gradient = gradient,
          .autocast = Autocast::promote,
          .onnx = {.written = true},
          .keeps_samples = samples::broadcast,
          .reads_numbers = true};
}

OpDef unary(const char* name, std::vector<ValueId> (*gradient)(GradientContext&),
            Autocast autocast) {
  return {.name = name,
          .domain = "",
          .infer = infer_unary,
          .gradient = gradient,
          .autocast = autocast,
          .onnx = {.written = true, .read = 1},
          .keeps_samples = samples::alone};
}

}  // namespace

const std::vector<OpDef>& arithmetic() {
  static const std::vector<OpDef> defs{
      binary("Add", add_gradient),
      binary("Sub", sub_gradient),
      binary("Mul", mul_gradient),
      binary("Div", div_gradient),
      {.name = "Neg",
       .domain = "",
       .infer = infer_negation,
       .gradient = neg_gradient,
       .autocast = Autocast::follow,
       .onnx = {.written = true, .read = 1, .integers = true},
       .keeps_samples = samples::alone,
       .selects = true},
      unary("Exp", exp_gradient, Autocast::fp32),
      unary("Log", log_gradient, Autocast::fp32),
      unary("Sqrt", sqrt_gradient, Autocast::follow),
  };
  return defs;
}

}  // namespace halfscope::ops
