// SPDX-License-Identifier: MIT
// Comparator: at a sampled step, how far each tensor of a lane is from the same tensor of another
// lane, and how much of that its own operator adds. The operator is run once more on the lane's own
// operands, as they were before they were narrowed for it, in fp32 and in double: what differs from
// that is *local*; what differs between that and the other lane came in with the operands, it is
// *inherited*. Both lanes must have run `grad` and not yet `update`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/lower/lower.h"
#include "core/observe/recording.h"

namespace halfscope {

/// One lane as the comparator sees it at a step.
struct ComparedLane {
  const Executable& executable;
  const Program& program;
  double loss_scale = 1.0;  ///< that the gradients are multiplied with
};

/// The node that made a tapped value, if it can be run again on its operands between the entry that
/// ran it and the update; kNone of inputs and variables, and where a buffer has moved on by then.
NodeId node_to_run_again(const Executable& executable, const Tap& tap);

class Comparator {
 public:
  /// Pairs the sites of `lane` with those of the same name and shape of `other`.
  Comparator(const Executable& lane, const Executable& other, int other_lane);

  /// Errors of all paired sites, in execution order. `step` is filled in.
  std::vector<SiteError> compare(int64_t step, const ComparedLane& lane,
                                 const ComparedLane& other) const;

 private:
  struct Pair {
    size_t tap, other_tap;
    NodeId node;    ///< that makes the value; kNone for inputs and variables
    size_t output;  ///< which of its outputs
    bool gradient;  ///< carries the loss scale
    ValueId scale = kNone, other_scale = kNone;  ///< what codes are multiplied with, if they are
  };
  int other_lane_;
  std::vector<Pair> pairs_;
};

/// The error of `x` against `other`, both values of a tensor, without the parts that need an
/// operator. `x` holds values of `format`; `factor` brings `other` to the scale of `x`.
SiteError compare_values(std::span<const float> x, std::span<const float> other, double factor,
                         const FloatFormat& format);

}  // namespace halfscope
