// SPDX-License-Identifier: MIT
// Reverse-mode differentiation: adds the gradient nodes of a scalar to its own graph.
#pragma once

#include <map>

#include "core/graph/graph.h"

namespace halfscope {

/// For every value that the scalar `loss` depends on and that leads to a variable: its gradient.
using GradientMap = std::map<ValueId, ValueId>;

/// Walks the nodes backwards from `loss`, whose own gradient is `seed` (a scalar value). Each
/// operator's rule adds nodes; contributions of several readers are added up in the order in
/// which the walk meets them. Throws Error if an operator on the way has no gradient.
GradientMap differentiate(Graph& graph, ValueId loss, ValueId seed);

}  // namespace halfscope
