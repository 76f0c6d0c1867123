// SPDX-License-Identifier: MIT
// The layers that the paths of a plan mean.
#pragma once

#include "core/graph/graph.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Returns the plan with a rule for every node that one of its rules means by another name than its
/// path: by the module that it is a part of ("layer1.0" of "layer1.0:add"), or by what an imported
/// file calls it (Node::alias).
Plan by_paths(const Plan& plan, const Graph& graph);

/// A path must match a layer, or a primitive of a composite that the plan expands. Throws Error
/// (usage) if one does not.
void check_paths(const Graph& graph, const Graph& expanded, const Plan& plan);

}  // namespace halfscope
