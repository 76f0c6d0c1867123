// SPDX-License-Identifier: MIT
// Trainer: lanes in lock step on the same batches. One step of a lane: for every micro-batch, write
// it and the loss scale -> grad -> sum; all gradients finite? -> clip, update, or skip -> next loss
// scale -> sink. At sampled steps lanes are compared between gradients and update. Where lanes have
// step queues of their own, a step is launched before the one before it is collected:
//
//   launch(n) | collect(n - 1) -> sink, progress | launch(n + 1) | collect(n) ...
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/lower/optimizer.h"
#include "core/models/models.h"
#include "core/train/checkpoint.h"
#include "core/train/feed.h"
#include "core/train/lane_set.h"
#include "core/train/probe.h"
#include "core/train/schedule.h"

namespace halfscope {

/// The network for batches of so many samples. One of fixed size may be for others.
using ModelBuilder = std::function<Model(int64_t batch)>;

struct TrainConfig {
  std::string model = "lenet";
  ModelBuilder build{};  ///< what builds it, where it is none of the built-in ones
  /// Of such a network; only to tell set-ups apart in checkpoints.
  std::string loss{}, running_variance{};
  Optimizer optimizer;
  int64_t batch = 128;
  /// Parts that a batch is worked off in; their gradients are summed in `sum_format`, by default
  /// each variable's own.
  int64_t micro_batches = 1;
  std::optional<FloatFormat> sum_format = std::nullopt;
  std::optional<FloatFormat> state_format = std::nullopt;  ///< see TrainingSpec
  /// Data-parallel ranks that a batch is divided over, each of which may have micro-batches, and
  /// how their gradients become one. On the processor only.
  int64_t ranks = 1;
  Reduction reduction{};
  int64_t steps = 200;
  Schedule schedule;
  std::optional<WeightAverage> average = std::nullopt;  ///< kept beside the weights
  /// Evaluations take the averages in place of the weights.
  bool evaluate_average = false;
  double clip_norm = 0.0;  ///< largest 2-norm of all unscaled gradients; 0 for no clipping
  uint64_t seed = 1;
  bool shuffle = true;
  int every = 1;  ///< statistics every so many steps; 0 records none
  ErrorSampling errors;
  bool evaluate = true;        ///< on the test part, after the last step
  int64_t evaluate_every = 0;  ///< and every so many steps
  /// Stops after so many evaluations in a row in which no lane's loss was its best; 0 never does.
  int64_t patience = 0;
  std::filesystem::path checkpoint{};  ///< written every checkpoint_every steps and at the end
  int64_t checkpoint_every = 0;
  /// Replaces initial weights of the same path, and initial averages ("fc1.weight.ema"), which by
  /// default are the weights.
  NamedTensors init;
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
  /// Compiles all lanes. One that there is no memory for, or whose device is lost, is lost before
  /// the first step. Throws Error (usage) if the set-up does not fit together, Error if no lane is
  /// left.
  Trainer(const TrainConfig& config, const Dataset& data);
  Trainer(const TrainConfig& config, Dataset&& data) = delete;  // it keeps a reference

  /// Fills in what a run file wants to know; `command` and the like are the caller's.
  RunInfo describe() const;

  /// Goes on where the checkpoint was taken. Lanes may be lost over it as in the constructor.
  /// Throws Error (usage) if it is of another set-up.
  void resume(const Checkpoint& checkpoint);
  Checkpoint checkpoint() const;

  using Progress = std::function<void(const std::vector<StepRow>& rows)>;
  /// Runs all steps. `sink` may be null. Stops once `stop` is true, after the steps that are
  /// launched: the one that is told, and where a lane is on a device the next. A lane
  /// whose backend fails (Error, out of memory) is lost, and the others go on: its rows for
  /// `progress` have a NaN for a loss, and no more checkpoints are written. Throws that Error once
  /// no lane is left, after it has told `sink` that the run was interrupted.
  void run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop);

  /// Current weights of a lane by variable path (optimizer state left out).
  NamedTensors weights(int lane) const;
  /// The averages by the paths of their variables; empty without TrainConfig::average.
  NamedTensors averages(int lane) const;

  /// Memory that the lane takes on a device; 0 on the processor.
  int64_t device_bytes(int lane) const;

  /// Steps done.
  int64_t step() const noexcept { return step_; }

  /// Whether that lane is not lost.
  bool has_lane(size_t lane) const { return !lanes_[lane].lost; }
  /// Lanes that did not reach the end.
  const std::vector<LostLane>& lost_lanes() const noexcept { return lanes_.lost(); }

  /// What computes the products of lanes whose backends have several ways.
  std::vector<ProductKernel> product_kernels() const { return lanes_.product_kernels(); }
  /// How the entries of lanes on a device have been launched so far.
  std::vector<EntryLaunch> entry_launches() const { return lanes_.entry_launches(); }

 private:
  /// A step of which nobody has seen anything yet.
  struct Launched {
    int64_t step;
    std::vector<bool> lanes;  ///< that have launched it
    std::vector<double> ms;   ///< that it took them
  };

  const Lane& whole_lane(int lane) const;
  TrainingSpec spec_of(const Plan& plan) const;
  void keep_start(const NamedTensors& weights);
  void check_data() const;
  void check_feed(const Executable& executable) const;
  int64_t test_samples() const;
  std::map<std::string, double> setup() const;
  int64_t parts() const { return config_.ranks * config_.micro_batches; }
  void make_queue(Lane& lane) const;
  void run_rank(Lane& lane, int64_t step, int64_t rank, std::span<const int64_t> indices,
                bool record);
  void begin_step(Lane& lane, int64_t step, const std::vector<int64_t>& indices, bool record);
  void end_step(Lane& lane, int64_t step, bool record);
  StepReport collect_step(Lane& lane, StepRow& row);
  void settle();
  bool probes_at(int64_t step) const;
  void probe(size_t lane, int64_t step, const std::vector<int64_t>& indices);
  void tell_deviations();
  double learning_rate(const Lane& lane, int64_t step) const;
  void write_checkpoint() const;
  void resume_replicas(Lane& lane, const Checkpoint& checkpoint) const;
  bool evaluate_all(int64_t step);
  EvalRow evaluate(Lane& lane, int64_t step);
  EvalRow evaluate_weights(Lane& lane, int64_t step);

  TrainConfig config_;
  const Dataset& data_;
  int64_t micro_size_;
  Model model_;
  LaneSet lanes_;
  std::optional<Feed> feed_;
  NamedTensors start_;  ///< weights before the first step, while lanes are to be compared
  std::vector<std::optional<TrainingProbe>> probes_;  ///< by lane; none of references
  int64_t step_ = 0;
  std::optional<Launched> launched_;
  int64_t stale_evaluations_ = 0;
  // Who sees the run; may be null.
  TapSink* sink_ = nullptr;
  const Progress* progress_ = nullptr;
};

}  // namespace halfscope
