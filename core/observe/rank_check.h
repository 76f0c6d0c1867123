// SPDX-License-Identifier: MIT
// What the reduction over data-parallel ranks did to the gradients of one step, and what it would
// have done to those of fewer ranks.
#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/observe/recording.h"

namespace halfscope {

/// One row per variable and number of ranks (2, 4, 8 ... and all of them). The program has reduced
/// the gradients of `step`.
std::vector<ReductionError> check_reductions(int64_t step, const Executable& executable,
                                             const Program& program);

/// The mean over terms[0 .. ranks) as the reduction delivers it for an element of `chunk`, all hops
/// in `format`. The additions that changed nothing are counted in `row`. One element at a time:
/// what kernels are compared with.
float reduce_element(const Reduction& how, const std::vector<RankAddition>& additions,
                     const FloatFormat& format, std::vector<float>& terms, ReductionError* row);

}  // namespace halfscope
