// SPDX-License-Identifier: MIT
// Shared by the rules about data-parallel ranks: how a lane reduces its gradients, where that
// causes errors, and the one change that fixes all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/lane_facts.h"
#include "core/numeric/sums/reduction.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// Returns how the lane reduces: as its plan says, else as the training did.
Reduction reduction_of_lane(const LaneFacts& lane);

/// A variable whose reduced gradient is wrong, at the step with its largest error.
struct InexactReduction {
  ReductionError worst;     ///< over all ranks
  int64_t first_step = -1;  ///< the first step with an error
  bool matters = false;     ///< the error is larger than gradients may have
  bool by_order = false;    ///< a sum in fp32 that is rounded once would be right
};
/// Returns them in execution order; none for lanes in full precision.
std::vector<InexactReduction> inexact_reductions(const LaneFacts& lane);

/// Returns the lane's reduction with everything fixed that the rules find; nothing if they find
/// nothing.
std::optional<Reduction> advised_reduction(const LaneFacts& lane);
/// Returns the same as an edit; empty if they find nothing.
PlanEdit reduction_edit(const LaneFacts& lane);

/// Returns the difference in words: "reduce over ranks by tree and let all ranks skip a step
/// together".
std::string reduction_advice(const LaneFacts& lane, const Reduction& advised);

}  // namespace halfscope
