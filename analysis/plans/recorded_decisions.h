// SPDX-License-Identifier: MIT
// What the plan of a recorded lane decides about each of its layers, from the run file alone.
#pragma once

#include <vector>

#include "analysis/plans/decisions.h"
#include "core/observe/recording.h"

namespace halfscope {

/// Returns one decision per node of the lane's forward pass, in execution order, as explain_plan()
/// gives for its network. `rule` counts in the plan as it was written.
///
/// A run file does not record which layers are parts of a composite. Where it matters, this is
/// worked out from the formats: a part whose rule stays open names the other rules in `why`. The
/// loss that HalfScope adds is known by its documented path, "loss". If this version cannot read
/// the lane's plan, `why` says so.
std::vector<NodeDecision> recorded_decisions(const LaneInfo& lane);

}  // namespace halfscope
