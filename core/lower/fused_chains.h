// SPDX-License-Identifier: MIT
// Chains of element-wise operators that round once, at their end, as a compiler that fuses them
// computes: XLA by default (xla_allow_excess_precision), torch.compile.
#pragma once

#include <set>

#include "core/graph/graph.h"

namespace halfscope {

/// Marks the results inside chains as unrounded (core/graph/unrounded.h): results of element-wise
/// operators of the forward pass that only another such operator reads, with as many elements.
/// Values in `kept`, nodes of stagewise plans and Casts end a chain. Gradients of these results
/// stay in fp32, too. The formats are not settled yet.
void fuse_chains(Graph& graph, const std::set<ValueId>& kept);

}  // namespace halfscope
