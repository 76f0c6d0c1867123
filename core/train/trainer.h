// SPDX-License-Identifier: MIT
// Trainer: lanes in lock step on the same batches. One step of a lane: write batch and loss
// scale -> grad -> all gradients finite? -> update or skip -> next loss scale -> sink.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/models/models.h"
#include "core/plan/plan.h"
#include "core/train/backend.h"
#include "core/train/loss_scaler.h"
#include "core/train/optimizer.h"
#include "core/train/recording.h"

namespace halfscope {

struct LaneConfig {
  Plan plan;
  LossScalerConfig scaler;
  const Backend* backend = nullptr;
};

struct TrainConfig {
  std::string model = "lenet";
  Optimizer optimizer;
  int64_t batch = 128;
  int64_t steps = 200;
  uint64_t seed = 1;
  bool shuffle = true;
  int every = 1;          ///< statistics every so many steps; 0 records none
  bool evaluate = true;   ///< on the test part, after the last step
  NamedTensors init;      ///< replaces initial weights of the same path
  std::vector<LaneConfig> lanes;
};

/// Order of the training samples: batch `step` takes sample(step * batch + i).
class BatchOrder {
 public:
  BatchOrder(int64_t samples, int64_t batch, uint64_t seed, bool shuffle);
  /// Indices of the samples of one step; whole batches only, a new permutation every epoch.
  std::vector<int64_t> batch(int64_t step) const;

 private:
  int64_t samples_, batch_;
  uint64_t seed_;
  bool shuffle_;
  mutable int64_t epoch_ = -1;
  mutable std::vector<int64_t> permutation_;
};

class Trainer {
 public:
  /// Compiles all lanes. Throws Error (usage) if the set-up does not fit together.
  Trainer(const TrainConfig& config, const Dataset& data);
  Trainer(const TrainConfig& config, Dataset&& data) = delete;  // it keeps a reference
  ~Trainer();

  /// Fills in what a run file wants to know; `command` and the like are the caller's.
  RunInfo describe() const;

  using Progress = std::function<void(const std::vector<StepRow>& rows)>;
  /// Runs all steps. `sink` may be null. Stops after the current step once `stop` is true.
  void run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop);

  /// Current weights of a lane by variable path (optimizer state left out).
  NamedTensors weights(int lane) const;

  struct Lane;

 private:
  StepRow step_lane(Lane& lane, int64_t step, bool record);
  EvalRow evaluate(Lane& lane, int64_t step);
  void write_batch(Lane& lane, const Split& split, const std::vector<int64_t>& indices);

  TrainConfig config_;
  const Dataset& data_;
  Model model_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<float> pixels_;
  std::vector<int32_t> labels_;
};

}  // namespace halfscope
