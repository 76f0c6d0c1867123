// SPDX-License-Identifier: MIT
// RankReduction: an all-reduce as attributes of its node.
#pragma once

#include "core/graph/graph.h"
#include "core/numeric/sums/reduction.h"

namespace halfscope {

/// Returns the attributes of the node that performs this reduction. They do not include the format,
/// which is that of the node's output, nor who votes.
Attributes reduction_attributes(const Reduction& reduction);
Reduction reduction_of(const Node& node);
/// Returns the attribute of RankGradients and RankReduction that allows sums of ranks in the stack
/// (core/ops/training.cpp). All ranks must take part.
Attributes folding_attributes(const Reduction& reduction);
bool may_fold(const Node& node);
/// Returns whether the node gets a mean that processes have computed (core/exchange/rank_means.h).
bool is_exchanged(const Node& node);

}  // namespace halfscope
