// SPDX-License-Identifier: MIT
// What the trainer keeps of one lane; for its own sources.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/observe/comparator.h"
#include "core/observe/kernel_check.h"
#include "core/train/trainer.h"

namespace halfscope {

struct Trainer::Lane {
  LaneConfig config;
  Executable executable;
  std::unique_ptr<Program> program;
  std::unique_ptr<StepQueue> steps;  ///< of the program
  bool waits = true;                 ///< what is launched is done
  StepState state;                   ///< after the last step that was collected
  int64_t launched = 0;              ///< steps that are open or not collected
  double best_loss = std::numeric_limits<double>::infinity();  ///< of the evaluations
  std::vector<Comparator> comparators;
  std::vector<int> compared_with;
  std::unique_ptr<KernelChecker> checker{};  ///< of kernels that are not the emulator's
  std::string lost{};                        ///< why it does not go on; empty while it does
  std::chrono::duration<double, std::milli> spent{};  ///< on launching the last step
};

}  // namespace halfscope
