// SPDX-License-Identifier: MIT
// Functions of one element (core/numeric/elementary/functions.h), as in ONNX, whose constant inputs
// are attributes: Clip has min and max, either may be missing. Min and Max take two operands here.
// Gelu has an attribute tanh instead of ONNX's approximate; Swish follows opset 24. Functions and
// gradients compute in double and round once. A gradient is an operator F'(dy, x); for Reciprocal,
// Sigmoid and Tanh it reads (dy, y), as in PyTorch. Sin and Cos are each other's gradients.
//   Max, Min     the gradient goes to the winner, half of it to each of two equals
//   Pow          0 for the base where the exponent is 0, and for the exponent of 0^b, b >= 0
//   Abs          dy * Sign(x);  Sign, Floor, Ceil and Round let no gradient through, except for a
//                Round with the attribute kStraightThrough
//   LeakyRelu, PRelu, Elu at 0: the derivative from the left; Clip and HardSigmoid: their corners
//   let no gradient through
// Gelu, LogSigmoid and Swish are composites: stagewise Gelu is x / sqrt(2), Erf, + 1, * x, * 0.5,
// or, with tanh, 0.5 x (1 + Tanh(sqrt(2 / pi) (x + 0.044715 x^3))); Swish is x * Sigmoid(alpha x);
// LogSigmoid is -Softplus(-x), because a sigmoid may underflow.
#include "core/ops/functions.h"

#include "core/ops/definitions.h"
#include "core/ops/samples.h"
#include "core/ops/straight_through.h"

namespace halfscope::ops {
namespace {

using Gradients = std::vector<ValueId>;

/// Index operands support only the functions of core/numeric/elementary/integers.h.
ElementType result_type(const Graph& graph, const Node& node) {
  const bool of_indices = node.op == "Abs" || node.op == "Min" || node.op == "Max";
  for (size_t i = 0; i < node.inputs.size() && !of_indices; ++i) check_real(graph, node, i);
  return common_type(graph, node);
}

std::vector<OutputType> infer_unary(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{graph.value(node.inputs[0]).shape, result_type(graph, node)}};
}

std::vector<OutputType> infer_binary(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  return {
      {broadcast_shapes(node, graph.value(node.inputs[0]).shape, graph.value(node.inputs[1]).shape),
       result_type(graph, node)}};
}

std::vector<OutputType> infer_prelu(const Graph& graph, const Node& node) {
  const std::vector<OutputType> type = infer_binary(graph, node);
  const Shape& x = graph.value(node.inputs[0]).shape;
  check_node(node, type[0].shape == x,
             "slope " + to_string(graph.value(node.inputs[1]).shape) + " does not broadcast to " +
                 to_string(x));
  return type;
}

/// A gradient has the shape of its first input, the output's gradient.
std::vector<OutputType> infer_gradient(const Graph& graph, const Node& node) {
  return {{graph.value(node.inputs[0]).shape}};
}

/// F'(dy, x), with F's attributes.
template <class Gradient>
Gradients of_input(GradientContext& c) {
  const Attributes attributes = c.node().attributes;
  return {c.add(Gradient::kName, {c.output_gradient(0), c.input(0)}, attributes)};
}

/// F'(dy, y).
template <class Gradient>
Gradients of_output(GradientContext& c) {
  return {c.add(Gradient::kName, {c.output_gradient(0), c.output(0)})};
}

Gradients none(GradientContext&) { return {kNone}; }

Gradients round_gradient(GradientContext& c) {
  const bool passes = int_attribute(c.node(), kStraightThrough, 0) != 0;
  return {passes ? c.output_gradient(0) : kNone};
}

Gradients abs_gradient(GradientContext& c) {
  return {c.add("Mul", {c.output_gradient(0), c.add("Sign", {c.input(0)})})};
}

Gradients sin_gradient(GradientContext& c) {
  return {c.add("Mul", {c.output_gradient(0), c.add("Cos", {c.input(0)})})};
}

Gradients cos_gradient(GradientContext& c) {
  return {c.add("Neg", {c.add("Mul", {c.output_gradient(0), c.add("Sin", {c.input(0)})})})};
}

/// Gradient of Max(a, b). For Min(a, b), the smaller operand is treated as the larger of (b, a).
Gradients extreme_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  const bool smallest = c.node().op == fn::Min::kName;
  Gradients result(2, kNone);
  for (size_t i = 0; i < 2; ++i) {
    if (!c.needed(i)) continue;
    const size_t larger = smallest ? 1 - i : i;
    const ValueId full = c.add(fn::MaxGrad::kName, {dy, c.input(larger), c.input(1 - larger)});
    result[i] = c.unbroadcast(full, c.input_shape(i));
  }
  return result;
}

