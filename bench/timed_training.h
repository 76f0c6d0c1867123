// SPDX-License-Identifier: MIT
// A training whose steps a benchmark times in several turns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/recorder.h"
#include "bench/open_end.h"
#include "core/train/trainer.h"

namespace halfscope {

class TimedTraining {
 public:
  enum class Clock : uint8_t { wall, processor };
  /// Trains by `config` for as many steps as run() asks for. It writes a run file, whose name
  /// contains `name`, so that all trainings write their steps.
  TimedTraining(TrainConfig config, Dataset data, const std::string& name, Clock clock)
      : clock_(clock),
        file_(std::filesystem::temp_directory_path() / ("halfscope_" + name + ".hscope")),
        data_(std::move(data)) {
    config.steps = int64_t{1} << 40;
    config.evaluate = false;
    trainer_ = std::make_unique<Trainer>(config, data_);
    recorder_ = std::make_unique<Recorder>(file_, Recorder::Options{.force = true});
    sink_ = std::make_unique<OpenEnd>(recorder_.get());
    sink_->begin(trainer_->describe());
  }
  TimedTraining(const TimedTraining&) = delete;
  TimedTraining& operator=(const TimedTraining&) = delete;
  ~TimedTraining() {
    recorder_.reset();
    std::filesystem::remove(file_);
  }

  /// Returns the seconds that a step takes.
  double run(int64_t steps) {
    std::atomic<bool> stop{false};
    int64_t done = 0;
    const double start = now();
    trainer_->run(
        sink_.get(), [&](const std::vector<StepRow>&) { stop = ++done == steps; }, stop);
    return (now() - start) / static_cast<double>(steps);
  }

 private:
  double now() const {
    if (clock_ == Clock::processor) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  }

  Clock clock_;
  std::filesystem::path file_;
  Dataset data_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<OpenEnd> sink_;
};

}  // namespace halfscope
