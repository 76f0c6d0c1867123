// SPDX-License-Identifier: MIT
// Runner: the counterpart of Trainer for inference. Lanes run the forward pass in lock step over
// the same batches. A step is one batch; it goes to the same sink, so that run files, rules and
// comparisons work as in training. Rows have no loss and no gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/train/feed.h"
#include "core/train/label_layout.h"
#include "core/train/lane_set.h"
#include "core/train/probe.h"

namespace halfscope {

struct RunnerConfig {
  std::vector<LaneConfig> lanes;  ///< loss scaling is ignored
  NamedTensors init{};            ///< replaces weights of the same path
  uint64_t seed = 1;              ///< for missing initial weights and for stochastic rounding
  int every = 1;                  ///< batches between statistics; 0 records none
  ErrorSampling errors{};
  SampleLabels labels{};  ///< of all samples, for the accuracy; may be empty
  bool keep_outputs = true;
};

class Runner {
 public:
  /// Compiles all lanes. The samples are those of the data's test part. A last batch that is not
  /// full is padded with zeros, which are left out of outputs and accuracies; it has no statistics.
  /// A lane that does not fit in memory, or whose device is lost, stops before the first batch.
  /// Throws Error (usage) if the set-up is inconsistent, Error if no lane is left.
  Runner(Model model, const RunnerConfig& config, const Dataset& data);
  Runner(Model model, const RunnerConfig& config, Dataset&& data) = delete;

  /// Returns the description for a run file; the caller fills in `command` etc.
  RunInfo describe() const;

  using Progress = std::function<void(const std::vector<StepRow>& rows)>;
  /// Runs all batches; `sink` may be null. Stops after the current batch once `stop` is true. A
  /// lane whose backend fails (Error, out of memory) stops, and the others continue. Once no lane
  /// is left, reports to `sink` that the run was interrupted and throws that Error.
  void run(TapSink* sink, const Progress& progress, const std::atomic<bool>& stop);

  int64_t batch() const noexcept { return feed_->batch(); }
  int64_t batches() const noexcept;
  int64_t samples_done() const noexcept { return samples_done_; }

  struct Result {
    NamedTensors outputs;  ///< by name, for all samples, along the first dimension
    double seconds = 0.0;
    /// Labels whose score is the first largest. A single score means label 1 if it is positive, or
    /// above a half where a Sigmoid computes it.
    int64_t right = 0;
    int64_t scored = 0;   ///< labels that count; 0 where there are none
    int64_t ignored = 0;  ///< labels that do not
    /// The area of all samples (numeric/statistics/auc.h); NaN without labels or with several each.
    double auc = 0.0;
    std::optional<ClassCounts> classes{};  ///< with labels of pixels

    double accuracy() const;  ///< NaN without labels
  };
  const Result& result(size_t lane) const { return results_.at(lane); }
  /// Returns whether that lane has not failed. The result of a failed lane covers the samples
  /// before the failure.
  bool has_lane(size_t lane) const { return !lanes_[lane].lost; }

  /// Returns the output whose scores are compared with labels; "" without labels.
  std::string scored_output() const;

  /// Returns lanes that did not reach the end; their steps are batches.
  const std::vector<FailedLane>& lost_lanes() const noexcept { return lanes_.lost(); }
  std::vector<std::string> output_names() const;

  /// Same as for Trainer.
  std::vector<ProductKernel> product_kernels() const { return lanes_.product_kernels(); }
  std::vector<EntryLaunch> entry_launches() const { return lanes_.entry_launches(); }

 private:
  StepRow run_lane(size_t lane, int64_t step, std::span<const int64_t> indices);
  void keep(size_t lane, size_t samples);
  void probe(int64_t step, std::span<const int64_t> indices, bool moves);
  /// Throws Error (usage) if padding of the last batch would be seen in an output.
  void check_last_batch() const;
  void check_labels();
  /// Counts the right labels of a batch in `result`. Returns their share.
  double score(const Lane& lane, std::span<const int64_t> indices, Result& result) const;
  double area_of(const Result& result) const;
  bool is_made_by(const Lane& lane, std::string_view op) const;

  RunnerConfig config_;
  const Dataset& data_;
  std::string model_name_;
  std::optional<Feed> feed_;
  LaneSet lanes_{LaneSet::Work::inference};
  LabelLayout layout_;  ///< of the labels, if there are any
  size_t scored_ = 0;   ///< the output with their scores
  std::vector<Result> results_;
  std::vector<std::optional<InferenceProbe>> probes_;  ///< by lane; none for references
  int64_t samples_done_ = 0;
};

}  // namespace halfscope
