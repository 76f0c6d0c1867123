// SPDX-License-Identifier: MIT
// The gradients of data-parallel ranks in one graph: each rank's goes into its row of a stack, and
// one node makes their mean as an all-reduce does.
#pragma once

#include <vector>

#include "core/lower/lower.h"

namespace halfscope {

/// Takes over how many ranks there are and how they reduce, and adds the inputs that say which one
/// computes and who takes part.
void add_rank_inputs(Executable& out, const Plan& plan, const TrainingSpec& spec);

/// Adds both for graph.variables()[variable], whose gradient on one rank this is; returns the mean.
/// What stores a rank's gradient is added to `stores`.
ValueId add_rank_sum(Executable& out, size_t variable, ValueId gradient,
                     std::vector<ValueId>& stores);

/// Adds the sum of squares of one rank's gradients, by which it sees whether all are finite.
ValueId add_rank_norm(Executable& out, const std::vector<ValueId>& gradients);

}  // namespace halfscope
