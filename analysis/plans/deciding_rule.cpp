// SPDX-License-Identifier: MIT
#include "analysis/plans/deciding_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/own_path.h"

namespace halfscope {
namespace {

bool sets_formats(const PlanRule& rule) { return rule.follow || rule.read || rule.write; }

bool selects(const PlanRule& rule, const std::string& path, const std::string& op) {
  return (rule.op.empty() || rule.op == op) && (rule.path.empty() || glob_match(rule.path, path));
}

bool selects_written(const PlanRule& rule, const WrittenNode& node) {
  if (selects(rule, node.path, node.op)) return true;
  if (is_own_path(rule.path)) return false;
  return std::any_of(node.other_names.begin(), node.other_names.end(),
                     [&](const std::string& name) { return selects(rule, name, node.op); });
}

}  // namespace

std::string selected_by(const PlanRule& rule) {
  std::string text;
  if (!rule.op.empty()) text += "operator " + rule.op;
  if (!rule.path.empty()) text += (text.empty() ? "path '" : " at path '") + rule.path + "'";
  return text;
}

std::vector<std::string> other_names(const std::string& path, const std::string& alias) {
  std::vector<std::string> names;
  if (const size_t part = path.find(':'); part != std::string::npos)
    names.push_back(path.substr(0, part));
  if (!alias.empty()) names.push_back(alias);
  return names;
}

std::vector<int> applying_rules(const Plan& plan, const std::string& path, const std::string& op,
                                const WrittenNode& source) {
  std::vector<int> rules, own;
  for (size_t i = 0; i < plan.rules.size(); ++i) {
    const PlanRule& rule = plan.rules[i];
    if (source.in_loss && rule.path.empty()) continue;
    if (selects_written(rule, source)) {
      rules.push_back(static_cast<int>(i));
    } else if (path != source.path && (source.expands || !rule.path.empty()) &&
               selects(rule, path, op)) {
      own.push_back(static_cast<int>(i));
    }
  }
  // If parts are planned one by one, rules apply in the plan's order. A primitive's rules come
  // after the rules of its composite.
  rules.insert(rules.end(), own.begin(), own.end());
  if (source.expands) std::sort(rules.begin(), rules.end());
  return rules;
}

int deciding_rule(const Plan& plan, const std::vector<int>& rules) {
  const auto last = std::find_if(rules.rbegin(), rules.rend(), [&](int rule) {
    return sets_formats(plan.rules[static_cast<size_t>(rule)]);
  });
  return last == rules.rend() ? -1 : *last;
}

std::string rule_name(const Plan& plan, int rule, const RuleFlags& flags) {
  if (const auto flag = flags.find(rule); flag != flags.end()) return flag->second;
  return "The plan's rule for " + selected_by(plan.rules[static_cast<size_t>(rule)]);
}

void explain_decision(const Plan& plan, const WrittenNode& source, NodeDecision& decision,
                      const RuleFlags& flags) {
  const bool by_default = decision.rule < 0;
  const PlanRule* rule = by_default ? nullptr : &plan.rules[static_cast<size_t>(decision.rule)];
  if (plan.double_precision) {
    decision.why = "This plan computes everything in double, without rounding.";
    decision.change = "Use another plan: this one has no rules.";
    return;
  }
  if (source.in_loss && by_default) {
    decision.why =
        "HalfScope adds this loss and computes it in fp32, because no rule names its path.";
    decision.change = "Add a rule that names its path.";
    return;
  }
  decision.why = by_default ? plan.why : rule->why;
  decision.change = by_default ? plan.change : rule->change;
  if (decision.why.empty()) {
    decision.why = by_default ? "No rule of the plan selects it, so the plan's default applies."
                              : rule_name(plan, decision.rule, flags) + " selects it.";
  }
  if (const auto flag = flags.find(decision.rule); flag != flags.end()) {
    decision.change = fmt::format("Leave out {}, or choose a path that does not select {}.",
                                  flag->second, decision.path);
  }
  if (decision.change.empty()) {
    decision.change = fmt::format(
        "Add a rule to the end of the plan: {{\"path\": \"{}\", "
        "\"format\": \"{}\"}}.",
        decision.path, decision.read == kFp32 ? "fp16" : "fp32");
  }
}

bool has_decision(const std::string& path, const std::string& op) {
  return !path.starts_with("metrics/") && op != "Cast" && op != "Quantize" && op != "Dequantize" &&
         op != "ScaleUpdate";
}

}  // namespace halfscope
