// SPDX-License-Identifier: MIT
// Recorder: the TapSink that writes the run file (docs/reference/files.md). Every step of all
// lanes is one transaction, so readers see only whole steps, during the run and after a crash. The
// size of the file is bounded however long the run is: see window_list.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/window_list.h"
#include "core/observe/recording.h"

namespace halfscope {

class Recorder : public TapSink {
 public:
  struct Options {
    bool force = false;           ///< replace an existing file, unless a program has it open
    WindowList::Limits limits{};  ///< of docs/reference/files.md; tests take smaller ones
    /// Nobody reads the file before it is complete, and a crash may leave it damaged. Saves the
    /// time of writing a journal and of waiting for the disk.
    bool private_until_end = false;
  };

  /// Creates the file, so that a wrong name is reported before the work begins. Removes it again if
  /// begin() is never called.
  explicit Recorder(const std::filesystem::path& file);
  Recorder(const std::filesystem::path& file, Options options);
  /// Marks the run as interrupted if end() was not called.
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// All of these throw Error if the file cannot be written. Committed steps stay readable, and
  /// nothing more is written.
  void begin(const RunInfo& run) override;
  /// Writes the step once the last lane has called it.
  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override;
  /// Writes steps without statistics of a run with one lane, in one transaction.
  void rows(std::span<const StepRow> rows);
  void eval(int lane, const EvalRow& row) override;
  /// Replaces RunInfo::observed.
  void observed(const std::vector<std::string>& facts);
  /// Writes the error with its step, whose step() calls must follow.
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
