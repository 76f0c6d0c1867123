// SPDX-License-Identifier: MIT
// Whether a training skipped more steps than a loss scale needs to settle. Pure functions of
// recorded steps.
#pragma once

#include <cstdint>
#include <span>

#include "core/observe/recording.h"

namespace halfscope {

/// Skipped steps by what they are for.
struct SkippedSteps {
  /// Down from the initial scale to the first that held for kSettledSteps steps in a row.
  int64_t calibration = 0;
  int64_t probes = 0;  ///< the first step after the scale was doubled
  int64_t others = 0;
  /// Some scale held for that long, or there is nothing to settle: the scale is a constant.
  bool settled = false;

  int64_t total() const noexcept { return calibration + probes + others; }
};
inline constexpr int64_t kSettledSteps = 20;

SkippedSteps skipped_steps(std::span<const StepRow> rows);

/// Whether that is how a loss scale works: it settles after few steps, and of the others, which are
/// neither calibration nor probes, there is at most one in a hundred steps, begun ones counted.
bool skips_are_normal(const SkippedSteps& skipped, std::span<const StepRow> rows);

/// How far steps that only looked for a loss scale put a training behind its reference, in the
/// units of loss_gap(): a delay, no loss of precision. 0 if it skipped more than that takes.
double calibration_gap(std::span<const StepRow> rows, std::span<const StepRow> reference);

}  // namespace halfscope
