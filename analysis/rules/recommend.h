// SPDX-License-Identifier: MIT
// Turns the findings of a lane into one edit of its plan: the smallest set of layers to keep in
// fp32 that the rules could justify, a loss scale, fp32 storage of the variables.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/finding.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

struct Recommendation {
  int lane = 0;
  PlanEdit edit{};          ///< layers in execution order; a loss scale that suits the advised plan
  std::string plan_json{};  ///< the lane's plan with the edit made
  std::string text{};       ///< one sentence
};

/// Returns the advice for a lane; nothing if it has no warning or error that a change can fix.
std::optional<Recommendation> recommend(const RunView& run, std::span<const Finding> findings,
                                        int lane);

/// Returns the lane to discuss if the user names none: the first with a warning or error, else the
/// first with any finding, else the first that is not a reference. -1 if the run has no lanes.
int default_lane(const RunView& run, std::span<const Finding> findings);

}  // namespace halfscope
