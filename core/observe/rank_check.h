// SPDX-License-Identifier: MIT
// Measures what the reduction over data-parallel ranks did to the gradients of one step, and what
// it would have done with fewer ranks.
#pragma once

#include <functional>
#include <vector>

#include "core/backend/backend.h"
#include "core/observe/recording.h"

namespace halfscope {

/// Returns one row per variable and number of ranks (2, 4, 8 ... and all of them). The program has
/// reduced the gradients of `step`; `gradients` returns a variable's gradients, [ranks, ...].
std::vector<ReductionError> check_reductions(
    int64_t step, const Executable& executable, const Program& program,
    const std::function<std::vector<float>(const ReducedGradient&)>& gradients);

}  // namespace halfscope
