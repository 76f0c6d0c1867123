// SPDX-License-Identifier: MIT
// Softmax of a line in which everything is masked, that is, -inf.
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Returns whether such a line gives zeros, without a gradient, instead of NaN (attribute
/// zero_masked). A NaN or a +inf in a line gives NaN either way.
bool zeroes_masked_lines(const Node& node);

}  // namespace halfscope
