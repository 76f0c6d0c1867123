// SPDX-License-Identifier: MIT
// Attention (ours), as exporters write it in primitives, so that a plan can name it as one:
//   y = softmax(mask(q k * scale)) v
// q [..., n, d], k [..., d, m] (transposed already), v [..., m, e] -> y [..., n, e]; the dimensions
// in front broadcast as in MatMul, the softmax runs over m. Inputs after v make the mask:
//   mask              real: added to the scores
//   condition, fill   index and real: scores where the condition is nonzero, else the fill; with
//                     attribute fill_where_true the other way round
// both broadcast with the scores. Attribute `scale` is what the scores are multiplied by, or with
// attribute `divide` divided by, in fp32; without it they are not scaled.
//
// It has no kernel and no gradient: lower() always makes it MatMul PATH/scores, Mul or Div
// PATH/scale, Add or Where PATH/mask, Softmax PATH/softmax and MatMul PATH/mix.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  const size_t count = node.inputs.size();
  check_node(node, count >= 3 && count <= 5, "needs q, k and v, then a mask or condition and fill");
  for (size_t i = 0; i < count; ++i) {
    if (i == 3 && count == 5) {
      check_index(graph, node, i);
    } else {
      check_real(graph, node, i);
    }
  }
  const auto shape = [&](size_t i) { return graph.value(node.inputs[i]).shape; };
  for (size_t i = 0; i < 3; ++i)
    check_node(node, shape(i).size() >= 2, "q, k and v need at least two dimensions");
  Shape scores = matmul_shape(node, shape(0), shape(1)).result;
  for (size_t i = 3; i < count; ++i) scores = broadcast_shapes(node, scores, shape(i));
  return {{matmul_shape(node, scores, shape(2)).result}};
}

std::vector<ValueId> expand(Graph& graph, const Node& node) {
  const auto add = [&](const char* op, const char* name, std::vector<ValueId> inputs) {
    return graph.add1(op, node.path + "/" + name, std::move(inputs));
  };
  ValueId x = add("MatMul", "scores", {node.inputs[0], node.inputs[1]});
  if (node.attributes.contains("scale")) {
    const auto scale = static_cast<float>(real_attribute(node, "scale", 1.0));
    const bool divides = int_attribute(node, "divide", 0) != 0;
    x = add(divides ? "Div" : "Mul", "scale", {x, graph.add_constant(scale)});
  }
  if (node.inputs.size() == 4) {
    x = add("Add", "mask", {x, node.inputs[3]});
  } else if (node.inputs.size() == 5) {
    const ValueId condition = node.inputs[3], fill = node.inputs[4];
    const bool fills = int_attribute(node, "fill_where_true", 0) != 0;
    x = fills ? add("Where", "mask", {condition, fill, x})
              : add("Where", "mask", {condition, x, fill});
  }
  return {add("MatMul", "mix", {add("Softmax", "softmax", {x}), node.inputs[2]})};
}

}  // namespace

const std::vector<OpDef>& attention() {
  static const std::vector<OpDef> defs{{.name = "Attention",
                                        .domain = "halfscope",
                                        .infer = infer,
                                        .expand = expand,
                                        .always_expands = true}};
  return defs;
}

}  // namespace halfscope::ops
