// SPDX-License-Identifier: MIT
// The range of results that a plan clamps or keeps scaled by a power of two, for lower(). Both are
// formats: one that saturates, and one with its range moved (moved_range() in core/plan/plan.h).
// They are set after all other formats are settled, so that neither gradients nor what follows its
// inputs takes them over.
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Of all nodes of the forward pass. Throws Error (usage) for a format whose range cannot move.
void set_result_ranges(Graph& graph);

/// The power of two that a value is kept times, as an exponent; 0 of most.
int prescale_of(const Graph& graph, ValueId value);

}  // namespace halfscope
