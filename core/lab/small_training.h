// SPDX-License-Identifier: MIT
// A small network that trains in a fraction of a second: digits of 8x8 pixels, one hidden layer. It
// runs under a plan made from a few settings, with fp32 beside it, and one step is watched.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/loss_scaler.h"
#include "core/data/dataset.h"
#include "core/graph/model.h"
#include "core/lab/watched_step.h"
#include "core/lower/optimizer.h"
#include "core/numeric/scaling/block_format.h"
#include "core/plan/plan.h"

namespace halfscope::lab {

struct SmallTraining {
  FloatFormat format = kFp16;  ///< every value that an operator reads or writes
  RoundingMode rounding = RoundingMode::nearest_even;
  /// How products are summed. `format` and `format_mul_add` also use `rounding`.
  Accumulation accumulation{};
  /// The operands of products are scaled in blocks and stored in this format.
  std::optional<BlockFormat> blocks = std::nullopt;
  LossScalerConfig scaler{};
  /// The loss is multiplied by 2^this. A small factor makes small gradients.
  int loss_weight = 0;
  int64_t ranks = 1;
  Reduction reduction{};
  bool master_weights = true;  ///< weights and optimizer state in fp32, otherwise in `format`
  bool adam = true;            ///< otherwise plain gradient descent
  double learning_rate = 0.003;
  int64_t steps = 120;
  uint64_t seed = 1;

  friend bool operator==(const SmallTraining&, const SmallTraining&) = default;
};

inline constexpr int64_t kDigitSide = 8, kSmallInputs = kDigitSide * kDigitSide, kSmallHidden = 32,
                         kSmallClasses = 10, kSmallBatch = 64;

/// Returns 8x8 digits from a pixel font, moved, faded and with noise: the same on every machine.
const Dataset& small_digits();
/// Builds fc1 (64 to 32), relu1, fc2 (32 to 10), and the loss times 2^loss_weight.
Model small_network(int64_t batch, int loss_weight);
Plan small_plan(const SmallTraining& training);
Optimizer small_optimizer(const SmallTraining& training);

struct SmallStep {
  double loss = 0.0;  ///< cross-entropy, without its weight
  double loss_scale = 1.0;
  bool skipped = false;
};
/// One lane: its steps, and the watched one.
struct SmallLane {
  std::vector<SmallStep> steps{};
  WatchedStep watched{};
};
struct SmallRun {
  std::string problem{};  ///< why there is no run; empty if there is
  SmallLane lane{}, twin{};
  std::vector<int64_t> samples{};  ///< the watched step's batch: indices of training samples
};

/// Trains both lanes and watches `step`. Settings that cannot be trained become the problem.
SmallRun train_small(const SmallTraining& training, int64_t step, const Backend& backend);

}  // namespace halfscope::lab
