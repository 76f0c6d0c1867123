// SPDX-License-Identifier: MIT
// Proof: whether advice cures a lane, shown by training. Beside the lane itself, the advised plan,
// fp32 and two noise twins (fp32 from weights moved by one ulp, which tell how far two right runs
// drift apart) are trained from the same weights on the same batches, then the advice with every
// single member taken away. It holds if the lane as it is fails, the advised one's loss ends within
// the tolerance of fp32's and no member can be spared; members that can are dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/proof/proof_record.h"
#include "analysis/rules/recommend.h"
#include "core/data/dataset.h"
#include "core/train/trainer.h"

namespace halfscope {

struct ProofRequest {
  TrainConfig training;  ///< of the run; its lanes are left aside
  Plan original;
  LossScalerConfig scaler;  ///< of the original lane
  Recommendation advice;
  const Backend* backend = nullptr;  ///< that trains all of them
  /// What the run recorded of the original lane and of its fp32 reference; empty if it did not. A
  /// training that does not give the same losses again has other inputs, and proves nothing.
  std::vector<StepRow> recorded = {}, recorded_reference = {};
};

/// Tells what is being trained, and how far that is. `lane` counts from 1 and may go on growing.
using ProofProgress = std::function<void(const std::string& name, int lane, const StepRow& row)>;

/// Trains all that is needed; nothing if `stop` became true on the way. Throws Error if the
/// training does not repeat what was recorded.
std::optional<Proof> prove(const ProofRequest& request, const Dataset& data,
                           const ProofProgress& progress, const std::atomic<bool>& stop);

}  // namespace halfscope
