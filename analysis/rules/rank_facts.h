// SPDX-License-Identifier: MIT
// What the rules about data-parallel ranks share: how a lane reduces its gradients, where that
// makes errors, and the one change that answers all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/lane_facts.h"
#include "core/numeric/sums/reduction.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// How the lane reduces: as its plan says, else as the training did.
Reduction reduction_of_lane(const LaneFacts& lane);

/// One variable whose reduced gradient is off, at the step at which it is furthest off.
struct InexactReduction {
  ReductionError worst;     ///< over all ranks
  int64_t first_step = -1;  ///< at which it is off
  bool matters = false;     ///< by more than gradients may be
  bool by_order = false;    ///< a sum in fp32 that is stored once would not be off
};
/// In execution order; nothing of lanes in full precision.
std::vector<InexactReduction> inexact_reductions(const LaneFacts& lane);

/// The lane's reduction with all that the rules find cured; nothing if they find nothing.
std::optional<Reduction> advised_reduction(const LaneFacts& lane);
/// The same as an edit; empty if they find nothing.
PlanEdit reduction_edit(const LaneFacts& lane);

/// "reduce over ranks by tree and let all ranks skip a step together": what differs.
std::string reduction_advice(const LaneFacts& lane, const Reduction& advised);

}  // namespace halfscope
