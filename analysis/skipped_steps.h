// SPDX-License-Identifier: MIT
// Determines whether a training skipped more steps than a loss scale needs to settle. Pure
// functions of recorded steps.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "core/observe/recording.h"

namespace halfscope {

/// Skipped steps by their reason.
struct SkippedSteps {
  /// From the initial scale down to the first that lasted kSettledSteps steps in a row.
  int64_t calibration = 0;
  int64_t probes = 0;  ///< the first step after the scale was doubled
  int64_t others = 0;
  /// Whether some scale lasted that long, or the scale is constant and need not settle.
  bool settled = false;

  int64_t total() const noexcept { return calibration + probes + others; }
};
inline constexpr int64_t kSettledSteps = 20;

SkippedSteps skipped_steps(std::span<const StepRow> rows);

/// Returns whether the skips are normal for a loss scale: it settles after few steps, and at most
/// one in every started hundred steps is skipped that is neither calibration nor a probe.
bool skips_are_normal(const SkippedSteps& skipped, std::span<const StepRow> rows);

/// Returns the skipped steps if they are normal, else none.
std::set<int64_t> normal_skips(std::span<const StepRow> rows);

/// Returns how far a training falls behind its reference, in the units of loss_gap(), because of
/// steps that only looked for a loss scale: a delay, not a loss of precision. 0 if it skipped more
/// steps than that needs.
double calibration_gap(std::span<const StepRow> rows, std::span<const StepRow> reference);

/// Returns the first skipped step from which on a training takes another path than its reference:
/// at least ten steps before it have the reference's losses (within 1%, in the median), and few
/// steps are skipped. -1 if there is none.
int64_t parting_step(std::span<const StepRow> rows, std::span<const StepRow> reference);

}  // namespace halfscope
