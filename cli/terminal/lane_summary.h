// SPDX-License-Identifier: MIT
// Summary of a lane in one line, for the closing table of `train` and the list of `inspect`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/run_view.h"
#include "cli/terminal/output.h"

namespace halfscope {

struct LaneSummary {
  std::string name, backend, loss_scale;
  bool reference = false;
  bool inference = false;          ///< there are no losses
  bool detects = false;            ///< RunInfo::detects
  bool averages = false;           ///< evaluated are the moving averages of the weights
  int64_t steps = 0, skipped = 0;  ///< in this run, which may have resumed after step 0
  double ms = 0.0;                 ///< total over all steps
  StepRow last{};                  ///< means nothing without steps
  std::optional<EvalRow> eval{};
  std::optional<FailedLane> lost{};

  void add(const StepRow& row);
  /// Returns the steps done, including those before a resume.
  int64_t steps_done() const { return steps > 0 ? last.step + 1 : 0; }
  double ms_per_step() const;
  /// Why its figures are no result; "" if they are.
  std::string problem() const;
  /// As tables show them: "-" where there is none. A sample whose scores are NaN counts as wrong.
  std::string last_loss_text() const, accuracy_text() const, test_loss_text() const;
  std::string auc_text() const, mean_iou_text() const;
};

/// The lanes of a run, nothing trained yet.
std::vector<LaneSummary> untrained_lanes(const RunInfo& info);
std::vector<LaneSummary> lane_summaries(const RunView& run);

/// The `lanes` of docs/reference/json.md.
Json to_json(std::span<const LaneSummary> lanes);

/// Columns aligned to their widest cell, two blanks between; numbers to the right. The first row
/// has the headings. If the table is wider than `width`, names in the first column that do not fit
/// get a line to themselves, as `df` prints long devices; 0: any width is fine.
std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    const std::vector<bool>& to_the_right, size_t width = 0);

}  // namespace halfscope
