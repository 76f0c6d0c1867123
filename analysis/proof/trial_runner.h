// SPDX-License-Identifier: MIT
// TrialRunner: the interface through which a proof runs a network again. proof.cpp decides what to
// test; a TrialRunner tests it by training or by inference and describes the result in words.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "analysis/proof/proof.h"
#include "analysis/proof/side_by_side.h"
#include "analysis/run_view.h"

namespace halfscope {

/// Follows the distance of an original that passes although rules warn about it.
inline constexpr const char* kDoubtful = ", which is allowed but doubtful";

/// Result of running one lane.
struct Outcome {
  Trial trial{};            ///< gap, skipped, calibration_skips and passes
  double last_scale = 1.0;  ///< where its loss scale ended
  std::string why{};        ///< the fault if the gap does not show it, half a sentence
  std::string beside{};     ///< what else to know about the result, half a sentence
};

class TrialRunner {
 public:
  virtual ~TrialRunner() = default;

  /// Runs the fp32 lanes that all trials are compared with and measures how far apart correct
  /// results are. Fills in twin_spread, tolerance and deviations. `original` is the unchanged lane.
  /// Returns a sentence if nothing can be proved, else "".
  virtual std::string prepare(const LaneConfig& original, Proof& proof) = 0;
  /// Returns how many trials to run at once. run() and record() are called from that many threads.
  virtual int at_once() const { return 1; }
  /// Runs a lane. Throws Error if it is the original and its results are not the recorded ones.
  virtual Outcome run(const LaneConfig& lane, bool is_original) = 0;

  /// Runs a lane beside its reference with statistics, comparisons and sums recorded, as input for
  /// the rules. The lane is the last one. Returns nothing if it was stopped.
  virtual std::optional<RunView> record(const LaneConfig& lane) = 0;

  // Words.
  /// Returns "the loss differs from fp32's by 12%".
  virtual std::string distance(const Outcome& outcome) const = 0;
  /// Returns "1% is allowed".
  virtual std::string allowed(const Proof& proof) const = 0;
  /// Returns how the original fails, as the rest of a sentence: "it differs by 12%", "training
  /// fails".
  virtual std::string failure(const Outcome& original, const Proof& proof) const = 0;
  /// Returns "Tested by training 60 steps".
  virtual std::string proved() const = 0;
  /// Returns "mixed_float16 matches fp32 without any change", before a colon.
  virtual std::string healthy(const std::string& lane) const = 0;
  /// Returns a sentence on why the advice did not help, or "" if that is not known.
  virtual std::string hint(const Outcome& advised) const = 0;
};

/// Returns the fp32 reference of a lane, on the same backend, and the lane.
inline std::vector<LaneConfig> beside_reference(const LaneConfig& lane) {
  return {{.plan = reference_of(lane.plan),
           .scaler = {},
           .backend = lane.backend,
           .own_name = "float32"},
          lane};
}

/// Returns how many trials of a lane to run at once. A trial keeps about as many tensors as the
/// recorded lane and as many of its reference, in float and, for comparisons, in double.
inline int trials_at_once(const Backend* backend, const SearchOptions& search) {
  if (backend == nullptr || !backend->runs_side_by_side() || search.evidence == nullptr) return 1;
  int64_t elements = 0;
  for (const SiteInfo& site : search.evidence->lane(search.lane).sites) {
    int64_t n = 1;
    for (const int64_t extent : site.shape) n *= extent;
    elements += n;
  }
  return trials_that_fit(2 * elements * static_cast<int64_t>(sizeof(float) + sizeof(double)));
}

/// Reports the progress of trials. Calls never overlap; steps of several trials may alternate.
class SharedProgress {
 public:
  explicit SharedProgress(ProofProgress report) : report_(std::move(report)) {}

  /// Returns the number of a trial that begins.
  int begin() { return ++count_; }
  void go_on_from(int count) { count_ = count; }
  void step(const std::string& name, int count, const StepRow& row) const {
    if (!report_) return;
    const std::lock_guard lock(mutex_);
    report_(name, count, row);
  }

 private:
  const ProofProgress report_;
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
};

std::unique_ptr<TrialRunner> training_trials(const ProofRequest& request, const Dataset& data,
                                             const ProofProgress& progress,
                                             const std::atomic<bool>& stop);
std::unique_ptr<TrialRunner> inference_trials(const InferenceProofRequest& request,
                                              const Dataset& data, const ProofProgress& progress,
                                              const std::atomic<bool>& stop);

}  // namespace halfscope
