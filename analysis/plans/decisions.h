// SPDX-License-Identifier: MIT
// A plan explained node by node: the formats each node gets, the rule that decided, and what would
// change it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/model.h"
#include "core/lower/lower.h"
#include "core/plan/plan.h"

namespace halfscope {

struct NodeDecision {
  std::string path, op;  ///< "layer1.0.conv1", "Conv"
  FloatFormat read, write;
  /// Format in which the node's own weights are stored; nothing if it has none.
  std::optional<FloatFormat> weights = std::nullopt;
  /// Scales of the operands of a product: "delayed", "divide:0.02, second operand: channel"; "" if
  /// they have none.
  std::string scale{};
  bool in_double = false;  ///< computed and stored in double precision, in place of the formats
  bool follows = false;    ///< it takes the formats of its inputs
  int rule = -1;  ///< index of the plan's rule that set the formats; -1: the plan's default
  /// Indices of all rules that apply, in the order in which they do: the last one wins. Not known
  /// for recorded runs.
  std::vector<int> rules{};
  std::string why{};     ///< one sentence or more, never empty
  std::string inputs{};  ///< of nodes that follow: "relu1 (fp16), conv1 (fp32)"
  std::string change{};  ///< what would change it
};

/// Flags that added rules to a plan, by the index of the rule: "--fp32 'conv*'".
using RuleFlags = std::map<int, std::string>;

/// A plan for one network.
struct ExplainedPlan {
  Plan plan;
  RuleFlags flags{};
  /// As for training; for inference if there is no loss, or if the plan is only for that.
  Executable executable;
  std::vector<NodeDecision> nodes;  ///< the nodes of the forward pass, in execution order
};

/// Returns whether the plan is only for inference: it scales second operands of products apart.
bool is_for_inference(const Plan& plan);

/// Returns what the plan decides about each node of the forward pass. Nodes of an expanded
/// composite are listed one by one. Reasons name the flags. `inference` plans the forward pass
/// alone even if the network has a loss. Throws Error (usage) for a path that matches no node.
ExplainedPlan explain_plan(const Model& model, const Plan& plan, const RuleFlags& flags = {},
                           bool inference = false);

/// Returns the decisions about nodes that `glob` selects: by path, by module, or by operator.
std::vector<const NodeDecision*> decisions_about(const ExplainedPlan& explained,
                                                 const std::string& glob);

/// A node that two plans treat differently. A node that only one of them has (an expanded
/// composite) has no decision of the other.
struct DecisionDifference {
  const NodeDecision* a = nullptr;
  const NodeDecision* b = nullptr;
};

/// Returns the nodes whose formats differ, in the order of `a`; nodes that only `b` has come last.
std::vector<DecisionDifference> differing_nodes(const ExplainedPlan& a, const ExplainedPlan& b);

/// A setting of the whole plan that differs, for example {"weights and buffers", "fp32", "fp16"}.
struct SettingDifference {
  std::string what, a, b;
};
std::vector<SettingDifference> differing_settings(const Plan& a, const Plan& b);

}  // namespace halfscope
