// SPDX-License-Identifier: MIT
// Gemm: y = op(A) op(B) + C with attributes transA, transB (alpha = beta = 1); C, if given, is
// one row of biases [n]. op(A) is [m, k], op(B) is [k, n].
// Gradients: dA = dy op(B)^T, dB = op(A)^T dy, dC = column sums of dy.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2 || node.inputs.size() == 3, "needs two or three inputs");
  for (const char* factor : {"alpha", "beta"}) {
    check_node(node, real_attribute(node, factor, 1.0) == 1.0,
               std::string(factor) + " other than 1 is not supported yet");
  }
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
  if (node.inputs.size() == 3) {
    check_node(node, graph.value(node.inputs[2]).shape == Shape{n}, "the bias must have shape [n]");
  }
  return {{Shape{m, n}}};
}

int64_t summed_axis(const Node& node, size_t operand) {
  const bool transposed = int_attribute(node, operand == 0 ? "transA" : "transB", 0) != 0;
  return (operand == 0) == transposed ? 0 : 1;
}

Attributes transposes(bool a, bool b) { return {{"transA", int64_t{a}}, {"transB", int64_t{b}}}; }

std::vector<ValueId> gradient(GradientContext& c) {
  const ValueId dy = c.output_gradient(0);
  const ValueId a = c.input(0), b = c.input(1);
  const bool has_bias = c.node().inputs.size() == 3;
  const bool ta = int_attribute(c.node(), "transA", 0) != 0;
  const bool tb = int_attribute(c.node(), "transB", 0) != 0;
  std::vector<ValueId> result(has_bias ? 3 : 2, kNone);
  // The bias first: it is cheap, and it shows a bad dy before the products do.
  if (has_bias && c.needed(2)) {
    result[2] =
        c.add("ReduceSum", {dy}, {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}});
  }
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

}  // namespace

const std::vector<OpDef>& gemm() {
  static const std::vector<OpDef> defs{{.name = "Gemm",
                                        .domain = "",
                                        .infer = infer,
                                        .gradient = gradient,
                                        .summed_axis = summed_axis}};
  return defs;
}

}  // namespace halfscope::ops
