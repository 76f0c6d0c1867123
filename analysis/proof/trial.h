// SPDX-License-Identifier: MIT
// What one training says about advice: how far its loss ends from fp32's, and whether it skipped
// more steps than a loss scale needs to settle. Pure functions of recorded steps.
#pragma once

#include <cstdint>
#include <span>

#include "core/observe/recording.h"

namespace halfscope {

/// The part of a run, from its end, over which losses are compared.
inline constexpr double kComparedShare = 0.2;
/// Losses below this share of the first one are as good as learned: differences between them are
/// not measured against the little that is left, which may be 0.
inline constexpr double kLearnedShare = 0.01;

/// |median over the last fifth of (loss - reference loss)| / median of the reference loss there, or
/// kLearnedShare of the reference's first loss if that is more. Infinity if a loss of either is not
/// finite there or one of them ended earlier than the other.
double loss_gap(std::span<const StepRow> rows, std::span<const StepRow> reference);

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

}  // namespace halfscope
