// SPDX-License-Identifier: MIT
// Resolves the paths in a plan to layers.
#pragma once

#include "core/graph/graph.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Returns the plan with an extra rule for every node that one of its rules selects by a name other
/// than its path: the module that contains it ("layer1.0" for "layer1.0:add"), or its name in an
/// imported file (Node::alias).
Plan by_paths(const Plan& plan, const Graph& graph);

/// Throws Error (usage) unless every path matches a layer, or a primitive of a composite that the
/// plan expands.
void check_paths(const Graph& graph, const Graph& expanded, const Plan& plan);

}  // namespace halfscope
