// SPDX-License-Identifier: MIT
// Scaled operands; lower() inserts these nodes where a product reads them.
//   Quantize(x[, state]) -> (codes, scale, tensor_scale): codes are x over its scale, rounded to
//     the output's format. With attribute block = 0 there is a single scale, and `scale` is the
//     factor of the codes. With block = N every N elements along `axis` share one, and also N along
//     axis 0 if `square` is 1 (then axis is 1). If `through` is 1, `axis` and all axes after it
//     count as one.
//   Dequantize(codes, scale, tensor_scale) -> values, for block scales, with the same attributes.
//   ScaleUpdate(x, state) -> state: the memory of delayed scaling: the factor of the next step, the
//     position of the next entry, and the largest magnitudes of the last steps.
#include <algorithm>

#include "core/ops/definitions.h"

namespace halfscope {

BlockShape block_shape(const Node& node, const Shape& shape) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  const int64_t given = int_attribute(node, "axis", 0);
  // A column stored as one dimension has no second axis from the end.
  const int64_t axis = given < 0 ? std::max<int64_t>(given + rank, 0) : given;
  const bool square = int_attribute(node, "square", 0) != 0;
  check_node(node, axis >= 0 && axis < rank, "axis out of range");
  check_node(node, !square || axis == 1, "square blocks must be along the first two axes");
  const bool through = int_attribute(node, "through", 0) != 0;
  BlockShape result;
  result.length = shape[static_cast<size_t>(axis)];
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int64_t>(i) < axis) result.outer *= shape[i];
    if (static_cast<int64_t>(i) > axis) (through ? result.length : result.inner) *= shape[i];
  }
  if (square) result.outer_block = int_attribute(node, "block", 0);
  return result;
}

BlockFormat block_format(const Node& node) {
  const TensorScale& choice = node.plan.scale;
  BlockFormat format{.element = node.op == "Quantize" ? node.plan.write : node.plan.read,
                     .block_size = static_cast<int>(int_attribute(node, "block", 0)),
                     .rule = choice.rule};
  format.amax_floor = choice.amax_floor;
  format.unguarded = choice.unguarded;
  if (choice.fp32_scales || choice.kind == TensorScale::Kind::channel)
    format.scale = ScaleKind::fp32;
  if (choice.kind == TensorScale::Kind::nvfp4) format.scale = ScaleKind::e4m3fn_and_fp32;
  return format;
}

namespace ops {
namespace {

Shape scale_shape(const Node& node, const Shape& shape) {
  const int64_t block = int_attribute(node, "block", 0);
  if (block == 0) return {};
  BlockFormat format;
  format.block_size = static_cast<int>(block);
  return {block_count(block_shape(node, shape), format)};
}

std::vector<OutputType> infer_quantize(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1 || node.inputs.size() == 2, "needs one or two inputs");
  check_node(node, int_attribute(node, "block", 0) >= 0, "block must not be negative");
  const Shape& x = graph.value(node.inputs[0]).shape;
  return {{x}, {scale_shape(node, x)}, {Shape{}}};
}

std::vector<OutputType> infer_dequantize(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 3, "needs three inputs");
  const Shape& x = graph.value(node.inputs[0]).shape;
  check_node(node, graph.value(node.inputs[1]).shape == scale_shape(node, x),
             "the scales do not fit the codes");
  return {{x}};
}

std::vector<OutputType> infer_update(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  const Shape& state = graph.value(node.inputs[1]).shape;
  check_node(node, state.size() == 1 && state[0] > kScaleStateHead,
             "the state must be a scale, a position and a history");
  return {{state}};
}

}  // namespace

const std::vector<OpDef>& quantize() {
  static const std::vector<OpDef> defs{
      {.name = "Quantize",
       .domain = "halfscope",
       .infer = infer_quantize,
       .autocast = Autocast::internal,
       .statistics_from = 1},
      {.name = "Dequantize",
       .domain = "halfscope",
       .infer = infer_dequantize,
       .autocast = Autocast::internal},
      {.name = "ScaleUpdate",
       .domain = "halfscope",
       .infer = infer_update,
       .autocast = Autocast::internal},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
