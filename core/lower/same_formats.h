// SPDX-License-Identifier: MIT
// Products where PyTorch's autocast is off ("autocast": "off" in a plan).
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Throws Error (usage) if the node is a product in such a region and its operands have different
/// formats, which PyTorch refuses. Constants take the format of the other operand. The formats of
/// the node's inputs must be known, those of variables as they are stored.
void check_same_formats(const Graph& graph, const Node& node);

}  // namespace halfscope
