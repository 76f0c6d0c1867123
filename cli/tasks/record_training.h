// SPDX-License-Identifier: MIT
// A training that is recorded, from its settings to the end of its run file: what `train`,
// `diagnose` and `sweep` do alike.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/args/settings.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/network_summary.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/train/trainer.h"

namespace halfscope {

class RecordedTraining {
 public:
  /// Prepares everything up to the first step. `command_line` repeats it. `data` is
  /// load_training_data() of these settings, which is done here if it is null. If ranks are
  /// processes, `exchange` connects them, and only the one that records writes and prints. Throws
  /// Error.
  RecordedTraining(const Settings& settings, const std::string& command_line,
                   std::shared_ptr<const Dataset> data = nullptr, Exchange* exchange = nullptr);
  RecordedTraining(const RecordedTraining&) = delete;
  RecordedTraining& operator=(const RecordedTraining&) = delete;

  /// Trains into the run file `settings.out`, with a progress line; ends early on Ctrl-C. Throws
  /// Error, but not for lanes that are lost.
  void run();
  /// Trains without a file, reporting to `sink`, until `stop` is true.
  void run(TapSink& sink, const std::atomic<bool>& stop);

  /// Returns what must be the same in all processes, in lines "WHAT=VALUE".
  std::string facts() const;

  const Trainer& trainer() const { return *trainer_; }
  int lane_count() const { return static_cast<int>(config_.lanes.size()); }
  /// Returns whether a lane runs on a GPU.
  bool has_device_lanes() const;
  const NetworkSummary& network() const { return network_; }
  std::span<const LaneSummary> lanes() const { return lanes_; }
  RunStatus status() const { return status_; }
  int64_t steps_done() const { return steps_done_; }
  double seconds() const { return seconds_; }
  /// Every lane that was lost, with the hint of the first; nothing if none was.
  std::optional<Error> lost() const;

 private:
  Settings settings_;
  TrainConfig config_;
  std::shared_ptr<const Dataset> data_;
  NetworkSummary network_;
  std::unique_ptr<Trainer> trainer_;
  RunInfo info_;
  std::vector<LaneSummary> lanes_;
  RunStatus status_ = RunStatus::running;
  int64_t steps_done_ = 0;
  double seconds_ = 0.0;
};

}  // namespace halfscope
