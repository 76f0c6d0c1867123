// SPDX-License-Identifier: MIT
// How a node of a source graph enters the executable one: as it is, or as the primitives that it
// stands for. For the passes of core/graph.
#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Adds the node, whose inputs are values of `graph`, with what the plan says of it, and returns
/// its outputs. Composites become primitives where the plan wants them stagewise: these work as the
/// composite does unless a rule names their own path. The parts of a composite that always
/// expands resolve by their own operator and path, as ordinary nodes do, and rules that select the
/// composite select all of its parts.
std::vector<ValueId> add_planned(Graph& graph, const Node& node, const Plan& plan);

}  // namespace halfscope
