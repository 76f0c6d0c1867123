// SPDX-License-Identifier: MIT
// Deals the trials of a study to workers and writes the study file. Results do not depend on which
// worker did what, or in which order.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "analysis/study/study_file.h"
#include "cli/sweep/study.h"
#include "cli/sweep/study_folder.h"
#include "cli/sweep/trial_workers.h"

namespace halfscope {

/// A trial during which a worker died is given to others up to this often.
inline constexpr int kTrialAttempts = 3;

struct Deal {
  const StudyPlan& study;
  const StudyFolder& folder;
  StudyFile& file;
  /// By trial. Those that are not done are trained, those that failed before at the end.
  std::vector<TrialResult>& results;
  const std::atomic<bool>& stop;  ///< once true, running trials are finished and no more begin
  /// Called after every trial, and now and then between them.
  std::function<void(size_t done, size_t failed)> progress;
};

/// Checks every kind of trial that has not been trained yet, then trains what is missing. Throws
/// Error before anything is trained if the settings of a trial do not fit together.
void deal_trials(const Deal& deal, TrialWorkers& workers);

}  // namespace halfscope
