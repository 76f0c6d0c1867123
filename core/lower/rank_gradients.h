// SPDX-License-Identifier: MIT
// The gradients of data-parallel ranks in one graph: each rank's goes into its row of a stack, and
// one node makes their mean as an all-reduce does.
#pragma once

#include "core/graph/graph.h"
#include "core/numeric/sums/reduction.h"

namespace halfscope {

struct RankInputs {
  ValueId rank = kNone;        ///< scalar: whose gradients have just been computed
  ValueId takes_part = kNone;  ///< by rank: 0 where it adds nothing to the sums
};

struct RankSum {
  ValueId stack = kNone;    ///< the variable [ranks, ...] with the gradients of all ranks
  ValueId stored = kNone;   ///< the same after a rank's gradient was stored
  ValueId reduced = kNone;  ///< their mean
};

/// Adds both for graph.variables()[variable], whose gradient on one rank this is.
RankSum add_rank_sum(Graph& graph, size_t variable, ValueId gradient, const RankInputs& inputs,
                     int64_t ranks, const Reduction& how);

}  // namespace halfscope
