// SPDX-License-Identifier: MIT
// Runner: what Trainer is to training, for inference: lanes in lock step over the same batches, the
// forward pass alone. A step is a batch; it goes to the same sink, so that run files, rules and
// comparisons work on it. Rows have no loss and no gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/train/feed.h"
#include "core/train/lane_set.h"
#include "core/train/probe.h"

namespace halfscope {

struct RunnerConfig {
  std::vector<LaneConfig> lanes;  ///< loss scaling is left aside
  NamedTensors init{};            ///< replaces weights of the same path
  uint64_t seed = 1;  ///< of weights that nothing else gives, and of stochastic rounding
  int every = 1;      ///< statistics every so many batches; 0 takes none
  ErrorSampling errors{};
  /// Labels of all samples, for the accuracy of the first output; may be left out.
  std::vector<int32_t> labels{};
  bool keep_outputs = true;
};

class Runner {
 public:
  /// The samples are those of the data's test part. A last batch that is not full is filled up with
  /// zeros, which are left out of outputs and accuracies; no statistics are taken of it. A lane
  /// that there is no memory for, or whose device is lost, is lost before the first batch. Throws
  /// Error (usage) if the set-up does not fit together, Error if no lane is left.
  Runner(Model model, const RunnerConfig& config, const Dataset& data);
  Runner(Model model, const RunnerConfig& config, Dataset&& data) = delete;

  /// Fills in what a run file wants to know; `command` and the like are the caller's.
  RunInfo describe() const;

  using Progress = std::function<void(const std::vector<StepRow>& rows)>;
  /// Runs all batches; `sink` may be null. Stops after the current batch once `stop` is true. A
  /// lane whose backend fails (Error, out of memory) is lost, and the others go on. Throws that
  /// Error once no lane is left, after it has told `sink` that the run was interrupted.
  void run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop);

  int64_t batch() const noexcept { return feed_->batch(); }
  int64_t batches() const noexcept;
  int64_t samples_done() const noexcept { return samples_done_; }

  struct Result {
    NamedTensors outputs;  ///< by name: those of all samples, along the first dimension
    double seconds = 0.0;
    int64_t right = 0;   ///< samples whose first largest score is the label's
    int64_t scored = 0;  ///< samples with a label; 0 where there are none

    double accuracy() const;  ///< NaN without labels
  };
  const Result& result(size_t lane) const { return results_.at(lane); }
  /// Whether that lane is not lost; of one that is the result covers the samples before.
  bool has_lane(size_t lane) const { return !lanes_[lane].lost; }

  /// Lanes that did not reach the end; their steps are batches.
  const std::vector<LostLane>& lost_lanes() const noexcept { return lanes_.lost(); }
  std::vector<std::string> output_names() const;

  /// As of a Trainer.
  std::vector<ProductKernel> product_kernels() const { return lanes_.product_kernels(); }
  std::vector<EntryLaunch> entry_launches() const { return lanes_.entry_launches(); }

 private:
  StepRow run_lane(size_t lane, int64_t step, std::span<const int64_t> indices);
  void keep(size_t lane, size_t samples);
  void probe(int64_t step, std::span<const int64_t> indices, bool moves);
  /// Throws Error (usage) if padding of the last batch would be seen in an output.
  void check_last_batch() const;
  int64_t score(const Lane& lane, std::span<const int64_t> indices) const;

  RunnerConfig config_;
  const Dataset& data_;
  std::string model_name_;
  std::optional<Feed> feed_;
  LaneSet lanes_{LaneSet::Work::inference};
  std::vector<Result> results_;
  std::vector<std::optional<InferenceProbe>> probes_;  ///< by lane; none of references
  int64_t samples_done_ = 0;
};

}  // namespace halfscope
