// SPDX-License-Identifier: MIT
// GatherElements along the last axis of x [n, c] with indices [n, 1]: picks one element a row.
// A negative index stands for "ignore this row": it reads 0 and its gradient row is 0.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  const Shape& x = graph.value(node.inputs[0]).shape;
  const Value& indices = graph.value(node.inputs[1]);
  check_node(node,
             x.size() == 2 && indices.type == ElementType::index && !indices.shape.empty() &&
                 indices.shape[0] == x[0],
             "needs x [n, c] and one index per row");
  return {{Shape{x[0], 1}}};
}

std::vector<OutputType> infer_grad(const Graph&, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  return {{ints_attribute(node, "shape")}};
}

std::vector<ValueId> gradient(GradientContext& c) {
  return {c.add("GatherElementsGrad", {c.output_gradient(0), c.input(1)},
                {{"shape", c.input_shape(0)}}),
          kNone};
}

}  // namespace

const std::vector<OpDef>& gather() {
  static const std::vector<OpDef> defs{
      {.name = "GatherElements",
       .domain = "",
       .infer = infer,
       .gradient = gradient,
       .selects = true},
      {.name = "GatherElementsGrad", .domain = "halfscope", .infer = infer_grad, .selects = true},
  };
  return defs;
}

}  // namespace halfscope::ops
