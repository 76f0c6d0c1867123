// SPDX-License-Identifier: MIT
// MemorySink: the TapSink that keeps a run in memory, for tests and for analysing a run without a
// file. It gives the same RunView as the run file would.
#pragma once

#include <optional>
#include <span>

#include "analysis/run_view.h"
#include "core/error.h"
#include "core/observe/recording.h"

namespace halfscope {

class MemorySink : public TapSink {
 public:
  void begin(const RunInfo& run) override { view_.emplace(run, RunStatus::running); }

  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override {
    open_view().add_step(lane, row);
    for (size_t site = 0; site < stats.size(); ++site) {
      if (stats[site].n == 0) continue;  // not measured in this step
      open_view().add_window(lane, static_cast<int>(site), {row.step, 1, stats[site]});
    }
  }

  void eval(int lane, const EvalRow& row) override { open_view().add_eval(lane, row); }

  void error(int lane, const SiteError& error) override { open_view().add_error(lane, error); }

  void sums(int lane, const SiteSums& sums) override { open_view().add_sums(lane, sums); }

  void deviation(int lane, const Deviation& deviation) override {
    open_view().add_deviation(lane, deviation);
  }

  void kernel(int lane, const KernelCheck& check) override { open_view().add_kernel(lane, check); }

  void reduction(int lane, const ReductionError& error) override {
    open_view().add_reduction(lane, error);
  }

  void ranks(int lane, const RankSpread& spread) override { open_view().add_ranks(lane, spread); }

  void end(RunEnd how) override { open_view().set_status(status_after(how)); }

  /// Returns the run so far. begin() must have been called.
  const RunView& view() const {
    if (!view_) throw Error("the run has not begun");
    return *view_;
  }

 private:
  RunView& open_view() {
    if (!view_) throw Error("the run has not begun");
    return *view_;
  }

  std::optional<RunView> view_;
};

}  // namespace halfscope
