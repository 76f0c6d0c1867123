// SPDX-License-Identifier: MIT
#include "cli/tasks/plan_show.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "analysis/plans/casts.h"
#include "analysis/plans/decisions.h"
#include "analysis/rules/text.h"
#include "cli/args/backends.h"
#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/planned_network.h"
#include "cli/args/zoo_case.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using TableRows = std::vector<std::vector<std::string>>;

std::string left_table(const TableRows& rows) {
  return aligned(rows, std::vector<bool>(rows.front().size(), false));
}

std::string name_of(const NodeDecision& node, const FloatFormat& format) {
  return node.in_double ? "fp64" : format_name(format);
}

bool is_training(const ExplainedPlan& explained) {
  return explained.executable.forward == Entry::grad;
}

std::string weights_text(const NodeDecision& node) {
  return node.weights ? name_of(node, *node.weights) : "-";
}

std::string formats_text(const NodeDecision* node) {
  if (node == nullptr) return "-";
  const std::string weights = node->weights ? ", weights " + weights_text(*node) : std::string();
  const std::string scale = node->scale.empty() ? "" : " (" + node->scale + ")";
  return "reads " + name_of(*node, node->read) + scale + ", writes " + name_of(*node, node->write) +
         weights;
}

/// "training, 128 samples per step"
std::string what_runs(const ExplainedPlan& explained) {
  const bool trains = explained.executable.forward == Entry::grad;
  const int64_t batch = samples_of(explained.executable);
  const std::string sample = sample_text(explained.executable);
  const std::string samples = batch == 0
                                  ? ""
                                  : fmt::format(", {} sample{}{}{}", batch, batch == 1 ? "" : "s",
                                                sample.empty() ? "" : " of ", sample);
  return (trains ? "a training step" : "a forward pass") + samples;
}

/// Numbers the reasons of nodes in the order of their first node.
class Reasons {
 public:
  std::string number_of(const std::string& why) {
    const auto [found, is_new] = numbers_.try_emplace(why, texts_.size() + 1);
    if (is_new) texts_.push_back(why);
    return fmt::format("[{}]", found->second);
  }
  std::string text(const TextStyle& style) const {
    std::string all;
    for (size_t i = 0; i < texts_.size(); ++i) {
      all += paragraph(fmt::format("[{}] {}", i + 1, texts_[i]), style, 0, 4);
    }
    return all;
  }

 private:
  std::map<std::string, size_t> numbers_;
  std::vector<std::string> texts_;
};

/// "45 nodes fp16, 8 nodes fp32"
std::string counts_text(const ExplainedPlan& explained) {
  std::map<std::string, int64_t> counts;
  for (const NodeDecision& node : explained.nodes) ++counts[name_of(node, node.read)];
  std::string text;
  for (const auto& [format, count] : counts) {
    text += fmt::format("{}{} {} in {}", text.empty() ? "" : ", ", count,
                        count == 1 ? "node" : "nodes", format);
  }
  return text;
}

std::string casts_text(const CastTotals& casts, bool trains) {
  if (casts.casts == 0) return "no casts";
  return fmt::format(
      "{} casts ({} to fewer bits, {} to more; {} of weights{}), {} moved; "
      "{} kernels if every operator casts its own inputs",
      casts.casts, casts.to_fewer_bits, casts.to_more_bits, casts.of_weights,
      trains ? " and their gradients" : "", bytes_text(casts.bytes), casts.kernels_by_reader);
}

std::string scale_text(const Plan& plan, bool trains) {
  if (!trains) return "none, because a forward pass has no gradients";
  return needs_loss_scaling(plan) ? "needed: a format has fewer than 8 exponent bits"
                                  : "not needed";
}

Json decision_json(const NodeDecision& node) {
  return {{"path", node.path},
          {"op", node.op},
          {"read", name_of(node, node.read)},
          {"write", name_of(node, node.write)},
          {"scale", node.scale.empty() ? Json(nullptr) : Json(node.scale)},
          {"weights", node.weights ? Json(weights_text(node)) : Json(nullptr)},
          {"follows", node.follows},
          {"rule", node.rule < 0 ? Json(nullptr) : Json(node.rule)},
          {"why", node.why},
          {"inputs", node.inputs.empty() ? Json(nullptr) : Json(node.inputs)},
          {"change", node.change}};
}

