// SPDX-License-Identifier: MIT
// The only list of backends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Returns the names that --backend takes.
std::vector<std::string> backend_names();

/// Throws Error (usage) for another name.
void check_backend_name(const std::string& name);

/// Returns the backend that runs a plan: `name`, or for plans in double their own. Throws
/// Error (usage) for a backend that cannot run here.
const Backend& backend_for(const Plan& plan, const std::string& name = "emulated");

/// A lane as typed: "mixed_float16", "cuda:plan.json", or a plan's JSON in place of a
/// name.
struct LaneRequest {
  std::string backend;  ///< empty for the default
  std::string plan;     ///< preset or file; empty if the plan is spelled out
  std::optional<Plan> spelled_out{};
};
/// Throws Error (usage) if a plan that is spelled out cannot be read.
LaneRequest parse_lane(const std::string& text);
/// Returns the form that parse_lane() reads.
std::string lane_text(const LaneRequest& lane);

}  // namespace halfscope
