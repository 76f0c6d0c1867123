// SPDX-License-Identifier: MIT
// The range of outputs that a plan clamps, or stores scaled by a power of two, for lower(). Both
// are formats: one that saturates, and one with its range moved (moved_range() in
// core/plan/plan.h). They are set after all other formats are settled, so that neither gradients
// nor nodes that follow their inputs inherit them.
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Sets them for all nodes of the forward pass. Throws Error (usage) for a format whose range
/// cannot be moved.
void set_result_ranges(Graph& graph);

/// Returns the exponent of the power of two by which a stored value is multiplied; 0 for most
/// values.
int prescale_of(const Graph& graph, ValueId value);

}  // namespace halfscope
