// SPDX-License-Identifier: MIT
// What the trainer keeps of one lane; for its own sources.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/train/comparator.h"
#include "core/train/kernel_check.h"
#include "core/train/trainer.h"

namespace halfscope {

struct Trainer::Lane {
  LaneConfig config;
  Executable executable;
  std::unique_ptr<Program> program;
  LossScalerState scaler;
  int64_t updates = 0;  ///< optimizer steps done, for Adam's bias correction
  double best_loss = std::numeric_limits<double>::infinity();  ///< of the evaluations
  std::vector<Comparator> comparators;
  std::vector<int> compared_with;
  std::unique_ptr<KernelChecker> checker{};  ///< of kernels that are not the emulator's
  std::string lost{};                        ///< why it does not go on; empty while it does
  // Of the step going on.
  std::vector<TensorStats> stats, micro_stats;
  double loss = 0.0, accuracy = 0.0;
  std::chrono::duration<double, std::milli> spent{};
};

}  // namespace halfscope
