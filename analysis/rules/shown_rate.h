// SPDX-License-Identifier: MIT
// The rates that a finding's text gives for a tensor: the same as in tables and in the viewer.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "analysis/rules/lane_facts.h"
#include "analysis/run_rates.h"

namespace halfscope {

/// A rate of a tensor over the whole run, and in the recorded window with its maximum.
struct ShownRate {
  double run = 0.0;
  double worst = 0.0;
  int64_t first = -1, last = -1;  ///< steps of that window; -1 if the rate is 0 throughout

  /// Returns whether the rate of the run hides a much larger one.
  bool peaks() const noexcept { return worst > 2.0 * run; }
};

/// Returns a rate of `site`. Windows that begin at step `before` or later count for `run` only.
ShownRate shown_rate(const LaneFacts& lane, int site, double Rates::*rate,
                     int64_t before = std::numeric_limits<int64_t>::max());

/// Returns "step 12", "steps 8 to 15" or, in inference, "batch 3".
std::string worst_steps(const LaneFacts& lane, const ShownRate& rate);

/// Returns whether the share over some of the steps differs so much from the whole run's that a
/// text has to give both.
bool far_apart(double run, double some) noexcept;

}  // namespace halfscope
