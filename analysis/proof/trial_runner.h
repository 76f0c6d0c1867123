// SPDX-License-Identifier: MIT
// What a proof needs of a way to run a network again: proof.cpp decides what to try, a TrialRunner
// tries it, by training or by inference, and puts what came of it into words.
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

/// Of an original that rules warn of although it passes.
inline constexpr const char* kDoubtful = ", which is allowed but doubtful";

/// What one lane came to.
struct Outcome {
  Trial trial{};            ///< gap, skipped, calibration_skips and passes
  double last_scale = 1.0;  ///< where its loss scale ended
  std::string why{};        ///< what is wrong where the gap does not show it, half a sentence
};

class TrialRunner {
 public:
  virtual ~TrialRunner() = default;

  /// Runs what all trials are compared with, and finds out how far apart right results are: fills
  /// in twin_spread, tolerance and deviations. `original` is the lane as it was. Returns a sentence
  /// if nothing can be proved, else "".
  virtual std::string prepare(const LaneConfig& original, Proof& proof) = 0;
  /// How many trials are worth running at once; run() and record() are called from that many
  /// threads.
  virtual int at_once() const { return 1; }
  /// Runs a lane. Throws Error if it is the original and does not repeat what was recorded.
  virtual Outcome run(const LaneConfig& lane, bool is_original) = 0;

  /// Runs a lane beside its reference with statistics, comparisons and sums recorded, for rules to
  /// look at; the lane is the last. Nothing if it was stopped.
  virtual std::optional<RunView> record(const LaneConfig& lane) = 0;

  // Words.
  /// "the loss is 12% off fp32's over the last fifth of 30 steps".
  virtual std::string distance(const Outcome& outcome) const = 0;
  /// "1% is allowed, ...".
  virtual std::string allowed(const Proof& proof) const = 0;
  /// What is wrong with the original, with a pronoun: "it is 12% off", "training fails".
  virtual std::string failure(const Outcome& original, const Proof& proof) const = 0;
  /// "Proved by training".
  virtual const char* proved() const = 0;
  /// "mixed_float16 trains as fp32 does as it is", before a colon.
  virtual std::string healthy(const std::string& lane) const = 0;
  /// Why the advice did not help, where that can be told; a sentence.
  virtual std::string hint(const Outcome& advised) const = 0;
};

/// The fp32 reference of a lane, on the same backend, and the lane.
inline std::vector<LaneConfig> beside_reference(const LaneConfig& lane) {
  return {{.plan = reference_of(lane.plan),
           .scaler = {},
           .backend = lane.backend,
           .own_name = "float32"},
          lane};
}

/// How many trials of a lane are worth running at once. A trial keeps about what the recorded lane
/// has tensors, beside as much of its reference, in float and for comparisons in double.
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

/// Tells how far trials are. Calls never overlap; steps of several trials may alternate.
class SharedProgress {
 public:
  explicit SharedProgress(const ProofProgress& tell) : tell_(tell) {}

  /// Returns the number of a trial that begins.
  int begin() { return ++count_; }
  void go_on_from(int count) { count_ = count; }
  void step(const std::string& name, int count, const StepRow& row) const {
    if (!tell_) return;
    const std::lock_guard lock(mutex_);
    tell_(name, count, row);
  }

 private:
  const ProofProgress& tell_;
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