Json casts_json(const std::vector<ValueCast>& casts) {
  const CastTotals totals = total(casts);
  Json list = Json::array();
  for (const ValueCast& cast : casts) {
    list.push_back({{"value", cast.value},
                    {"from", format_name(cast.from)},
                    {"to", format_name(cast.to)},
                    {"elements", cast.elements},
                    {"readers", cast.readers},
                    {"weight", cast.weight},
                    {"bytes", cast.bytes()}});
  }
  return {{"casts", totals.casts},
          {"to_fewer_bits", totals.to_fewer_bits},
          {"to_more_bits", totals.to_more_bits},
          {"of_weights", totals.of_weights},
          {"bytes", totals.bytes},
          {"kernels_by_reader", totals.kernels_by_reader},
          {"values", std::move(list)}};
}

Json about_json(const char* schema, const Settings& settings, int64_t batch) {
  return {{"schema", schema},
          {"version", HALFSCOPE_VERSION},
          {"model", settings.model},
          {"batch", batch}};
}

/// The rules of a plan, for which no network is needed.
std::string rules_text(const Plan& plan, const TextStyle& style) {
  TableRows rows{{"rule", "selects", "reads", "writes", "why"}};
  const auto name = [](const std::optional<FloatFormat>& format) {
    return format ? format_name(*format) : std::string("-");
  };
  Reasons reasons;
  const auto reason = [&](const std::string& why) {
    return why.empty() ? std::string() : reasons.number_of(why);
  };
  rows.push_back({"-", "all others", format_name(plan.defaults.read),
                  format_name(plan.defaults.write), reason(plan.why)});
  for (size_t i = 0; i < plan.rules.size(); ++i) {
    const PlanRule& rule = plan.rules[i];
    const std::string selects =
        rule.path.empty() ? rule.op : rule.path + (rule.op.empty() ? "" : " (" + rule.op + ")");
    rows.push_back({std::to_string(i + 1), selects, rule.follow ? "follow" : name(rule.read),
                    rule.follow ? "follow" : name(rule.write), reason(rule.why)});
  }
  return left_table(rows) + "\n" + reasons.text(style);
}

std::string heading(const std::string& plan, const Settings& settings) {
  std::string text = plan;
  for (const PresetInfo& preset : presets()) {
    if (preset.name == plan) text += ": " + preset.summary;
  }
  return text + (settings.model.empty() ? "" : "\nnetwork: " + settings.model);
}

/// A framework's own message keeps its lines.
std::string message_text(const std::string& message) {
  return message.empty() ? "" : "\ntf.keras logs on these GPUs:\n" + message + "\n";
}

int show_without_network(const std::string& name, const Settings& settings,
                         const std::string& message) {
  const Plan plan = planned(name, settings);
  if (settings.json) {
    write_out(plan_to_json(plan) + "\n");
    return 0;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  std::string text = heading(name, settings) + "\n";
  if (plan.double_precision) {
    write_out(text + "Everything is computed in double precision, without rounding.\n");
    return 0;
  }
  text += fmt::format("weights and buffers: {}\nloss scale: {}\n\n", format_name(plan.storage),
                      scale_text(plan, true));
  write_out(text + rules_text(plan, style) +
            paragraph("Add --model to see every node of a network.", style, 0, 0) +
            message_text(message));
  return 0;
}

}  // namespace

int plan_list(bool json) {
  if (json) {
    Json list = Json::array();
    for (const PresetInfo& preset : presets()) {
      list.push_back({{"name", preset.name}, {"group", preset.group}, {"summary", preset.summary}});
    }
    write_json(
        Json{{"schema", "halfscope.plans/1"}, {"version", HALFSCOPE_VERSION}, {"plans", list}});
    return 0;
  }
  size_t widest = 0;
  for (const PresetInfo& preset : presets()) widest = std::max(widest, preset.name.size());
  std::string text, group;
  for (const PresetInfo& preset : presets()) {
    if (preset.group != group) {
      text += (group.empty() ? "" : "\n") + preset.group + "\n";
      group = preset.group;
    }
    text += fmt::format("  {:<{}}  {}\n", preset.name, widest, preset.summary);
  }
  write_out(text + "\nA plan can also be a JSON file (see `halfscope help plans`).\n");
  return 0;
}

