// SPDX-License-Identifier: MIT
// Trainer: lanes in lock step on the same batches. One step of a lane: for every micro-batch, write
// it and the loss scale -> grad -> sum; all gradients finite? -> clip, update, or skip -> next loss
// scale -> sink. At sampled steps lanes are compared between gradients and update. If a lane has
// its own step queue, a step is launched before the previous one is collected:
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
#include "core/exchange/exchange.h"
#include "core/lower/optimizer.h"
#include "core/models/models.h"
#include "core/train/checkpoint.h"
#include "core/train/feed.h"
#include "core/train/lane_set.h"
#include "core/train/probe.h"
#include "core/train/schedule.h"

namespace halfscope {

/// Builds the network for batches of this many samples. A network of fixed size may ignore it.
using ModelBuilder = std::function<Model(int64_t batch)>;

struct TrainConfig {
  std::string model = "lenet";
  ModelBuilder build{};  ///< builds the network if it is not a built-in one
  /// Settings of the network and the data that are not below, by key ("loss"); only used to say in
  /// which of them a checkpoint differs.
  std::map<std::string, std::string> network{};
  Optimizer optimizer;
  std::vector<ParameterGroup> groups{};  ///< the first one that matches a variable applies
  int64_t batch = 128;
  /// Micro-batches that a batch is split into; their gradients are summed in `sum_format`, by
  /// default the format of each variable.
  int64_t micro_batches = 1;
  std::optional<FloatFormat> sum_format = std::nullopt;
  std::optional<FloatFormat> state_format = std::nullopt;  ///< see TrainingSpec
  /// Data-parallel ranks that a batch is divided among, each with its micro-batches, and how their
  /// gradients are reduced. On the processor only.
  int64_t ranks = 1;
  Reduction reduction{};
  /// If not null, the ranks are its processes. This one trains its share, with the bits of a
  /// training that simulates all ranks. All processes get the same set-up, and a sink that may
  /// ignore everything on those that do not record. If a lane fails, the training ends.
  Exchange* exchange = nullptr;
  int64_t steps = 200;
  Schedule schedule;
  std::optional<WeightAverage> average = std::nullopt;  ///< moving averages of the weights
  /// Evaluations use the averages instead of the weights.
  bool evaluate_average = false;
  double clip_norm = 0.0;  ///< largest 2-norm of all unscaled gradients; 0 for no clipping
  /// Mistakes of user code, to see their effect: gradients are clipped before they are unscaled;
  /// and gradients of a loss that was never scaled are unscaled.
  bool clip_before_unscale = false, unscale_only = false;
  uint64_t seed = 1;
  bool shuffle = true;
  int every = 1;  ///< steps between statistics; 0 records none
  ErrorSampling errors;
  bool evaluate = true;        ///< on the test part, after the last step
  int64_t evaluate_every = 0;  ///< and after every N steps; 0 for the end only
  /// Stops after this many evaluations in a row in which no lane's loss was its best; 0 never
  /// stops.
  int64_t patience = 0;
  std::filesystem::path checkpoint{};  ///< written every checkpoint_every steps and at the end
  int64_t checkpoint_every = 0;
  /// Replaces initial weights of the same path and initial averages ("fc1.weight.ema"), which
  /// otherwise start from the weights.
  NamedTensors init;
  std::vector<LaneConfig> lanes;
};

/// Order of the training samples: batch `step` takes sample(step * batch + i).
class BatchOrder {
 public:
  BatchOrder(int64_t samples, int64_t batch, uint64_t seed, bool shuffle);
  /// Returns the indices of the samples of one step; whole batches only, a new permutation every
  /// epoch.
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
  /// Compiles all lanes. A lane that does not fit in memory, or whose device is lost, stops before
  /// the first step. Throws Error (usage) if the set-up is inconsistent, Error if no lane is left.
  Trainer(const TrainConfig& config, const Dataset& data);
  Trainer(const TrainConfig& config, Dataset&& data) = delete;  // it keeps a reference

  /// Returns the description for a run file; the caller fills in `command` etc.
  RunInfo describe() const;

  /// Resumes from a checkpoint. Lanes may fail as in the constructor. Throws Error (usage) if the
  /// checkpoint comes from another set-up.
  void resume(const Checkpoint& checkpoint);
  Checkpoint checkpoint() const;

