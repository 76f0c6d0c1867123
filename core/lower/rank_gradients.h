// SPDX-License-Identifier: MIT
// Gradients of data-parallel ranks in one graph: each rank's gradient goes into its row of a stack,
// and one node computes their mean as an all-reduce does.
#pragma once

#include <vector>

#include "core/lower/lower.h"

namespace halfscope {

/// Sets the number of ranks, how they reduce, and adds the inputs that say which rank computes
/// and which ranks take part.
void add_rank_inputs(Executable& out, const Plan& plan, const TrainingSpec& spec);

/// Adds the stack and the mean for graph.variables()[variable]; `gradient` is its gradient on one
/// rank, and `parts` the number of micro-batches that it is summed from. Returns the mean, and adds
/// the value that stores a rank's gradient to `stores`.
ValueId add_rank_sum(Executable& out, size_t variable, ValueId gradient, int64_t parts,
                     std::vector<ValueId>& stores);

/// Adds a number that is finite exactly if all of one rank's gradients are.
ValueId add_rank_norm(Executable& out, const std::vector<ValueId>& gradients);

}  // namespace halfscope
