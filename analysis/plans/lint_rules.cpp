// SPDX-License-Identifier: MIT
#include "analysis/plans/lint_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/plans/deciding_rule.h"
#include "analysis/rules/text.h"
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

bool same(const NodePlan& a, const NodePlan& b) {
  return a.follows == b.follows && (a.follows || (a.read == b.read && a.write == b.write)) &&
         a.accumulation == b.accumulation && a.rounding == b.rounding && a.scale == b.scale &&
         a.second_scale == b.second_scale && a.grad_read == b.grad_read &&
         a.grad_rounding == b.grad_rounding && a.stagewise == b.stagewise &&
         a.constants_in_range == b.constants_in_range && a.clamps == b.clamps &&
         a.prescale == b.prescale;
}

/// Returns the plan of the node, which rules may select by another name than its path.
NodePlan resolved(Plan plan, const Node& node) {
  std::erase_if(plan.rules, [&](const PlanRule& rule) {
    return rule.path.empty() ? !rule.op.empty() && rule.op != node.op : !selects(rule, node);
  });
  for (PlanRule& rule : plan.rules) rule.path = rule.op = "";
  return resolve(plan, node.path, node.op);
}

/// A setting that rules make.
struct Setting {
  const char* name;
  bool (*made)(const PlanRule& rule);
  /// Returns whether two rules that make it disagree.
  bool (*differs)(const PlanRule& a, const PlanRule& b);
};

template <auto Member>
constexpr Setting setting(const char* name) {
  return {name, [](const PlanRule& rule) { return (rule.*Member).has_value(); },
          [](const PlanRule& a, const PlanRule& b) { return a.*Member != b.*Member; }};
}

template <auto Member>
constexpr Setting format_setting(const char* name) {
  return {name, [](const PlanRule& rule) { return rule.follow || (rule.*Member).has_value(); },
          [](const PlanRule& a, const PlanRule& b) {
            return a.follow != b.follow || a.same_formats != b.same_formats ||
                   (!a.follow && a.*Member != b.*Member);
          }};
}

constexpr std::array kSettings{
    format_setting<&PlanRule::read>("read format"),
    format_setting<&PlanRule::write>("write format"),
    setting<&PlanRule::grad_read>("gradient's read format"),
    setting<&PlanRule::accumulation>("accumulation"),
    setting<&PlanRule::rounding>("rounding"),
    setting<&PlanRule::grad_rounding>("gradient's rounding"),
    setting<&PlanRule::scale>("scale"),
    setting<&PlanRule::stagewise>("mode"),
    setting<&PlanRule::rounds_weights>("reading of weights"),
    setting<&PlanRule::constants_in_range>("handling of constants"),
    setting<&PlanRule::clamps>("handling of overflow"),
    setting<&PlanRule::prescale>("prescale"),
};

/// The layers of a network by the rules that apply to them.
class RuledLayers {
 public:
  explicit RuledLayers(const ExplainedPlan& explained) : explained_(explained) {}

  /// Returns the layers that a rule selects.
  std::vector<const NodeDecision*> selected(int rule) const {
    std::vector<const NodeDecision*> layers;
    for (const NodeDecision& node : explained_.nodes) {
      if (position(node, rule) < node.rules.size()) layers.push_back(&node);
    }
    return layers;
  }
  /// Returns whether a rule after this one makes the setting for the layer.
  bool is_overridden(const NodeDecision& layer, int rule, const Setting& setting) const {
    const auto after = layer.rules.begin() + static_cast<ptrdiff_t>(position(layer, rule)) + 1;
    return std::any_of(after, layer.rules.end(),
                       [&](int other) { return setting.made(at(other)); });
  }
  /// Returns whether `other` applies to all these layers, after `rule`.
  bool covers(int other, int rule, const std::vector<const NodeDecision*>& layers) const {
    return std::all_of(layers.begin(), layers.end(), [&](const NodeDecision* layer) {
      const size_t place = position(*layer, other);
      return place < layer->rules.size() && place > position(*layer, rule);
    });
  }

 private:
  const PlanRule& at(int rule) const { return explained_.plan.rules[static_cast<size_t>(rule)]; }
  static size_t position(const NodeDecision& layer, int rule) {
    return static_cast<size_t>(std::find(layer.rules.begin(), layer.rules.end(), rule) -
                               layer.rules.begin());
  }

  const ExplainedPlan& explained_;
};

/// Settings of a rule that a later one contradicts for all layers of the rule.
struct Contradiction {
  int by = -1;  ///< the last such rule; -1: there is none
  std::vector<std::string> settings{};
  bool all = true;  ///< the rule makes no setting that takes effect
};

