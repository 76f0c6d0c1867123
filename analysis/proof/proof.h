// SPDX-License-Identifier: MIT
// Proof: tests whether advice cures a lane. The lane itself, the advised plan, and the advice
// without each single member run on the same data as fp32 (lowered like the lane). How far apart
// correct results are is measured with noise twins in training and with perturbed inputs and
// weights in inference. A trial passes if its results are within the tolerances of
// analysis/rules/harm.h. The advice holds if the unchanged lane fails, the advised one passes and
// every member is needed; members that are not needed are dropped. If the advice does not cure the
// lane, a search (search.h) looks for the smallest edit that does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/proof/proof_record.h"
#include "analysis/proof/twins.h"
#include "analysis/rules/recommend.h"
#include "core/data/dataset.h"
#include "core/train/runner.h"
#include "core/train/trainer.h"

namespace halfscope {

/// Limits of a search; 0 means no limit.
struct TrialBudget {
  int64_t trials = 0;
  double seconds = 0.0;
};

/// Settings of the search for the smallest edit that cures, for when the advice does not.
struct SearchOptions {
  bool on = false;
  TrialBudget budget{};
  const RunView* evidence = nullptr;  ///< the run, which outlives the proof
  int lane = -1;                      ///< index in `evidence`
  /// The lane's results are within the tolerance, but rules warn about it. Then an edit that halves
  /// the error is a cure.
  bool doubtful = false;
  std::vector<TriedEdit> tried{};  ///< trials of an earlier search of the same lane
  /// Called after every trial with all trials so far.
  std::function<void(const std::vector<TriedEdit>&)> on_trial{};
};

class TrialRunner;

/// Inputs of a proof by training.
struct ProofRequest {
  TrainConfig training;  ///< of the run; its lanes are ignored
  Plan original;
  LossScalerConfig scaler;  ///< of the original lane
  Recommendation advice;
  const Backend* backend = nullptr;  ///< trains all of them
  /// Recorded steps of the original lane and of its fp32 reference; empty if not recorded. A
  /// training that does not reproduce these losses has other inputs, and proves nothing.
  std::vector<StepRow> recorded = {}, recorded_reference = {};
  /// Recorded deviations of the original lane from its reference, and the harm they show. Harm that
  /// the final loss does not show (gradients, averages ...) is measured in every trial.
  std::vector<Deviation> deviations = {};
  std::vector<HarmItem> harm = {};
  std::optional<Twins> twins = std::nullopt;  ///< if they have just been trained
  SearchOptions search{};
  /// Returns a runner that also has other processes run trials; if empty, this process runs all.
  std::function<std::unique_ptr<TrialRunner>(std::unique_ptr<TrialRunner>)> share{};
};

/// Inputs of a proof by inference.
struct InferenceProofRequest {
  RunnerConfig run;  ///< of the run; its lanes are ignored
  std::function<Model()> network;
  Plan original;
  Recommendation advice;
  const Backend* backend = nullptr;
  /// Recorded deviations of the original lane's outputs; empty if they cannot be compared.
  std::vector<Deviation> recorded = {};
  SearchOptions search{};
};

/// Trains or runs everything that the proof needs. Returns nothing if `stop` became true. Throws
/// Error if the results are not the recorded ones.
std::optional<Proof> prove(const ProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop);
std::optional<Proof> prove(const InferenceProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop);

}  // namespace halfscope
