// SPDX-License-Identifier: MIT
// Recorder: the TapSink that writes the run file of docs/contracts.md, "Run file". Every step of
// all lanes is one transaction, so whoever reads the file meanwhile, or after a crash, sees
// whole steps only. The file stays bounded however long the run is: see window_list.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "analysis/window_list.h"
#include "core/observe/recording.h"

namespace halfscope {

class Recorder : public TapSink {
 public:
  struct Options {
    bool force = false;           ///< replace an existing file, unless a program has it open
    WindowList::Limits limits{};  ///< of docs/contracts.md; tests take smaller ones
  };

  /// Creates the file, so that a wrong name shows before the work begins. The file goes away
  /// again if begin() never comes.
  explicit Recorder(const std::filesystem::path& file);
  Recorder(const std::filesystem::path& file, Options options);
  /// Without end() the run is marked interrupted.
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// All of these throw Error if the file cannot be written. What was committed before stays
  /// readable, and nothing is written any more.
  void begin(const RunInfo& run) override;
  /// The call of the last lane writes the step.
  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override;
  void eval(int lane, const EvalRow& row) override;
  /// Written with the step it belongs to, whose step() calls must follow.
  void error(int lane, const SiteError& error) override;
  void sums(int lane, const SiteSums& sums) override;
  void deviation(int lane, const Deviation& deviation) override;
  void kernel(int lane, const KernelCheck& check) override;
  void reduction(int lane, const ReductionError& error) override;
  void ranks(int lane, const RankSpread& spread) override;
  void lost(int lane, int64_t step, const std::string& why) override;
  void end(RunEnd how) override;

 private:
  class Writer;
  std::unique_ptr<Writer> writer_;
};

}  // namespace halfscope
