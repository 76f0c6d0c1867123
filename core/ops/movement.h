// SPDX-License-Identifier: MIT
// Describes the operators that move elements and compute nothing (Expand, Transpose, Concat, Split,
// Slice, SliceGrad, Pad) as boxes of elements, with separate strides in the operand and in the
// result. Backends only copy boxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

/// Distances of neighbours along each dimension: 0 where a tensor is stretched, negative where it
/// is read backwards.
using Strides = std::vector<int64_t>;

Strides row_major(const Shape& shape);

/// Returns the strides of `shape` when it is broadcast to `to`: 0 along stretched dimensions.
Strides broadcast_strides(const Shape& shape, const Shape& to);

/// Copies a box of elements of these sizes from an input to an output. The box begins at elements
/// first_from and first_to.
struct BoxCopy {
  size_t input = 0, output = 0;
  Shape sizes;
  Strides from, to;
  int64_t first_from = 0, first_to = 0;
};

/// Copies the elements of a box, one by one.
void copy_box(const BoxCopy& box, std::span<const float> from, std::span<float> to);

struct Movement {
  std::optional<double> fill;  ///< initial value of the first output's elements
  std::vector<BoxCopy> boxes;
};

/// Returns the node that computes a value, or whose elements it has: nodes that only move, pick or
/// round elements are passed over. kNone for inputs, variables and constants.
NodeId maker_of(const Graph& graph, ValueId value);

/// Returns the movement of a node whose operator has OpDef::movement.
Movement movement_of(const Graph& graph, const Node& node);

/// Implementations of OpDef::movement for the operators above.
namespace movements {
Movement expand(const Graph& graph, const Node& node);
Movement transpose(const Graph& graph, const Node& node);
Movement concat(const Graph& graph, const Node& node);
Movement split(const Graph& graph, const Node& node);
Movement slice(const Graph& graph, const Node& node);
Movement slice_grad(const Graph& graph, const Node& node);
Movement pad(const Graph& graph, const Node& node);
}  // namespace movements

}  // namespace halfscope
