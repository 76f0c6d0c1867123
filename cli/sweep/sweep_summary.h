// SPDX-License-Identifier: MIT
// The text that `sweep` prints at its end: a table of plans, and the same as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/study/study_view.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

/// The trials of one plan.
struct PlanSummary {
  std::string plan{};
  bool baseline = false;
  size_t trials = 0, done = 0, failed = 0;
  size_t failing = 0;        ///< finished trials that fail (TrialRow::fails)
  double median_loss = 0.0;  ///< of finished trials with a finite loss; NaN without one
  /// The layer in which a value overflows or is not finite first, in most failing trials; ""
  /// without any.
  std::string first_layer{};
  size_t first_trials = 0;  ///< failing trials in which it is that layer
};

/// Returns a row per plan: the baselines, then the plans in the order of their axis.
std::vector<PlanSummary> summarize_plans(const StudyView& study);

/// Returns the table, and a line on trials that are missing.
std::string sweep_text(const StudyView& study, const std::string& folder, size_t width);

/// Returns the JSON halfscope.sweep/1.
Json sweep_json(const StudyView& study, const std::string& folder);

/// Returns the error that ends a sweep in which trials could not be trained; nothing if all could.
std::optional<Error> sweep_error(const StudyView& study, const std::string& folder);

}  // namespace halfscope
