// SPDX-License-Identifier: MIT
// KernelChecker: checks whether the kernels of a lane do what the emulator does. Trajectories of
// two lanes drift apart for good reasons, so each operator is checked alone: the emulator runs it
// on the operands that the lane's kernel read.
//
//   operands in the lane --> the node alone on the emulator --> other bits?
//   of a product: --> exact sums, sums of magnitudes --> further off than any order explains?
//                 --> sampled elements, summed as the hardware is known to, as the plan says, and
//                     in the order that FPRev finds in the kernel --> how many does it explain?
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/lower/execution.h"
#include "core/lower/lower.h"
#include "core/observe/recording.h"
#include "core/observe/sum_order.h"

namespace halfscope {

class KernelChecker {
 public:
  /// Keeps references to all arguments. `orders` may be null.
  KernelChecker(const Executable& executable, const Backend& backend, const Backend& emulator,
                SumOrderCache* orders = nullptr)
      : executable_(executable), backend_(backend), emulator_(emulator), orders_(orders) {}

  /// Checks all taps of values that nodes of the forward and backward pass computed, in execution
  /// order. `program` has run `grad` (or an inference's `eval`) with these random words, and not
  /// yet `update`. Orders that were found are tried first the next time.
  std::vector<KernelCheck> check(int64_t step, const Program& program, const RandomSource& random);

 private:
  struct Found {
    std::vector<SumOrder> orders;
    std::string why;  ///< why there are none
  };
  void explain(NodeId node, const Program& program, KernelCheck& check);
  const Found& probed(NodeId node, const std::string& kernel);
  ProbedOrder kept_or_probed(NodeId node, const std::string& kernel, const std::string& product);

  const Executable& executable_;
  const Backend& backend_;
  const Backend& emulator_;
  SumOrderCache* orders_;
  std::map<NodeId, SumOrder> best_;
  std::map<std::string, Found> probed_;  ///< by kernel, operator, shapes and formats
};

}  // namespace halfscope
