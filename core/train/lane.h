// SPDX-License-Identifier: MIT
// A lane: its configuration, and its state in LaneSet, Trainer and Runner.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/process_steps.h"
#include "core/backend/rank_steps.h"
#include "core/observe/comparator.h"
#include "core/observe/kernel_check.h"

namespace halfscope {

/// A lane's training from its first step to its last one.
struct TrainedLane {
  std::vector<StepRow> rows;
  NamedDoubleTensors variables;  ///< at the end, by path, with the optimizer's state
};

struct LaneConfig {
  Plan plan;
  LossScalerConfig scaler;
  const Backend* backend = nullptr;
  /// If not 0, every initial weight is moved by one ulp, up or down by a random bit of this seed.
  /// Such twins of a lane show how far two correct runs drift apart.
  uint64_t noise_seed = 0;
  /// Significand bits of that ulp by variable path; fp32's for variables without an entry.
  std::map<std::string, int> noise_bits{};
  /// Name of the lane; if empty, the plan's. Lanes of one training have different names.
  std::string own_name{};
  /// Steps whose update is skipped although nothing overflows, for a lane with a constant loss
  /// scale.
  std::set<int64_t> skips{};
  /// This lane's training in another Trainer of the same settings. Other lanes are compared with it
  /// as if it trained again, which it only does if the training ends early. Not for trainings that
  /// record statistics, compare all tensors, simulate ranks or have checkpoints.
  std::shared_ptr<const TrainedLane> trained{};

  const std::string& name() const noexcept { return own_name.empty() ? plan.name : own_name; }
};

/// Steps at which tensors of lanes are compared (SiteError), and pairs of lanes to compare.
struct ErrorSampling {
  bool enabled = false;
  /// Steps between samples; 0 for three samples: the first, the middle and the last step.
  int64_t every = 0;
  /// Pairs of lane names; if empty, every lane is compared with its reference. Lanes in double are
  /// not compared.
  std::vector<std::pair<std::string, std::string>> pairs{};
  /// Backend that checks lanes with their own kernels at the same steps (KernelCheck); null for no
  /// checks.
  const Backend* emulator = nullptr;
  /// Cache for the orders of sums that those checks find in kernels; may be null.
  SumOrderCache* orders = nullptr;
  /// Fewer comparisons take less time. Each includes those before it.
  enum class Extent {
    movement,  ///< how far training moved the weights (Deviation), at its end
    batches,   ///< losses and gradients at the sampled steps (Deviation)
    tensors,   ///< all tensors, and the sums and kernels that made them
  };
  Extent extent = Extent::tensors;

  bool samples(int64_t step, int64_t steps) const noexcept {
    if (!enabled) return false;
    return every > 0 ? step % every == 0 : step == 0 || step == steps / 2 || step == steps - 1;
  }
};

struct Lane {
  LaneConfig config;
  Executable executable;
  std::unique_ptr<Program> program{};  ///< null once the lane has failed
  std::unique_ptr<StepQueue> steps{};  ///< of the program; null in inference
  std::vector<Comparator> comparators{};
  std::vector<size_t> compared_with{};       ///< the other lane of each comparator
  std::unique_ptr<KernelChecker> checker{};  ///< for kernels that are not the emulator's
  bool lost = false;
  int reference = -1;  ///< the lane that it is judged by
  StepState state{};   ///< after the last step that was collected

  RankSteps* ranks = nullptr;  ///< `steps`, if several ranks are simulated

  // Training only.
  bool waits = true;     ///< launched work is done when the call returns
  int64_t launched = 0;  ///< steps that are open or not collected
  double best_loss =
      std::numeric_limits<double>::infinity();        ///< of evaluations; negated to maximize
  std::chrono::duration<double, std::milli> spent{};  ///< on launching the last step

  std::vector<TensorStats> stats{};  ///< of the last batch, in inference
};

}  // namespace halfscope
