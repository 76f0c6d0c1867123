// SPDX-License-Identifier: MIT
// Infinities that are meant: a mask adds or selects -infinity, so that a softmax gives 0 there.
#pragma once

#include "core/observe/recording.h"

namespace halfscope {

/// What is given, and what adds or selects, holds no number that is not finite but -infinity, and
/// no rounding made it: then it came from a constant or from the data, as sums of numbers of a
/// narrow format are numbers of fp32. `Counts` is TensorStats or TensorCounts.
template <class Counts>
bool holds_a_mask(const SiteInfo& site, const Counts& counts) {
  const bool moves = site.role == Role::activation && (site.op == "Where" || site.op == "Add");
  return site.phase == Phase::forward && (moves || site.role == Role::input) &&
         counts.neg_inf > 0 && counts.neg_inf == counts.non_finite() && counts.overflow == 0;
}

}  // namespace halfscope
