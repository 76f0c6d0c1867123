// SPDX-License-Identifier: MIT
// Intended infinities: a mask adds or selects -infinity so that a softmax gives 0 there.
#pragma once

#include "core/observe/recording.h"

namespace halfscope {

/// Returns whether the only non-finite values of an input, or of the output of an Add or a Where,
/// are -infinity, and no rounding produced them. They must then come from a constant or from the
/// data, because sums of numbers in a reduced format are finite in fp32. `Counts` is TensorStats or
/// TensorCounts.
template <class Counts>
bool contains_mask(const SiteInfo& site, const Counts& counts) {
  const bool moves = site.role == Role::activation && (site.op == "Where" || site.op == "Add");
  return site.phase == Phase::forward && (moves || site.role == Role::input) &&
         counts.neg_inf > 0 && counts.neg_inf == counts.non_finite() && counts.overflow == 0;
}

}  // namespace halfscope
