// SPDX-License-Identifier: MIT
// Settings of a node's plan that its products cannot follow.
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Throws Error (usage) unless tensor cores can compute the products that the plan assigns to them.
/// fp32 operands do not use tensor cores.
void check_tensor_cores(const Node& node);

/// Throws Error (usage) if the node's scales need operands of another format.
void check_scale(const Node& node);

/// Throws Error (usage) if the node's plan only has a meaning in inference.
void check_trains(const Node& node);

}  // namespace halfscope
