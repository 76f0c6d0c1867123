// SPDX-License-Identifier: MIT
// Adds a source graph's node to the executable graph, either unchanged or expanded into primitives.
// For the passes of core/graph.
#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Adds the node, whose inputs are values of `graph`, with its part of the plan, and returns its
/// outputs. Composites that the plan makes stagewise become primitives, which take the composite's
/// plan unless a rule names their own path. The parts of a composite that always expands are
/// planned by their own operator and path, like ordinary nodes; rules that select the composite
/// select all of its parts.
std::vector<ValueId> add_planned(Graph& graph, const Node& node, const Plan& plan);

}  // namespace halfscope
