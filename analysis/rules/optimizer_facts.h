// SPDX-License-Identifier: MIT
// Facts about the optimizer of a lane: its settings, which state divides its steps, and which
// gradients cannot move anything.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "analysis/rules/lane_facts.h"
#include "core/lower/optimizer.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {

/// Returns the optimizer of a run, or nothing if another program trained it.
std::optional<Optimizer> recorded_optimizer(const RunInfo& info);

/// Returns whether the optimizer is PyTorch's Rprop. It leaves weights unchanged on purpose where
/// the signs of their gradients change.
bool steps_on_signs(const RunInfo& info);

/// Returns whether steps are divided by the square root of this state: v of Adam, the mean square
/// of RMSprop, the sum of squares of Adagrad, and the squares that are added to them. Too small a
/// value makes the step too large.
bool divides_steps(const SiteInfo& state);

/// Non-zero updates of a site, and how many of them left their variable unchanged.
struct LostCounts {
  int64_t lost = 0, non_zero = 0;
  int64_t first_step = -1;
  double share() const { return share_of(lost, non_zero); }
  void add(const LostCounts& other);
};
/// Counts them outside the windows that begin with one of the steps `without`.
LostCounts count_lost(const RunView& run, int lane, int site,
                      const std::set<int64_t>& without = {});

/// Returns the first steps of windows in which no weight moves because the learning rate is 0. A
/// capture cannot tell such updates from those that are too small.
std::set<int64_t> idle_steps(const RunView& run, int lane);

/// Returns whether the updates and the optimizer's state of a variable, by its name ("fc1.weight"),
/// are in full precision; false if they are not recorded.
bool updates_in_full_precision(const LaneFacts& lane, const std::string& variable);

/// Returns whether a gradient cannot matter, as the reference shows. A variable's gradient is zero
/// there, or the rounding error of a sum that is zero, or fp32 loses the updates made from it. A
/// tensor's gradient only reaches variables of this kind. Without a reference: the gradient of a
/// bias that is no more than the rounding error of its terms.
bool is_negligible_gradient(const LaneFacts& lane, const SiteInfo& site);

}  // namespace halfscope