Contradiction contradiction_of(const RuledLayers& ruled, const std::vector<PlanRule>& rules,
                               int rule, const std::vector<const NodeDecision*>& layers) {
  Contradiction found;
  const PlanRule& own = rules[static_cast<size_t>(rule)];
  for (const Setting& setting : kSettings) {
    if (!setting.made(own)) continue;
    const bool dead = std::all_of(layers.begin(), layers.end(), [&](const NodeDecision* layer) {
      return ruled.is_overridden(*layer, rule, setting);
    });
    if (!dead) {
      found.all = false;
      continue;
    }
    for (int other = static_cast<int>(rules.size()) - 1; other >= 0; --other) {
      const PlanRule& later = rules[static_cast<size_t>(other)];
      if (other == rule || !setting.made(later) || !setting.differs(own, later)) continue;
      if (!ruled.covers(other, rule, layers)) continue;
      found.by = std::max(found.by, other);
      found.settings.emplace_back(setting.name);
      break;
    }
  }
  // In the words of plans: "format" sets both.
  std::vector<std::string>& names = found.settings;
  if (names.size() > 1 && names[0] == kSettings[0].name && names[1] == kSettings[1].name) {
    names.erase(names.begin());
    names.front() = "format";
  }
  return found;
}

std::string lower_first(std::string text) {
  if (text.starts_with("The ")) text.front() = 't';
  return text;
}

/// Returns how a rule's finding names it and the later rule, which may select the same.
std::pair<std::string, std::string> names_of(const ExplainedPlan& explained, int rule, int by) {
  std::string first = rule_name(explained.plan, rule, explained.flags);
  std::string second = rule_name(explained.plan, by, explained.flags);
  if (first == second) {
    const std::string selects = selected_by(explained.plan.rules[static_cast<size_t>(rule)]);
    first = "The plan's first rule for " + selects;
    second = "A later rule for " + selects;
  }
  return {lower_first(first), second};
}

Finding contradiction_finding(const ExplainedPlan& explained, int rule, const Contradiction& found,
                              const std::vector<const NodeDecision*>& layers) {
  std::vector<std::string> paths;
  for (const NodeDecision* layer : layers) paths.push_back(layer->path);
  const auto [name, other] = names_of(explained, rule, found.by);
  const std::string what =
      found.all ? name : fmt::format("the {} of {}", name_list(found.settings), name);
  return finding("rules_contradict", Severity::warning, paths.front(),
                 fmt::format("{}: {} {} no effect. {} says otherwise for all of its layers, and "
                             "the last rule wins.",
                             name_list(paths, kNamedLayers), what,
                             found.all || found.settings.size() == 1 ? "has" : "have", other),
                 "Remove one of the two, or put the more specific rule last.");
}

/// Returns whether the plan is the same for these nodes of the network without the rule.
bool changes_nothing(const Model& model, const Plan& plan, size_t rule) {
  Plan others = plan;
  others.rules.erase(others.rules.begin() + static_cast<int64_t>(rule));
  const std::vector<Node>& nodes = model.graph.nodes();
  bool any = false;
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (!selects(plan.rules[rule], nodes[id])) continue;
    // Rules about the loss that HalfScope adds are needed although they repeat a default.
    if (model.first_loss_node != kNone && static_cast<NodeId>(id) >= model.first_loss_node)
      return false;
    if (!same(resolved(plan, nodes[id]), resolved(others, nodes[id]))) return false;
    any = true;
  }
  return any;
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

Plan without_unmatched(const Model& model, const Plan& plan, const RuleFlags& flags,
                       std::vector<Finding>& findings) {
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
  for (size_t i = 0; i < plan.rules.size(); ++i) {
    const PlanRule& rule = plan.rules[i];
    const auto selected = [&](const Node& node) { return selects(rule, node); };
    const auto by_path = [&](const Node& node) { return selects_path(rule, node); };
    const std::vector<Node>& parts = lowered.executable.graph.nodes();
    const bool path_exists = rule.path.empty() || any(nodes, by_path) || any(parts, by_path);
    // A rule without settings keeps the places of the others.
    result.rules.push_back(path_exists ? rule : PlanRule{});
    if (rule.path.empty() || any(nodes, selected) || any(parts, selected)) continue;
    const std::string what = path_exists
                                 ? fmt::format("The layers that match it are not {}.", rule.op)
                                 : "No layer of the network has such a path.";
    findings.push_back(
        finding("rule_selects_nothing", Severity::error, "",
                rule_name(plan, static_cast<int>(i), flags) + " selects nothing. " + what,
                "Correct the path, or remove the rule. halfscope plan show lists the layers."));
  }
  return result;
}

void check_overridden(const Model& model, const ExplainedPlan& explained,
                      std::vector<Finding>& findings) {
  const Plan& plan = explained.plan;
  const RuledLayers ruled(explained);
  for (size_t i = 0; i < plan.rules.size(); ++i) {
    const int rule = static_cast<int>(i);
    if (!plan.rules[i].why.empty()) continue;
    const std::vector<const NodeDecision*> layers = ruled.selected(rule);
    if (layers.empty()) continue;
    const Contradiction found = contradiction_of(ruled, plan.rules, rule, layers);
    if (found.by >= 0) {
      findings.push_back(contradiction_finding(explained, rule, found, layers));
    } else if (!plan.rules[i].path.empty() && changes_nothing(model, plan, i)) {
      // A rule for an operator may be written for any network.
      findings.push_back(
          finding("rule_without_effect", Severity::info, "",
                  rule_name(plan, rule, explained.flags) +
                      " changes nothing. Without it, its layers compute the same way.",
                  "Remove it."));
    }
  }
}

}  // namespace halfscope::lint