Gradients pow_gradient(GradientContext& c) {
  const char* const rules[] = {fn::PowGrad::kName, fn::PowExponentGrad::kName};
  Gradients result(2, kNone);
  for (size_t i = 0; i < 2; ++i) {
    if (!c.needed(i)) continue;
    const ValueId full = c.add(rules[i], {c.output_gradient(0), c.input(0), c.input(1)});
    result[i] = c.unbroadcast(full, c.input_shape(i));
  }
  return result;
}

Gradients prelu_gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  Gradients result(2, kNone);
  if (c.needed(0)) result[0] = c.add(fn::PReluGrad::kName, {dy, c.input(0), c.input(1)});
  if (c.needed(1)) {
    const ValueId full = c.add(fn::PReluSlopeGrad::kName, {dy, c.input(0)});
    result[1] = c.unbroadcast(full, c.input_shape(1));
  }
  return result;
}

/// Adds primitives under the composite's path.
class Expansion {
 public:
  Expansion(Graph& graph, const Node& node) : graph_(graph), base_(node.path + "/") {}
  ValueId add(const char* op, const char* name, std::vector<ValueId> inputs) {
    return graph_.add1(op, base_ + name, std::move(inputs));
  }
  ValueId constant(double value) { return graph_.add_constant(static_cast<float>(value)); }

 private:
  Graph& graph_;
  std::string base_;
};

std::vector<ValueId> expand_gelu(Graph& graph, const Node& node) {
  Expansion e(graph, node);
  const ValueId x = node.inputs[0];
  if (function_of<fn::Gelu>(node).tanh) {
    const ValueId square = e.add("Mul", "square", {x, x});
    const ValueId cube = e.add("Mul", "cube", {square, x});
    const ValueId small = e.add("Mul", "small", {cube, e.constant(fn::kGeluCubic)});
    const ValueId sum = e.add("Add", "sum", {x, small});
    const ValueId inner = e.add("Mul", "inner", {sum, e.constant(fn::kSqrtTwoOverPi)});
    const ValueId tanh = e.add("Tanh", "tanh", {inner});
    const ValueId gate = e.add("Add", "gate", {tanh, e.constant(1.0)});
    const ValueId half = e.add("Mul", "half", {x, e.constant(0.5)});
    return {e.add("Mul", "scale", {half, gate})};
  }
  const ValueId scaled = e.add("Div", "divide", {x, e.constant(1.0 / fn::kSqrtHalf)});
  const ValueId erf = e.add("Erf", "erf", {scaled});
  const ValueId gate = e.add("Add", "gate", {erf, e.constant(1.0)});
  const ValueId gated = e.add("Mul", "scale", {x, gate});
  return {e.add("Mul", "half", {gated, e.constant(0.5)})};
}

std::vector<ValueId> expand_log_sigmoid(Graph& graph, const Node& node) {
  Expansion e(graph, node);
  const ValueId opposite = e.add("Neg", "opposite", {node.inputs[0]});
  return {e.add("Neg", "neg", {e.add("Softplus", "softplus", {opposite})})};
}

std::vector<ValueId> expand_swish(Graph& graph, const Node& node) {
  Expansion e(graph, node);
  const ValueId x = node.inputs[0];
  const double alpha = function_of<fn::Swish>(node).alpha;
  const ValueId inner = alpha == 1.0 ? x : e.add("Mul", "alpha", {x, e.constant(alpha)});
  return {e.add("Mul", "scale", {x, e.add("Sigmoid", "sigmoid", {inner})})};
}

template <class Gradient>
OpDef gradient_def(bool selects = false) {
  return {.name = Gradient::kName,
          .domain = "halfscope",
          .infer = infer_gradient,
          .autocast = Autocast::internal,
          .selects = selects};
}

OnnxForm same_in_onnx() { return {.written = true, .read = 1}; }

/// A function of one element. ONNX has it under the same name, except for the differences in
/// `onnx`.
template <class Function>
OpDef unary(std::vector<ValueId> (*gradient)(GradientContext&), OnnxForm onnx = same_in_onnx(),
            Autocast autocast = Autocast::follow) {
  return {.name = Function::kName,
          .domain = "",
          .infer = infer_unary,
          .gradient = gradient,
          .autocast = autocast,
          .onnx = std::move(onnx),
          .keeps_samples = samples::alone};
}

template <class Function>
OpDef composite(std::vector<ValueId> (*gradient)(GradientContext&),
                std::vector<ValueId> (*expand)(Graph&, const Node&)) {
  OpDef def = unary<Function>(gradient, {});
  def.expand = expand;
  return def;
}

OpDef selecting(OpDef def) {
  def.selects = true;
  return def;
}

template <class Function>
OpDef extreme() {
  return {.name = Function::kName,
          .domain = "",
          .infer = infer_binary,
          .gradient = extreme_gradient,
          .autocast = Autocast::promote,
          .onnx = {.written = true},
          .keeps_samples = samples::broadcast,
          .selects = true};
}

}  // namespace

