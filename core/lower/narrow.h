// SPDX-License-Identifier: MIT
// Operands that a node reads in a narrower format than they are stored in: one Cast per (value,
// format, rounding), or for scaled operands of products
//
//   one scale     Quantize -> codes, scale;              the product multiplies its sums by scale
//   by block      Quantize -> codes, scales -> Dequantize; the product sums the values
//   delayed       Quantize also reads a state, which ScaleUpdate moves on once per forward pass
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

/// Where a product has the factors for its sums: inputs beyond the bias, of the first operand and
/// of the second.
inline constexpr size_t kFirstScaleInput = 3;

/// True if the node's narrow operands are scaled: it sums products, and its plan says so.
bool scales_operands(const Node& node);

/// The format in which the node reads input i; wider values than that are narrowed.
FloatFormat read_format(const Graph& graph, const Node& node, size_t i);

/// The value that was narrowed to this one, or the value itself.
ValueId before_narrowing(const Graph& graph, ValueId value);

struct Narrowed {
  std::vector<NodeId> order;     ///< all nodes, in execution order
  std::vector<ValueId> updates;  ///< next states of delayed scaling
};

/// Inserts the nodes drawn above. Only narrowing needs one: a value of a narrower format is a value
/// of the wider one already.
Narrowed narrow_operands(Graph& graph);

}  // namespace halfscope
