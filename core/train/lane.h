// SPDX-License-Identifier: MIT
// A lane: what a user asks for, and what LaneSet, Trainer and Runner keep of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/rank_steps.h"
#include "core/observe/comparator.h"
#include "core/observe/kernel_check.h"

namespace halfscope {

struct LaneConfig {
  Plan plan;
  LossScalerConfig scaler;
  const Backend* backend = nullptr;
  /// Not 0: every initial weight is moved by one ulp, up or down by a random bit of this seed. Such
  /// twins of a lane tell how far two right runs drift apart.
  uint64_t noise_seed = 0;
  /// Significand bits of that ulp by variable path; fp32's where there are none.
  std::map<std::string, int> noise_bits{};
  /// Empty: the plan's. Lanes of one training differ in their names.
  std::string own_name{};

  const std::string& name() const noexcept { return own_name.empty() ? plan.name : own_name; }
};

/// At which steps tensors of lanes are compared (SiteError).
struct ErrorSampling {
  bool enabled = false;
  /// Every so many steps; 0 for three samples: the first step, the middle one and the last.
  int64_t every = 0;
  /// Pairs of lane names; empty for every lane against the first one in fp32. Lanes in double are
  /// compared with nothing.
  std::vector<std::pair<std::string, std::string>> pairs{};
  /// What lanes with kernels of their own are checked by at the same steps (KernelCheck); null for
  /// no checks.
  const Backend* emulator = nullptr;
  /// Where those checks keep the orders of sums that they find in kernels; may be null.
  SumOrderCache* orders = nullptr;

  bool samples(int64_t step, int64_t steps) const noexcept {
    if (!enabled) return false;
    return every > 0 ? step % every == 0 : step == 0 || step == steps / 2 || step == steps - 1;
  }
};

struct Lane {
  LaneConfig config;
  Executable executable;
  std::unique_ptr<Program> program{};  ///< null once it is lost
  std::unique_ptr<StepQueue> steps{};  ///< of the program; null in inference
  std::vector<Comparator> comparators{};
  std::vector<size_t> compared_with{};       ///< a lane for each of them
  std::unique_ptr<KernelChecker> checker{};  ///< of kernels that are not the emulator's
  bool lost = false;
  int reference = -1;  ///< the lane that it is judged by
  StepState state{};   ///< after the last step that was collected

  RankSteps* ranks = nullptr;  ///< `steps`, where there are several ranks

  // Of training.
  bool waits = true;     ///< what is launched is done
  int64_t launched = 0;  ///< steps that are open or not collected
  double best_loss = std::numeric_limits<double>::infinity();  ///< of the evaluations
  std::chrono::duration<double, std::milli> spent{};           ///< on launching the last step

  std::vector<TensorStats> stats{};  ///< of the last batch, in inference
};

}  // namespace halfscope
