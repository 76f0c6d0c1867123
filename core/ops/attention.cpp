// SPDX-License-Identifier: MIT
// Attention (ours), as exporters write it in primitives, so that a plan can name it as one
// operator:
//   y = dropout(softmax(mask(q k * scale))) v
// q [..., n, d], k [..., d, m] (already transposed), v [..., m, e] -> y [..., n, e]; the leading
// dimensions broadcast as in MatMul, the softmax runs over m. Inputs after v are masks, in order:
//   mask              real: added to the scores
//   condition, fill   index and real: scores where the condition is nonzero, otherwise the fill;
//   the
//                     other way round for mask i if bit i of attribute fill_where_true is set
// All masks broadcast with the scores. With attribute zero_masked, fully masked rows give zeros
// (core/ops/softmax.cpp). The scores are multiplied by attribute `scale`, or with attribute
// `divide` divided by it, in fp32; without it they are not scaled.
//
// With attribute `one_kernel`, a kernel computes it as a whole, as PyTorch's
// scaled_dot_product_attention does: only the operands of both products have the plan's formats.
// Scores, masks and softmax are fp32, and so are the gradients between the products
// (FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2; it divides by the sum of exponentials
// after the second product, here the softmax is rounded instead).
//
// With attribute `dropout`, the weights of the sum over v are dropped with this ratio in training.
//
// It has no kernel and no gradient: lower() always expands it into MatMul PATH/scores, Mul or Div
// PATH/scale, Add or Where PATH/mask (PATH/mask_2 ...), Softmax PATH/softmax, Dropout PATH/dropout
// and MatMul PATH/mix.
#include "core/graph/unrounded.h"
#include "core/ops/definitions.h"
#include "core/ops/softmax.h"

namespace halfscope {

std::vector<AttentionMask> attention_masks(const Graph& graph, const Node& node) {
  std::vector<AttentionMask> masks;
  const int64_t fills = int_attribute(node, "fill_where_true", 0);
  for (size_t i = 3; i < node.inputs.size(); ++i) {
    check_node(node, masks.size() < 8, "has too many masks");
    AttentionMask mask{.condition = kNone, .value = i};
    if (graph.value(node.inputs[i]).type == ElementType::index) {
      check_node(node, i + 1 < node.inputs.size(), "a condition needs a fill");
      mask = {.condition = node.inputs[i], .value = ++i, .fills = (fills >> masks.size() & 1) != 0};
    }
    check_real(graph, node, mask.value);
    masks.push_back(mask);
  }
  return masks;
}

namespace ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  const size_t count = node.inputs.size();
  check_node(node, count >= 3, "needs q, k and v, then masks or conditions and fills");
  for (size_t i = 0; i < 3; ++i) check_real(graph, node, i);
  attention_masks(graph, node);
  const auto shape = [&](size_t i) { return graph.value(node.inputs[i]).shape; };
  for (size_t i = 0; i < 3; ++i)
    check_node(node, shape(i).size() >= 2, "q, k and v need at least two dimensions");
  Shape scores = matmul_shape(node, shape(0), shape(1)).result;
  for (size_t i = 3; i < count; ++i) scores = broadcast_shapes(node, scores, shape(i));
  return {{matmul_shape(node, scores, shape(2)).result}};
}

std::vector<ValueId> expand(Graph& graph, const Node& node) {
  const bool one_kernel = int_attribute(node, "one_kernel", 0) != 0;
  const auto add = [&](const char* op, const std::string& name, std::vector<ValueId> inputs,
                       Attributes attributes = {}, int64_t place = kKernelInside) {
    if (one_kernel && place != 0) attributes[kInKernel] = place;
    return graph.add1(op, node.path + "/" + name, std::move(inputs), std::move(attributes));
  };
  ValueId x = add("MatMul", "scores", {node.inputs[0], node.inputs[1]}, {}, kKernelStart);
  if (node.attributes.contains("scale")) {
    const auto scale = static_cast<float>(real_attribute(node, "scale", 1.0));
    const bool divides = int_attribute(node, "divide", 0) != 0;
    x = add(divides ? "Div" : "Mul", "scale", {x, graph.add_constant(scale)});
  }
  std::string name = "mask";
  const std::vector<AttentionMask> masks = attention_masks(graph, node);
  for (size_t i = 0; i < masks.size(); ++i) {
    const ValueId condition = masks[i].condition, value = node.inputs[masks[i].value];
    if (i > 0) name = "mask_" + std::to_string(i + 1);
    x = condition == kNone ? add("Add", name, {x, value})
        : masks[i].fills   ? add("Where", name, {condition, value, x})
                           : add("Where", name, {condition, x, value});
  }
  Attributes softmax;
  if (zeroes_masked_lines(node)) softmax["zero_masked"] = int64_t{1};
  x = add("Softmax", "softmax", {x}, std::move(softmax));
  if (node.attributes.contains("dropout")) {
    x = add("Dropout", "dropout", {x},
            {{"ratio", real_attribute(node, "dropout", 0.0)},
             {"training_mode", int_attribute(node, "training_mode", 0)}});
  }
  return {add("MatMul", "mix", {x, node.inputs[2]}, {}, 0)};
}

}  // namespace

const std::vector<OpDef>& attention() {
  static const std::vector<OpDef> defs{{.name = "Attention",
                                        .domain = "halfscope",
                                        .infer = infer,
                                        .expand = expand,
                                        .autocast = Autocast::low,
                                        .always_expands = true}};
  return defs;
}

}  // namespace ops
}  // namespace halfscope
