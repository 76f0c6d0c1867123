// SPDX-License-Identifier: MIT
// Comparator: measures, at a sampled step, how far each tensor of a lane is from the same tensor of
// another lane, and how much of that its own operator adds. The operator runs once more on the
// lane's own operands, taken before they were narrowed for it, in fp32 and in double. The
// difference from that is the *local* error. The difference between that and the other lane arrived
// with the operands: it is *inherited*. Both lanes must have run `grad` and not yet `update`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/lower/lower.h"
#include "core/observe/recording.h"

namespace halfscope {

/// One lane at a step, as the comparator sees it.
struct ComparedLane {
  const Executable& executable;
  const Program& program;
  double loss_scale = 1.0;  ///< factor that the gradients carry
};

/// Returns the node that computed a tapped value, if it can be run again on its operands between
/// its entry and the update. kNone for inputs and variables, and if a buffer has changed by then.
NodeId rerunnable_node(const Executable& executable, const Tap& tap);

class Comparator {
 public:
  /// Pairs the sites of `lane` with the sites of `other` that have the same name and shape.
  Comparator(const Executable& lane, const Executable& other, int other_lane);

  /// Returns the errors of all paired sites, in execution order, with `step` filled in.
  std::vector<SiteError> compare(int64_t step, const ComparedLane& lane,
                                 const ComparedLane& other) const;

 private:
  struct Pair {
    size_t tap, other_tap;
    NodeId node;    ///< computes the value; kNone for inputs and variables
    size_t output;  ///< which of its outputs
    bool gradient;  ///< carries the loss scale
    ValueId scale = kNone, other_scale = kNone;  ///< factors of codes, for scaled operands
  };
  int other_lane_;
  std::vector<Pair> pairs_;
};

/// Returns the error of `x` against `other`, two versions of one tensor, without the parts that
/// need an operator. `x` contains values of `format`; `factor` brings `other` to the scale of `x`.
SiteError compare_values(std::span<const float> x, std::span<const float> other, double factor,
                         const FloatFormat& format);

}  // namespace halfscope
