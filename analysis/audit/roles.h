// SPDX-License-Identifier: MIT
// What a constant is there for, as the nodes that follow it tell: structure alone, no names.
#pragma once

#include <optional>
#include <string>

#include "core/graph/graph.h"

namespace halfscope {

/// Something that is infinite or not a number at 0, on the way from a value.
struct Singular {
  NodeId node = kNone;
  bool divides = true;  ///< else it takes a logarithm
  /// It divides by the value to this power: 2 of squares, 0.5 of roots.
  double power = 1.0;
};

/// Returns the first node that divides by `value`, or takes the logarithm of it, behind nodes that
/// are 0 exactly where it is: roots, powers, casts, movements, non-zero factors.
std::optional<Singular> singular_behind(const Graph& graph, ValueId value);

/// Returns whether a number that may be the result: of Add, Sub, Max, Min, Clip, Where.
bool may_be_result(const Node& node);

/// How a softmax reads what the node makes of a constant.
enum class Masking : uint8_t {
  none,     ///< no softmax reads it, or not only by sums
  guarded,  ///< every line that the softmax is taken along keeps a finite number, or it gives zeros
  whole,    ///< some line is infinite throughout
  unknown,  ///< which elements count is known only in a run
};
/// `tensor`: the constant as it is in the format, which `node` reads as input `operand`.
Masking masking_of(const Graph& graph, NodeId node, size_t operand, const Tensor& tensor);

}  // namespace halfscope
