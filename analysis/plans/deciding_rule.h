// SPDX-License-Identifier: MIT
// The rule of a plan that sets the formats of a node: for plans of a network and of a recorded run.
// Private to analysis/plans.
#pragma once

#include <string>
#include <vector>

#include "analysis/plans/decisions.h"

namespace halfscope {

/// The node of the network as it was written, before composites expand, that a planned node came
/// from.
struct WrittenNode {
  std::string path, op;
  /// Other names by which rules may select it: its module, and its name in an imported file.
  std::vector<std::string> other_names{};
  bool expands = false;  ///< its parts are planned one by one
  bool in_loss = false;  ///< of the loss that HalfScope adds
};

/// Returns the other names of a node: the module of its path, and `alias`, its name in an imported
/// file ("" for none).
std::vector<std::string> other_names(const std::string& path, const std::string& alias);

/// Returns the rules that apply to a node, in the order in which they do, as indices; see resolve()
/// and core/lower/add_planned.cpp. `path` and `op` belong to the node itself, which may be a
/// part of `source`.
std::vector<int> applying_rules(const Plan& plan, const std::string& path, const std::string& op,
                                const WrittenNode& source);

/// Returns the nodes that a rule selects, in words: "operator Conv at path 'head*'".
std::string selected_by(const PlanRule& rule);

/// Returns the last of these rules that sets formats, or -1.
int deciding_rule(const Plan& plan, const std::vector<int>& rules);

/// Returns what a rule is called, as it begins a sentence: "The plan's rule for operator Conv", or
/// the flag that added it.
std::string rule_name(const Plan& plan, int rule, const RuleFlags& flags = {});

/// Fills in `why` and `change`, from the rule or the plan if they have texts.
void explain_decision(const Plan& plan, const WrittenNode& source, NodeDecision& decision,
                      const RuleFlags& flags = {});

/// Returns whether decisions include the node: not casts, scaled operands and metrics.
bool has_decision(const std::string& path, const std::string& op);

}  // namespace halfscope
