// SPDX-License-Identifier: MIT
// Operands that a node reads in a format with fewer bits than they are stored in: one Cast per
// (value, format, rounding), or for scaled operands of products
//
//   one scale     Quantize -> codes, scale;              the product multiplies its sums by scale
//   by block, by channel
//                 Quantize -> codes, scales -> Dequantize; the product sums the values
//   delayed       Quantize also reads a state, which ScaleUpdate advances once per forward pass
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

/// First of the two inputs, after the bias, by which a product multiplies its sums: the scale of
/// its first operand, then that of its second.
inline constexpr size_t kFirstScaleInput = 3;

/// Returns how the plan scales a product's operand 0 or 1.
const TensorScale& operand_scale(const NodePlan& plan, size_t i);

/// Returns whether the node scales narrow operands: it sums products, and its plan says so.
bool scales_operands(const Node& node);

/// Returns the format in which the node reads input i; values with more precision or range are
/// narrowed.
FloatFormat read_format(const Graph& graph, const Node& node, size_t i);

/// Returns the value from which this one was narrowed, or the value itself.
ValueId before_narrowing(const Graph& graph, ValueId value);

struct Narrowed {
  std::vector<NodeId> order;     ///< all nodes, in execution order
  std::vector<ValueId> updates;  ///< next states of delayed scaling
};

/// Inserts the nodes described above. A value is narrowed only if its format is not a subset of the
/// read format.
Narrowed narrow_operands(Graph& graph);

}  // namespace halfscope
