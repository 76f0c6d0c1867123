// SPDX-License-Identifier: MIT
#include "analysis/plans/lint_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/plans/decisions.h"
#include "core/error.h"

namespace halfscope::lint {
namespace {

/// Returns whether the path of the rule selects the node by one of its names; see
/// core/lower/plan_paths.h.
bool selects_path(const PlanRule& rule, const Node& node) {
  if (glob_match(rule.path, node.path)) return true;
  const size_t part = node.path.find(':');
  return (part != std::string::npos && glob_match(rule.path, node.path.substr(0, part))) ||
         (!node.alias.empty() && glob_match(rule.path, node.alias));
}

bool selects(const PlanRule& rule, const Node& node) {
  return (rule.op.empty() || rule.op == node.op) && selects_path(rule, node);
}

std::string rule_text(const PlanRule& rule) {
  return rule.op.empty() ? fmt::format("path '{}'", rule.path)
                         : fmt::format("path '{}' and op {}", rule.path, rule.op);
}

bool same(const NodePlan& a, const NodePlan& b) {
  return a.follows == b.follows && (a.follows || (a.read == b.read && a.write == b.write)) &&
         a.accumulation == b.accumulation && a.rounding == b.rounding && a.scale == b.scale &&
         a.grad_read == b.grad_read && a.grad_rounding == b.grad_rounding &&
         a.stagewise == b.stagewise && a.constants_in_range == b.constants_in_range &&
         a.clamps == b.clamps && a.prescale == b.prescale;
}

/// Returns the plan of the node, which rules may select by another name than its path.
NodePlan resolved(Plan plan, const Node& node) {
  std::erase_if(plan.rules, [&](const PlanRule& rule) {
    return rule.path.empty() ? !rule.op.empty() && rule.op != node.op : !selects(rule, node);
  });
  for (PlanRule& rule : plan.rules) rule.path = rule.op = "";
  return resolve(plan, node.path, node.op);
}

/// Returns whether both rules set something, to different values.
bool contradicts(const PlanRule& a, const PlanRule& b) {
  const auto differ = [](const auto& x, const auto& y) { return x && y && *x != *y; };
  const bool formats = a.follow || a.read || a.write, others = b.follow || b.read || b.write;
  return (formats && others &&
          (a.follow != b.follow || differ(a.read, b.read) || differ(a.write, b.write))) ||
         differ(a.accumulation, b.accumulation) || differ(a.rounding, b.rounding) ||
         differ(a.scale, b.scale) || differ(a.stagewise, b.stagewise) ||
         differ(a.constants_in_range, b.constants_in_range) || differ(a.clamps, b.clamps) ||
         differ(a.prescale, b.prescale);
}

}  // namespace

Finding finding(const char* name, Severity severity, std::string layer, std::string text,
                std::string advice) {
  Finding result{.rule = name, .severity = severity, .layer = std::move(layer)};
  result.mechanism = text.substr(0, text.find(". "));
  result.text = std::move(text);
  result.action.text = std::move(advice);
  if (!result.layer.empty()) result.action.layers = {result.layer};
  return result;
}

Plan without_unmatched(const Model& model, const Plan& plan, std::vector<Finding>& findings) {
  const std::vector<Node>& nodes = model.graph.nodes();
  const auto any = [](const std::vector<Node>& list, auto&& is) {
    return std::any_of(list.begin(), list.end(), is);
  };
  // A path may name a primitive, which exists only once the rest of the plan is applied.
  Plan certain = plan;
  std::erase_if(certain.rules, [&](const PlanRule& rule) {
    return !rule.path.empty() &&
           !any(nodes, [&](const Node& node) { return selects_path(rule, node); });
  });
  const bool all = certain.rules.size() == plan.rules.size();
  const ExplainedPlan lowered = all ? ExplainedPlan{} : explain_plan(model, certain);
  Plan result = plan;
  result.rules.clear();
  for (const PlanRule& rule : plan.rules) {
    const auto selected = [&](const Node& node) { return selects(rule, node); };
    const auto by_path = [&](const Node& node) { return selects_path(rule, node); };
    const std::vector<Node>& parts = lowered.executable.graph.nodes();
    const bool path_exists = rule.path.empty() || any(nodes, by_path) || any(parts, by_path);
    if (path_exists) result.rules.push_back(rule);
    if (rule.path.empty() || any(nodes, selected) || any(parts, selected)) continue;
    const std::string what = path_exists
                                 ? fmt::format("The layers that match it are not {}.", rule.op)
                                 : "No layer of the network has such a path.";
    findings.push_back(
        finding("rule_selects_nothing", Severity::error, "",
                fmt::format("The rule with {} selects nothing. {}", rule_text(rule), what),
                "Correct the path, or remove the rule. halfscope plan show lists the layers."));
  }
  return result;
}

void check_overridden(const Model& model, const Plan& plan, std::vector<Finding>& findings) {
  const std::vector<Node>& nodes = model.graph.nodes();
  for (size_t i = 0; i < plan.rules.size(); ++i) {
    const PlanRule& rule = plan.rules[i];
    if (rule.path.empty() || !rule.why.empty()) continue;
    Plan others = plan;
    others.rules.erase(others.rules.begin() + static_cast<int64_t>(i));
    const PlanRule* later = nullptr;
    std::string layer;
    int64_t selected = 0, overridden = 0;
    bool changes = false;
    for (size_t id = 0; id < nodes.size() && !changes; ++id) {
      const Node& node = nodes[id];
      if (!selects(rule, node)) continue;
      // Rules about the loss that HalfScope adds are needed although they repeat a default.
      const bool in_loss =
          model.first_loss_node != kNone && static_cast<NodeId>(id) >= model.first_loss_node;
      ++selected;
      changes = in_loss || !same(resolved(plan, node), resolved(others, node));
      for (size_t j = i + 1; j < plan.rules.size(); ++j) {
        const PlanRule& other = plan.rules[j];
        if (other.path.empty() || !selects(other, node) || !contradicts(rule, other)) continue;
        if (later == nullptr) layer = node.path;
        later = &other;
        ++overridden;
        break;
      }
    }
    if (selected == 0 || changes) continue;
    if (overridden == selected) {
      findings.push_back(finding(
          "rules_contradict", Severity::warning, layer,
          fmt::format(
              "{}: the rule with {} has no effect. A later rule with {} says otherwise, and "
              "the last rule wins.",
              layer, rule_text(rule), rule_text(*later)),
          "Remove one of the two, or put the more specific rule last."));
    } else {
      findings.push_back(finding(
          "rule_without_effect", Severity::info, "",
          fmt::format(
              "The rule with {} changes nothing. Without it, its layers compute the same way.",
              rule_text(rule)),
          "Remove the rule."));
    }
  }
}

}  // namespace halfscope::lint
