// SPDX-License-Identifier: MIT
// Gemm: y = alpha op(A) op(B) + beta C with attributes transA, transB, alpha, beta; op(A) is [m,
// k], op(B) is [k, n], C broadcasts to [m, n]. A bias row [n] with factors of 1 is part of the
// sums; any other C, or other factors, are applied after them, in fp32.
// Gradients: dA = alpha dy op(B)^T, dB = alpha op(A)^T dy, dC = beta times the sums of dy.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope {

GemmBias gemm_bias(const Graph& graph, const Node& node) {
  GemmBias bias;
  bias.alpha = static_cast<float>(real_attribute(node, "alpha", 1.0));
  bias.beta = static_cast<float>(real_attribute(node, "beta", 1.0));
  bias.part_of_sums = bias.alpha == 1.0f;
  if (node.inputs.size() < 3 || node.inputs[2] == kNone) return bias;
  const Shape& c = graph.value(node.inputs[2]).shape;
  const Shape& y = graph.value(node.outputs[0]).shape;
  bias.column = !c.empty() && c.back() != 1 ? 1 : 0;
  bias.row = c.size() == 2 && c[0] != 1 ? c[1] : 0;
  const bool matrix = find_op(node.op).product == ProductKind::matrix;
  const bool row = c.size() == 1 && c[0] == (matrix ? y.back() : y[1]);
  bias.part_of_sums = row && bias.alpha == 1.0f && bias.beta == 1.0f;
  return bias;
}

namespace ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2 || node.inputs.size() == 3, "needs two or three inputs");
  const Shape& a = graph.value(node.inputs[0]).shape;
  const Shape& b = graph.value(node.inputs[1]).shape;
  check_node(node, a.size() == 2 && b.size() == 2,
             "operands must be matrices, not " + to_string(a) + " and " + to_string(b));
  const bool trans_a = int_attribute(node, "transA", 0) != 0;
  const bool trans_b = int_attribute(node, "transB", 0) != 0;
  const int64_t m = a[trans_a ? 1 : 0], k = a[trans_a ? 0 : 1];
  const int64_t k_of_b = b[trans_b ? 1 : 0], n = b[trans_b ? 0 : 1];
  check_node(node, k == k_of_b,
             "inner dimensions differ: " + to_string(a) + " and " + to_string(b));
  if (node.inputs.size() == 3 && node.inputs[2] != kNone) {
    const Shape& c = graph.value(node.inputs[2]).shape;
    check_node(node, broadcast_shapes(node, c, {m, n}) == Shape{m, n},
               "C " + to_string(c) + " does not broadcast to " + to_string({m, n}));
  }
  return {{Shape{m, n}}};
}

int64_t summed_axis(const Node& node, size_t operand) {
  const bool transposed = int_attribute(node, operand == 0 ? "transA" : "transB", 0) != 0;
  return (operand == 0) == transposed ? 0 : 1;
}

/// Returns dC: the sums of dy over the dimensions along which C is stretched, times beta.
ValueId bias_gradient(GradientContext& c, ValueId dy) {
  const Shape shape = c.input_shape(2);
  const double beta = real_attribute(c.node(), "beta", 1.0);
  const bool row = shape.size() == 1 && shape[0] == c.graph().value(dy).shape[1];
  const ValueId sums =
      row ? c.add("ReduceSum", {dy}, {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}})
          : c.unbroadcast(dy, shape);
  if (beta == 1.0) return sums;
  return c.add("Mul", {sums, c.graph().add_constant(static_cast<float>(beta))});
}

std::vector<ValueId> gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  const ValueId a = c.input(0), b = c.input(1);
  const bool has_bias = c.node().inputs.size() == 3 && c.input(2) != kNone;
  const double alpha = real_attribute(c.node(), "alpha", 1.0);
  const auto transposes = [&](bool first, bool second) {
    Attributes attributes{{"transA", int64_t{first}}, {"transB", int64_t{second}}};
    if (alpha != 1.0) attributes["alpha"] = alpha;
    return attributes;
  };
  const bool ta = int_attribute(c.node(), "transA", 0) != 0;
  const bool tb = int_attribute(c.node(), "transB", 0) != 0;
  std::vector<ValueId> result(c.node().inputs.size(), kNone);
  // The bias comes first: it is cheap, and it shows a bad dy before the products do.
  if (has_bias && c.needed(2)) result[2] = bias_gradient(c, dy);
  if (c.needed(1)) {
    result[1] = tb ? c.add("Gemm", {dy, a}, transposes(true, ta))
                   : c.add("Gemm", {a, dy}, transposes(!ta, false));
  }
  if (c.needed(0)) {
    result[0] = ta ? c.add("Gemm", {b, dy}, transposes(tb, true))
                   : c.add("Gemm", {dy, b}, transposes(false, !tb));
  }
  return result;
}

/// The samples are rows of A or columns of B, and C broadcasts.
SampleResult keeps_samples(const SampleNode& n) {
  if (n.place(0) && n.place(1)) return samples::mixes("it multiplies samples with each other");
  std::optional<SamplePlace> place;
  for (size_t i = 0; i < 2; ++i) {
    if (!n.place(i)) continue;
    if (static_cast<int64_t>(n.place(i)->axis) == summed_axis(n.node(), i))
      return samples::unfit("it sums over the samples");
    place = SamplePlace{i, n.place(i)->before};
  }
  std::vector<samples::Operand> operands;
  if (place) operands.push_back({n.result(), place});
  if (n.has(2)) operands.push_back({n.shape(2), n.place(2), 2});
  return samples::broadcast_to(2, operands);
}

}  // namespace

const std::vector<OpDef>& gemm() {
  static const std::vector<OpDef> defs{
      {.name = "Gemm",
       .domain = "",
       .infer = infer,
       .gradient = gradient,
       .autocast = Autocast::low,
       .onnx = {.written = true, .attributes = {{"transA"}, {"transB"}, {"alpha"}, {"beta"}}},
       .keeps_samples = keeps_samples,
       .product = ProductKind::matrix,
       .summed_axis = summed_axis}};
  return defs;
}

}  // namespace ops
}  // namespace halfscope
