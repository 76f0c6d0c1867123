// SPDX-License-Identifier: MIT
// RankReduction: an all-reduce as attributes of its node.
#pragma once

#include "core/graph/graph.h"
#include "core/numeric/sums/reduction.h"

namespace halfscope {

/// Returns the attributes of the node that reduces in this way. The format is that of its result,
/// and who votes is no part of it.
Attributes reduction_attributes(const Reduction& reduction);
Reduction reduction_of(const Node& node);

}  // namespace halfscope
