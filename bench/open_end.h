// SPDX-License-Identifier: MIT
// OpenEnd: a sink for trainings that benchmarks continue in several turns.
#pragma once

#include <span>

#include "core/observe/recording.h"

namespace halfscope {

/// Passes on what is recorded of steps, but no evaluations and no end.
class OpenEnd final : public TapSink {
 public:
  /// `next` may be null, and must outlive this object.
  explicit OpenEnd(TapSink* next) : next_(next) {}
  void begin(const RunInfo& run) override {
    if (next_ != nullptr) next_->begin(run);
  }
  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override {
    if (next_ != nullptr) next_->step(lane, row, stats);
  }
  void eval(int, const EvalRow&) override {}
  void error(int lane, const SiteError& error) override {
    if (next_ != nullptr) next_->error(lane, error);
  }
  void sums(int lane, const SiteSums& sums) override {
    if (next_ != nullptr) next_->sums(lane, sums);
  }
  void reduction(int lane, const ReductionError& error) override {
    if (next_ != nullptr) next_->reduction(lane, error);
  }
  void end(RunEnd) override {}

 private:
  TapSink* next_;
};

}  // namespace halfscope
