// SPDX-License-Identifier: MIT
// The role of a constant, from the nodes that read it: structure alone, no names.
#pragma once

#include <optional>
#include <string>

#include "core/graph/graph.h"

namespace halfscope {

/// An operation downstream of a value that is infinite or NaN at 0.
struct Singular {
  NodeId node = kNone;
  bool divides = true;  ///< else it takes a logarithm
  /// It divides by the value to this power: 2 for squares, 0.5 for square roots.
  double power = 1.0;
};

/// Returns the first node that divides by `value`, or takes its logarithm, directly or after nodes
/// that are 0 exactly where it is: roots, powers, casts, movements, non-zero factors.
std::optional<Singular> singular_behind(const Graph& graph, ValueId value);

/// Returns whether an operand may itself be the output: Add, Sub, Max, Min, Clip, Where.
bool may_be_result(const Node& node);

/// How a softmax uses a constant as a mask.
enum class Masking : uint8_t {
  none,     ///< no softmax reads it, or not only by sums
  guarded,  ///< every row of the softmax keeps a finite value, or it gives zeros
  whole,    ///< some row is infinite throughout
  unknown,  ///< which elements count is known only in a run
};
/// @param tensor the constant in the format, which `node` reads as input `operand`
Masking masking_of(const Graph& graph, NodeId node, size_t operand, const Tensor& tensor);

}  // namespace halfscope
