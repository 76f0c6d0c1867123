// SPDX-License-Identifier: MIT
// The parts of lint: about rules of the plan, and about the planned network.
#pragma once

#include <string>
#include <vector>

#include "analysis/finding.h"
#include "analysis/plans/decisions.h"
#include "core/graph/model.h"
#include "core/plan/plan.h"

namespace halfscope::lint {

/// How many layers a finding names before it counts the rest.
inline constexpr size_t kNamedLayers = 3;

/// Returns a finding with its texts: what happens and why, then what to do.
Finding finding(const char* name, Severity severity, std::string layer, std::string text,
                std::string advice);

/// Adds findings about rules that select nothing. Returns the plan without those that lower()
/// refuses.
Plan without_unmatched(const Model& model, const Plan& plan, const RuleFlags& flags,
                       std::vector<Finding>& findings);

/// Adds findings about rules of users that change nothing, or that a later rule contradicts for all
/// their layers. A later rule for some of these layers is an exception, and where two rules overlap
/// in part, the last one wins: both are left out. So are rules with a reason (PlanRule::why), which
/// come from a preset.
void check_overridden(const Model& model, const ExplainedPlan& explained,
                      std::vector<Finding>& findings);

}  // namespace halfscope::lint
