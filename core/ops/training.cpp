// SPDX-License-Identifier: MIT
// What a training step adds after the gradients. Arithmetic of the updates is fp32 inside, each
// operation rounded to fp32, and the new state is rounded once to its storage format.
//
// GradientNorm(g_1, ..., g_n): sum of squares over all elements, in double, in chunks of a fixed
//   order; it is finite exactly if every element is.
// SgdUpdate(w, g, inverse_scale, learning_rate[, velocity]) -> w', update[, velocity']
//   g' = g * inverse_scale; if weight_decay: g' = g' + weight_decay * w;
//   if momentum: velocity' = momentum * velocity + g', g' = velocity';
//   update = -(learning_rate * g'); w' = w + update            (torch.optim.SGD)
// AdamUpdate(w, g, inverse_scale, learning_rate, correction_1, correction_2, m, v)
//     -> w', update, m', v'
//   m' = b1 m + (1 - b1) g'; v' = b2 v + (1 - b2) g'^2;
//   update = -(learning_rate / correction_1) * m' / (sqrt(v') / sqrt(correction_2) + eps)
//   with correction_i = 1 - b_i^t                               (torch.optim.Adam)
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer_norm(const Graph&, const Node&) { return {{Shape{}}}; }

std::vector<OutputType> infer_update(const Graph& graph, const Node& node, size_t scalars) {
  const size_t fixed = 2 + scalars;
  check_node(node, node.inputs.size() >= fixed, "too few inputs");
  const Shape& w = graph.value(node.inputs[0]).shape;
  check_node(node, graph.value(node.inputs[1]).shape == w, "weight and gradient differ in shape");
  for (size_t i = fixed; i < node.inputs.size(); ++i) {
    check_node(node, graph.value(node.inputs[i]).shape == w, "optimizer state differs in shape");
  }
  return std::vector<OutputType>(2 + node.inputs.size() - fixed, OutputType{w});
}

std::vector<OutputType> infer_sgd(const Graph& graph, const Node& node) {
  return infer_update(graph, node, 2);
}
std::vector<OutputType> infer_adam(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 8, "needs eight inputs");
  return infer_update(graph, node, 4);
}

}  // namespace

const std::vector<OpDef>& training() {
  static const std::vector<OpDef> defs{
      {"GradientNorm", "halfscope", infer_norm},
      {"SgdUpdate", "halfscope", infer_sgd},
      {"AdamUpdate", "halfscope", infer_adam},
  };
  return defs;
}

}  // namespace halfscope::ops
