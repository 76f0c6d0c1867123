// SPDX-License-Identifier: MIT
// What rules ask about the optimizer of a lane: which state its steps are divided by, and which
// gradients cannot move anything.
#pragma once

#include "analysis/rules/lane_facts.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {

/// State that steps are divided by the root of: v of Adam, the mean square of RMSprop, and the
/// squares that are added to them. Too small a value makes the step too large.
bool divides_steps(const SiteInfo& state);

/// Updates of a site that left their variable unchanged, of those that are not zero.
struct LostCounts {
  int64_t lost = 0, non_zero = 0;
  int64_t first_step = -1;
  double share() const { return share_of(lost, non_zero); }
};
LostCounts count_lost(const RunView& run, int lane, int site);

/// Whether a gradient cannot matter, as the reference shows. That of a variable is zero there, or
/// the rounding error of a sum that is zero, or fp32 loses the updates that are made of it. That of
/// a tensor reaches such variables only.
bool is_negligible_gradient(const LaneFacts& lane, const SiteInfo& site);

}  // namespace halfscope