  using Progress = std::function<void(const std::vector<StepRow>& rows)>;
  /// Runs all steps. `sink` may be null. Stops once `stop` is true, after the steps already
  /// launched: the reported one and, if a lane is on a device, the next. A lane whose backend fails
  /// (Error, out of memory) stops, and the others continue: its rows for `progress` have NaN as the
  /// loss, and no more checkpoints are written. Once no lane is left, reports to `sink` that the
  /// run was interrupted and throws that Error.
  void run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop);

  /// Returns the current weights of a lane by variable path, without optimizer state.
  NamedTensors weights(int lane) const;
  /// Returns all variables of a lane, for TrainedLane.
  NamedDoubleTensors variables(int lane) const;
  /// Returns the averages by the paths of their variables; empty without TrainConfig::average.
  NamedTensors averages(int lane) const;

  /// Returns the device memory of the lane in bytes; 0 on the processor.
  int64_t device_bytes(int lane) const;

  /// Returns the number of steps done.
  int64_t step() const noexcept { return step_; }

  /// Returns whether that lane has not failed.
  bool has_lane(size_t lane) const { return !lanes_[lane].lost; }
  /// Returns lanes that did not reach the end.
  const std::vector<FailedLane>& lost_lanes() const noexcept { return lanes_.lost(); }

  /// Returns the kernels of products, for lanes whose backends have several.
  std::vector<ProductKernel> product_kernels() const { return lanes_.product_kernels(); }
  /// Returns how the entries of lanes on a device have been launched so far.
  std::vector<EntryLaunch> entry_launches() const { return lanes_.entry_launches(); }

 private:
  /// A launched step that has not been reported yet.
  struct Launched {
    int64_t step;
    std::vector<bool> lanes;  ///< that have launched it
    std::vector<double> ms;   ///< time that each lane took to launch it
  };

  const Lane& whole_lane(int lane) const;
  TrainingSpec spec_of(const LaneConfig& lane) const;
  Executable lowered(const LaneConfig& lane) const;
  void keep_start(const NamedTensors& weights);
  void check_data() const;
  void check_exchange() const;
  void check_feed(const Executable& executable) const;
  int64_t test_samples() const;
  /// `done`: steps whose learning rates must be the same.
  std::map<std::string, double> setup(int64_t done) const;
  int64_t parts() const { return config_.ranks * config_.micro_batches; }
  void make_queue(Lane& lane) const;
  static void write_variables(Lane& lane, const NamedDoubleTensors& variables);
  void run_rank(Lane& lane, int64_t step, int64_t rank, std::span<const int64_t> indices,
                bool record);
  void begin_step(Lane& lane, int64_t step, const std::vector<int64_t>& indices, bool record);
  void end_step(Lane& lane, int64_t step, bool record);
  StepReport collect_step(Lane& lane, StepRow& row);
  void settle();
  bool probes_at(int64_t step) const;
  void probe(size_t lane, int64_t step, const std::vector<int64_t>& indices);
  void catch_up(Lane& lane, const BatchOrder& order);
  void tell_deviations();
  double learning_rate(const Lane& lane, int64_t step) const {
    return learning_rate(lane, step, config_.optimizer.learning_rate);
  }
  /// `rate`: of the optimizer or a group.
  double learning_rate(const Lane& lane, int64_t step, double rate) const;
  /// Throws Error (usage) if a group matches no variable that is trained.
  void check_groups(const Executable& executable) const;
  void check_schedule() const;
  void check_trained() const;
  void write_checkpoint() const;
  bool stops(const std::atomic<bool>& stop) const;
  void resume_replicas(Lane& lane, const Checkpoint& checkpoint) const;
  bool evaluate_all(int64_t step);
  EvalRow evaluate(Lane& lane, int64_t step);

  TrainConfig config_;
  const Dataset& data_;
  int64_t micro_size_;
  Model model_;
  LaneSet lanes_;
  std::optional<Feed> feed_;
  NamedTensors start_;  ///< weights before the first step, while lanes are to be compared
  std::vector<std::optional<TrainingProbe>> probes_;  ///< by lane; none for references
  int64_t step_ = 0;
  std::optional<Launched> launched_;
  int64_t stale_evaluations_ = 0;
  mutable std::optional<uint64_t> samples_hash_{};  ///< computed for the first checkpoint
  // Receivers of the run; may be null.
  TapSink* sink_ = nullptr;
  const Progress* progress_ = nullptr;
};

}  // namespace halfscope
