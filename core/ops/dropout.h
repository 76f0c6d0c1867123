// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "core/bodies/dropout.h"
#include "core/graph/graph.h"

namespace halfscope {

/// Returns whether the node is a Dropout in training, or the gradient of one.
bool drops_elements(const Node& node);

/// Returns the draws of a Dropout or its gradient, which have the same path; none in inference.
DropoutDraw dropout_of(const Node& node, uint64_t seed, uint64_t step);

/// Makes every Dropout of a network, also inside attention, pass its input through as in inference.
/// Returns how many dropped elements before. For networks that have no gradients yet.
int64_t switch_dropout_off(Graph& graph);

}  // namespace halfscope
