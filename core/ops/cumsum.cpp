// SPDX-License-Identifier: MIT
// CumSum: prefix sums along attribute axis, as in ONNX (exclusive: without the element itself;
// reverse: from the end). Each one is a separate sum under the node's accumulation, in the order of
// the elements; the gradient runs the other way. Sums of indices are exact.
#include "core/ops/definitions.h"
#include "core/ops/samples.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  const Shape& x = graph.value(node.inputs[0]).shape;
  axis_attribute(node, x.size());
  return {{x, common_type(graph, node)}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  Attributes attributes = c.node().attributes;
  attributes["reverse"] = int64_t{int_attribute(c.node(), "reverse", 0) == 0};
  return {c.add("CumSum", {c.output_gradient(0)}, attributes)};
}

}  // namespace

const std::vector<OpDef>& cumsum() {
  static const std::vector<OpDef> defs{{.name = "CumSum",
                                        .domain = "",
                                        .infer = infer,
                                        .gradient = gradient,
                                        .autocast = Autocast::fp32,
                                        .keeps_samples = samples::inner_axis<0>}};
  return defs;
}

}  // namespace halfscope::ops