Plan planned(const std::string& name, const Settings& settings) {
  const LaneRequest request = parse_lane(name);
  if (!request.backend.empty()) {
    throw usage_error("'" + name + "' names a backend, but a plan is the same on all backends",
                      "write " + request.plan);
  }
  Plan plan = plan_of(request, settings);
  if (is_full_precision(plan)) return plan;
  about({"fp32"}, [&] {
    for (const std::string& glob : settings.fp32) keep_fp32(plan, glob);
  });
  return plan;
}

RuleFlags rule_flags(const Plan& planned, const Settings& settings) {
  RuleFlags flags;
  if (is_full_precision(planned)) return flags;
  int rule = static_cast<int>(planned.rules.size() - settings.fp32.size());  // they come last
  for (const std::string& glob : settings.fp32) flags[rule++] = "--fp32 " + shell_quoted(glob);
  return flags;
}

namespace {

ExplainedPlan explained_plan(const Model& network, const std::string& name,
                             const Settings& settings, bool inference = false) {
  const Plan plan = planned(name, settings);
  return explain_plan(network, plan, rule_flags(plan, settings), inference);
}

}  // namespace

int plan_show(const std::string& name, const Settings& settings, const std::string& message) {
  if (settings.model.empty()) return show_without_network(name, settings, message);
  const ExplainedPlan explained = explained_plan(planned_network(settings), name, settings);
  const std::vector<ValueCast> casts = value_casts(explained.executable);
  if (settings.json) {
    Json json = about_json("halfscope.plan-nodes/1", settings, samples_of(explained.executable));
    json["plan"] = explained.plan.name;
    json["trains"] = explained.executable.forward == Entry::grad;
    json["needs_loss_scale"] = needs_loss_scaling(explained.plan);
    json["weights"] = format_name(explained.plan.storage);
    json["nodes"] = Json::array();
    for (const NodeDecision& node : explained.nodes) json["nodes"].push_back(decision_json(node));
    json["casts"] = casts_json(casts);
    if (!message.empty()) json["device_message"] = message;
    write_json(json);
    return 0;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  Reasons reasons;
  TableRows rows{{"layer", "operator", "reads", "writes", "weights", "why"}};
  for (const NodeDecision& node : explained.nodes) {
    const std::string scale = node.scale.empty() ? "" : " (" + node.scale + ")";
    rows.push_back({node.path, node.op, name_of(node, node.read) + scale, name_of(node, node.write),
                    weights_text(node), reasons.number_of(node.why)});
  }
  std::string text = heading(name, settings) + "\n";
  text += fmt::format(
      "weights and buffers: {}\nloss scale: {}\n\n{}\n{}\n", format_name(explained.plan.storage),
      scale_text(explained.plan, is_training(explained)), left_table(rows), reasons.text(style));
  text += paragraph(counts_text(explained) + ".", style, 0, 0);
  text += paragraph(
      "In " + what_runs(explained) + ": " + casts_text(total(casts), is_training(explained)) + ".",
      style, 0, 0);
  if (explained.executable.forward != Entry::grad) {
    text += paragraph(is_for_inference(explained.plan)
                          ? "Only the forward pass is planned: the plan gives second operands "
                            "scales of their own, which is for inference."
                          : "Only the forward pass is planned, because the network has no loss. "
                            "Add --loss to plan a training step.",
                      style, 0, 0);
  }
  write_out(text + message_text(message));
  return 0;
}

Error no_such_node(const std::string& glob, const std::string& model,
                   const std::vector<std::string>& words, const std::string& hint) {
  const std::vector<std::string> plans = plan_words();
  if (glob.ends_with(".json") || std::find(plans.begin(), plans.end(), glob) != plans.end()) {
    return usage_error("plan explain: '" + glob + "' is a plan, and NODE is missing",
                       "add a layer, a module or an operator: halfscope plan explain " +
                           shell_quoted(glob) + " NODE --model " + shell_quoted(model));
  }
  return usage_error("no node of " + model + " matches '" + glob + "'",
                     did_you_mean(glob, words, hint));
}

int plan_explain(const std::string& name, const std::string& glob, const Settings& settings) {
  const ExplainedPlan explained = explained_plan(planned_network(settings), name, settings);
  const std::vector<const NodeDecision*> found = decisions_about(explained, glob);
  if (found.empty()) {
    std::vector<std::string> words;  // paths, then operators
    for (const NodeDecision& node : explained.nodes) words.push_back(node.path);
    constexpr size_t kShown = 30;
    const size_t shown = std::min(words.size(), kShown);
    std::string paths = comma_list(std::span(words).first(shown));
    if (shown < words.size()) paths += fmt::format(" and {} more", words.size() - shown);
    for (const NodeDecision& node : explained.nodes) words.push_back(node.op);
    throw no_such_node(glob, settings.model, words, "nodes: " + paths);
  }
  if (settings.json) {
    Json json = about_json("halfscope.plan-reasons/1", settings, samples_of(explained.executable));
    json["plan"] = explained.plan.name;
    json["nodes"] = Json::array();
    for (const NodeDecision* node : found) json["nodes"].push_back(decision_json(*node));
    write_json(json);
    return 0;
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  std::string text;
  for (const NodeDecision* node : found) {
    text += fmt::format("{}{} ({}) reads {} and writes {} under {}.\n", text.empty() ? "" : "\n",
                        node->path, node->op, name_of(*node, node->read),
                        name_of(*node, node->write), explained.plan.name);
    if (node->weights) text += "  Its weights are stored in " + weights_text(*node) + ".\n";
    text += paragraph("Why: " + node->why, style, 2, 7);
    if (!node->inputs.empty()) text += paragraph("Its inputs: " + node->inputs, style, 2, 4);
    text += paragraph("To change it: " + node->change, style, 2, 4);
  }
  write_out(text);
  return 0;
}

int plan_diff(const std::string& a, const std::string& b, const Settings& settings) {
  if (settings.model.empty()) {
    throw usage_error("plan diff compares what two plans do to a network", "add --model");
  }
  const Model network = planned_network(settings);
  const bool inference =
      is_for_inference(planned(a, settings)) || is_for_inference(planned(b, settings));
  const ExplainedPlan left = explained_plan(network, a, settings, inference);
  const ExplainedPlan right = explained_plan(network, b, settings, inference);
  const std::vector<DecisionDifference> nodes = differing_nodes(left, right);
  const std::vector<SettingDifference> general = differing_settings(left.plan, right.plan);
  const std::vector<ValueCast> left_casts = value_casts(left.executable),
                               right_casts = value_casts(right.executable);
  if (settings.json) {
    Json json = about_json("halfscope.plan-diff/1", settings, samples_of(left.executable));
    json["a"] = left.plan.name;
    json["b"] = right.plan.name;
    json["settings"] = Json::array();
    for (const SettingDifference& each : general) {
      json["settings"].push_back({{"what", each.what}, {"a", each.a}, {"b", each.b}});
    }
    const auto side = [](const NodeDecision* node) {
      return node == nullptr ? Json(nullptr) : decision_json(*node);
    };
    json["nodes"] = Json::array();
    for (const DecisionDifference& each : nodes) {
      json["nodes"].push_back({{"a", side(each.a)}, {"b", side(each.b)}});
    }
    json["casts"] = {{"a", casts_json(left_casts)}, {"b", casts_json(right_casts)}};
    write_json(json);
    return 0;
  }
  std::string text;
  if (!general.empty()) {
    TableRows rows{{"setting", a, b}};
    for (const SettingDifference& each : general) rows.push_back({each.what, each.a, each.b});
    text += left_table(rows) + "\n";
  }
  if (!nodes.empty()) {
    TableRows rows{{"layer", "operator", a, b}};
    for (const DecisionDifference& each : nodes) {
      const NodeDecision& one = each.a != nullptr ? *each.a : *each.b;
      rows.push_back({one.path, one.op, formats_text(each.a), formats_text(each.b)});
    }
    text += left_table(rows) + "\n";
  }
  const TextStyle style = text_style(STDOUT_FILENO);
  text += paragraph(nodes.empty()
                        ? fmt::format("{} and {} give all {} nodes of {} the same formats.", a, b,
                                      left.nodes.size(), settings.model)
                        : fmt::format("{} of {} nodes differ.", nodes.size(), left.nodes.size()),
                    style, 0, 0);
  text += paragraph("Casts of " + what_runs(left) + ":", style, 0, 0);
  for (const auto& [name, casts] : {std::pair(a, total(left_casts)), {b, total(right_casts)}})
    text += paragraph(name + ": " + casts_text(casts, is_training(left)) + ".", style, 0, 2);
  write_out(text);
  return 0;
}

}  // namespace halfscope
