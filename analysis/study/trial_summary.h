// SPDX-License-Identifier: MIT
// From the run of a trial to its row in the study.
#pragma once

#include "analysis/run_view.h"
#include "analysis/study/study_view.h"

namespace halfscope {

/// Returns the results of a trial, whose run has one lane. `seconds` and `worker` are not set. The
/// status is `waiting` if the run has not ended, and `failed` if something else than the training
/// itself ended it, for example a lack of memory.
TrialResult summarize_trial(const RunView& run);

/// Returns the losses of a training in at most kMostCurvePoints points: all of them, or the first
/// one and then means over equally many steps, each at the last of its steps.
std::vector<CurvePoint> loss_curve(std::span<const StepRow> rows);

}  // namespace halfscope
