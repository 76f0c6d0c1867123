// SPDX-License-Identifier: MIT
// Proof: whether advice cures a lane, shown by trying it. Beside the lane itself, the advised plan
// and the advice with every single member taken away run on the same data as fp32 (lowered like the
// lane) does. How far right results are apart is told by noise twins in training and by moved
// inputs and weights in inference. A trial passes if its results are within the tolerances of
// analysis/rules/harm.h. The advice holds if the lane as it is fails, the advised one passes and no
// member can be spared; members that can are dropped. Where the advice does not cure, a search
// (search.h) looks for the smallest edit that does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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

/// What a search costs; nothing is a limit that is 0.
struct TrialBudget {
  int64_t trials = 0;
  double seconds = 0.0;
};

/// Whether the smallest edit that cures is looked for where the advice does not.
struct SearchOptions {
  bool on = false;
  TrialBudget budget{};
  const RunView* evidence = nullptr;  ///< the run, which outlives the proof
  int lane = -1;                      ///< of the run
  /// The lane's results are no further off than right ones may be, but rules warn of it: an edit
  /// cures it that takes away half of its error.
  bool doubtful = false;
  std::vector<TriedEdit> tried{};  ///< by an earlier search of the same lane
  /// Called after every trial with all that was tried.
  std::function<void(const std::vector<TriedEdit>&)> on_trial{};
};

struct ProofRequest {
  TrainConfig training;  ///< of the run; its lanes are left aside
  Plan original;
  LossScalerConfig scaler;  ///< of the original lane
  Recommendation advice;
  const Backend* backend = nullptr;  ///< that trains all of them
  /// What the run recorded of the original lane and of its fp32 reference; empty if it did not. A
  /// training that does not give the same losses again has other inputs, and proves nothing.
  std::vector<StepRow> recorded = {}, recorded_reference = {};
  /// What was recorded of the original lane beside its reference, and the harm that shows in it.
  /// Harm that the loss at the end does not show (gradients, averages ...) is measured in every
  /// trial.
  std::vector<Deviation> deviations = {};
  std::vector<HarmItem> harm = {};
  std::optional<Twins> twins = std::nullopt;  ///< if they have just been trained
  SearchOptions search{};
};

struct InferenceProofRequest {
  RunnerConfig run;  ///< of the run; its lanes are left aside
  std::function<Model()> network;
  Plan original;
  Recommendation advice;
  const Backend* backend = nullptr;
  /// What the run recorded of the original lane's outputs; empty if it cannot be compared.
  std::vector<Deviation> recorded = {};
  SearchOptions search{};
};

/// Trains or runs all that is needed; nothing if `stop` became true on the way. Throws Error if
/// that does not repeat what was recorded.
std::optional<Proof> prove(const ProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop);
std::optional<Proof> prove(const InferenceProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop);

}  // namespace halfscope
