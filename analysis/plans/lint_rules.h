// SPDX-License-Identifier: MIT
// The parts of lint: about rules of the plan, and about the planned network.
#pragma once

#include <string>
#include <vector>

#include "analysis/finding.h"
#include "core/graph/model.h"
#include "core/plan/plan.h"

namespace halfscope::lint {

/// Returns a finding with its texts: what happens and why, then what to do.
Finding finding(const char* name, Severity severity, std::string layer, std::string text,
                std::string advice);

/// Adds findings about rules that select nothing. Returns the plan without those that lower()
/// refuses.
Plan without_unmatched(const Model& model, const Plan& plan, std::vector<Finding>& findings);

/// Adds findings about rules of users that change nothing, or that a later rule overrides. Rules
/// with a reason (PlanRule::why) come from a preset and are left out.
void check_overridden(const Model& model, const Plan& plan, std::vector<Finding>& findings);

}  // namespace halfscope::lint
