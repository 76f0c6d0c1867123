// SPDX-License-Identifier: MIT
// Names the cause of a lane's first value that is NaN or infinite, as far as the recording shows
// it.
#pragma once

#include <cstdint>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/rules.h"

namespace halfscope {

/// A dynamic scaler goes from 65536 to 1 in this many skipped steps; more is not calibration.
constexpr int64_t kCalibrationSkips = 16;

/// The skipped steps of a lane.
struct SkipCourse {
  int64_t steps = 0, skipped = 0;
  int64_t first_skipped = 0;  ///< steps skipped at the very start, one after the other
  int64_t last_skipped = -1;  ///< index of the last skipped row
  /// Skips at a scale that had just grown: how a dynamic scale finds out that it is too large.
  int64_t probes = 0;
  int64_t last_other = -1;  ///< index of the last skipped row that was not a probe
  /// Other skips after a scale had worked for kSettledSteps steps in a row: gradients grew, or one
  /// of them was far larger than usual.
  int64_t late = 0, first_late = -1;
  bool loss_ends_finite = true;
  bool ends_skipped = false;
  bool harmed = false;             ///< a step that was not skipped had a non-finite loss
  int64_t last_loss_skipped = -1;  ///< index of the last skipped row that had one
  double first_scale = 1.0, last_scale = 1.0;

  int64_t others() const noexcept { return skipped - probes; }
};

/// Returns whether the lane never recovers.
bool is_lost(const SkipCourse& course);

/// Where a lane first becomes NaN or infinite.
struct BadStart {
  int64_t step = 0;
  int site = -1;                         ///< -1: not recorded, only the loss shows it
  const RecordedStep* record = nullptr;  ///< statistics of that step, if there are any
  const StepRow* row = nullptr;
};

/// The loss scale is read in the forward pass, but it overflows gradients.
bool is_forward(const SiteInfo& site);

/// Returns whether all that modules gave in this step is finite and recorded, but not the loss.
bool loss_alone_fails(const LaneFacts& lane, const BadStart& start);
/// Describes a loss that is not finite although all outputs of the model are.
void blame_loss(const LaneFacts& lane, const BadStart& start, Finding& finding);

/// Returns whether gradients are NaN although the loss is finite and nothing became infinite, and
/// the loss scale is not the reason: it had worked before, or the lane does not get over it.
bool slope_is_invalid(const LaneFacts& lane, const SkipCourse& course, const BadStart& start);

/// Names the cause and what to do, where `start` has a site.
void name_cause(const LaneFacts& lane, const SkipCourse& course, const BadStart& start,
                Finding& finding);

}  // namespace halfscope
