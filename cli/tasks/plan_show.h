// SPDX-License-Identifier: MIT
// `halfscope plan list|show|explain|diff`: plans by name, and what they decide about a network.
#pragma once

#include <string>
#include <vector>

#include "analysis/plans/decisions.h"
#include "cli/args/settings.h"
#include "core/error.h"
#include "core/plan/plan.h"

namespace halfscope {

/// Prints the presets, by group. `json`: as halfscope.plans/1.
int plan_list(bool json);

/// Prints a plan: of the network's nodes if the settings name one, else its rules. `message` is
/// what the plan's framework says about the GPUs; it comes last.
int plan_show(const std::string& plan, const Settings& settings, const std::string& message);

/// Prints what the plan decides about the nodes that `glob` selects, by whose rule, and what would
/// change it. Throws Error (usage) if it selects none.
int plan_explain(const std::string& plan, const std::string& glob, const Settings& settings);

/// Returns the error for a NODE of plan explain that selects no node of `model`. `words` are what
/// it could have been, `hint` is what to say if none is similar. A plan's name is not a node's.
Error no_such_node(const std::string& glob, const std::string& model,
                   const std::vector<std::string>& words, const std::string& hint);

/// Prints the nodes and settings that differ between two plans.
int plan_diff(const std::string& a, const std::string& b, const Settings& settings);

/// Returns the plan with the settings' --fp32 and --accumulate. Throws Error (usage).
Plan planned(const std::string& plan, const Settings& settings);
/// Returns which flags added rules to it.
RuleFlags rule_flags(const Plan& planned, const Settings& settings);

}  // namespace halfscope
