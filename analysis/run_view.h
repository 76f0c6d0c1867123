// SPDX-License-Identifier: MIT
// RunView: an immutable snapshot of a run file, finished or still being written. Everything that
// explains a run (rules, reports, exports, the viewer) reads it and nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/train/recording.h"

namespace halfscope {

enum class RunStatus : uint8_t { running, complete, interrupted };
const char* status_name(RunStatus status) noexcept;  // "running"

/// Statistics of one site over `step_count` steps from `step` on, merged exactly.
struct StatsWindow {
  int64_t step = 0;
  int64_t step_count = 1;
  TensorStats stats;
};

class RunView {
 public:
  /// Reads the whole file in one transaction. Throws Error if it is missing, not a run file,
  /// damaged, or of a newer schema.
  static RunView open(const std::filesystem::path& file);

  /// From memory: for tests, and for the run that has just happened. The sites of a lane must
  /// stand in execution order (sites[i].order == i), otherwise Error. Rows may come in any order.
  RunView(RunInfo info, RunStatus status);
  void add_step(int lane, const StepRow& row);
  void add_eval(int lane, const EvalRow& row);
  void add_window(int lane, int site, StatsWindow window);
  void set_status(RunStatus status) noexcept { status_ = status; }

  const RunInfo& info() const noexcept { return info_; }
  RunStatus status() const noexcept { return status_; }
  int lane_count() const noexcept { return static_cast<int>(info_.lanes.size()); }
  const LaneInfo& lane(int lane) const { return info_.lanes.at(static_cast<size_t>(lane)); }
  /// Index of the lane of that name.
  std::optional<int> find_lane(const std::string& name) const;
  /// Index of the site "fc1.activation" in a lane; equals its SiteInfo::order.
  std::optional<int> find_site(int lane, const std::string& name) const;

  /// In ascending step order.
  std::span<const StepRow> steps(int lane) const;
  std::span<const EvalRow> evals(int lane) const;
  std::span<const StatsWindow> windows(int lane, int site) const;
  /// All windows of a site merged.
  TensorStats total(int lane, int site) const;

 private:
  struct LaneData {
    std::vector<StepRow> steps;
    std::vector<EvalRow> evals;
    std::vector<std::vector<StatsWindow>> windows;  // by site
  };
  RunInfo info_;
  RunStatus status_;
  std::vector<LaneData> lanes_;
};

}  // namespace halfscope
