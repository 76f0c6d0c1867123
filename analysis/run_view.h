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

#include "analysis/stats_window.h"
#include "core/observe/recording.h"

namespace halfscope {

enum class RunStatus : uint8_t {
  running,
  complete,
  interrupted,  ///< the user stopped it
  early_stop,   ///< early stopping ended it
  died,         ///< its file says "running", but no program has it open any more
};
const char* status_name(RunStatus status) noexcept;  // "running"
RunStatus status_after(RunEnd how) noexcept;

class RunView {
 public:
  /// Reads the whole file in one transaction. Throws Error if it is missing, not a run file,
  /// damaged, or of a newer schema.
  static RunView open(const std::filesystem::path& file);

  /// Creates a view in memory, for tests and for a run without a file. The sites of a lane must be
  /// in execution order (sites[i].order == i), otherwise throws Error. Rows may be added in any
  /// order.
  RunView(RunInfo info, RunStatus status);
  void add_step(int lane, const StepRow& row);
  /// An evaluation replaces the last one if that is of the same step.
  void add_eval(int lane, const EvalRow& row);
  void add_window(int lane, int site, const StatsWindow& window);
  /// Adds one window of all lanes and sites in the run file's form. Returns false if `stats` is
  /// malformed or the window does not begin after all others; the view must not be used then.
  [[nodiscard]] bool add_packed_window(int64_t step, int64_t step_count,
                                       std::span<const uint8_t> stats);
  /// Reserves memory for further windows.
  void reserve_windows(size_t bytes) { packed_.reserve(bytes); }
  void add_error(int lane, const SiteError& error);
  void add_sums(int lane, const SiteSums& sums);
  void add_deviation(int lane, const Deviation& deviation);
  void add_kernel(int lane, const KernelCheck& check);
  void add_reduction(int lane, const ReductionError& error);
  void add_ranks(int lane, const RankSpread& spread);
  void set_proof(int lane, std::string json);
  void set_trials(int lane, std::string json);
  void set_lost(int lane, FailedLane lost);
  void set_status(RunStatus status) noexcept { status_ = status; }

  const RunInfo& info() const noexcept { return info_; }
  RunStatus status() const noexcept { return status_; }
  int lane_count() const noexcept { return static_cast<int>(info_.lanes.size()); }
  const LaneInfo& lane(int lane) const { return info_.lanes.at(static_cast<size_t>(lane)); }
  /// Returns the index of the lane with that name.
  std::optional<int> find_lane(const std::string& name) const;
  /// Returns the index of the site "fc1.activation" in a lane, which is its SiteInfo::order.
  std::optional<int> find_site(int lane, const std::string& name) const;

  /// In ascending step order.
  std::span<const StepRow> steps(int lane) const;
  std::span<const EvalRow> evals(int lane) const;
  /// Ordered by step, site, other_lane.
  std::span<const SiteError> errors(int lane) const;
  /// Ordered by step, site.
  std::span<const SiteSums> sums(int lane) const;
  /// Ordered by step, site.
  std::span<const KernelCheck> kernels(int lane) const;
  /// Ordered by step, site, number of ranks.
  std::span<const ReductionError> reductions(int lane) const;
  /// In ascending step order; empty while all ranks agree.
  std::span<const RankSpread> ranks(int lane) const;
  /// Ordered by step; within a step as recorded, or by kind and name.
  std::span<const Deviation> deviations(int lane) const;
  /// Returns the JSON that store_proof() has added; "" if none.
  const std::string& proof(int lane) const;
  /// Returns the JSON that store_trials() has added; "" if none.
  const std::string& trials(int lane) const;
  /// Returns step and reason if the lane's backend failed, else nothing.
  const std::optional<FailedLane>& lost(int lane) const;
  /// Returns the windows for `for (const PackedWindow& window : ...)`, or StatsWindow to unpack
  /// them.
  WindowRange windows(int lane, int site) const;
  /// Returns all windows of a site merged.
  const TensorStats& total(int lane, int site) const;

 private:
  struct SiteData {
    std::vector<WindowRange::Entry> windows;
    TensorStats total;
  };
  struct LaneData {
    std::vector<StepRow> steps;
    std::vector<EvalRow> evals;
    std::vector<SiteError> errors;
    std::vector<SiteSums> sums;
    std::vector<Deviation> deviations;
    std::vector<KernelCheck> kernels;
    std::vector<ReductionError> reductions;
    std::vector<RankSpread> ranks;
    std::string proof, trials;
    std::optional<FailedLane> lost;
    std::vector<SiteData> sites;
  };
  RunInfo info_;
  RunStatus status_;
  std::vector<LaneData> lanes_;
  std::vector<uint8_t> packed_;  // of all windows of all sites
};

}  // namespace halfscope