const std::vector<OpDef>& functions() {
  static const std::vector<OpDef> defs{
      selecting(unary<fn::Abs>(abs_gradient, {.written = true, .read = 1, .integers = true})),
      unary<fn::Acos>(of_input<fn::AcosGrad>, same_in_onnx(), Autocast::fp32),
      unary<fn::Acosh>(of_input<fn::AcoshGrad>, same_in_onnx()),
      unary<fn::Asin>(of_input<fn::AsinGrad>, same_in_onnx(), Autocast::fp32),
      unary<fn::Asinh>(of_input<fn::AsinhGrad>, same_in_onnx()),
      unary<fn::Atan>(of_input<fn::AtanGrad>, same_in_onnx()),
      unary<fn::Atanh>(of_input<fn::AtanhGrad>, same_in_onnx()),
      unary<fn::Ceil>(none),
      unary<fn::Clip>(of_input<fn::ClipGrad>, {}),
      unary<fn::Cos>(cos_gradient),
      unary<fn::Elu>(of_input<fn::EluGrad>,
                     {.written = true, .read = 1, .attributes = {{"alpha", 1.0}}}),
      unary<fn::Erf>(of_input<fn::ErfGrad>),
      unary<fn::Floor>(none),
      // The standard's 0.2 is a float.
      unary<fn::HardSigmoid>(
          of_input<fn::HardSigmoidGrad>,
          {.written = true, .read = 1, .attributes = {{"alpha", double{0.2f}}, {"beta", 0.5}}}),
      unary<fn::HardSwish>(of_input<fn::HardSwishGrad>),
      unary<fn::LeakyRelu>(of_input<fn::LeakyReluGrad>,
                           {.written = true, .read = 1, .attributes = {{"alpha", 0.01}}}),
      unary<fn::Mish>(of_input<fn::MishGrad>),
      unary<fn::Reciprocal>(of_output<fn::ReciprocalGrad>, same_in_onnx(), Autocast::fp32),
      unary<fn::Round>(round_gradient),
      unary<fn::Sigmoid>(of_output<fn::SigmoidGrad>),
      unary<fn::Sign>(none),
      unary<fn::Sin>(sin_gradient),
      unary<fn::Softplus>(of_input<fn::SoftplusGrad>, same_in_onnx(), Autocast::fp32),
      unary<fn::Tanh>(of_output<fn::TanhGrad>),
      composite<fn::Gelu>(of_input<fn::GeluGrad>, expand_gelu),
      composite<fn::LogSigmoid>(of_input<fn::LogSigmoidGrad>, expand_log_sigmoid),
      composite<fn::Swish>(of_input<fn::SwishGrad>, expand_swish),
      extreme<fn::Max>(),
      extreme<fn::Min>(),
      {.name = "Pow",
       .domain = "",
       .infer = infer_binary,
       .gradient = pow_gradient,
       .autocast = Autocast::fp32,
       .onnx = {.written = true, .read = 2},
       .keeps_samples = samples::broadcast},
      {.name = "PRelu",
       .domain = "",
       .infer = infer_prelu,
       .gradient = prelu_gradient,
       .autocast = Autocast::low,
       .onnx = {.written = true},
       .keeps_samples = samples::broadcast,
       .stored_inputs_from = 1},
      gradient_def<fn::AcosGrad>(),
      gradient_def<fn::AcoshGrad>(),
      gradient_def<fn::AsinGrad>(),
      gradient_def<fn::AsinhGrad>(),
      gradient_def<fn::AtanGrad>(),
      gradient_def<fn::AtanhGrad>(),
      gradient_def<fn::ClipGrad>(true),
      gradient_def<fn::EluGrad>(),
      gradient_def<fn::ErfGrad>(),
      gradient_def<fn::GeluGrad>(),
      gradient_def<fn::HardSigmoidGrad>(),
      gradient_def<fn::HardSwishGrad>(),
      gradient_def<fn::LeakyReluGrad>(),
      gradient_def<fn::LogSigmoidGrad>(),
      gradient_def<fn::MaxGrad>(),
      gradient_def<fn::MishGrad>(),
      {.name = "PReluGrad",
       .domain = "halfscope",
       .infer = infer_gradient,
       .autocast = Autocast::internal,
       .stored_inputs_from = 2},
      gradient_def<fn::PReluSlopeGrad>(),
      gradient_def<fn::PowExponentGrad>(),
      gradient_def<fn::PowGrad>(),
      gradient_def<fn::ReciprocalGrad>(),
      gradient_def<fn::SigmoidGrad>(),
      gradient_def<fn::SoftplusGrad>(),
      gradient_def<fn::SwishGrad>(),
      gradient_def<fn::TanhGrad>(),
  };
  return defs;
}

}  // namespace halfscope::ops
