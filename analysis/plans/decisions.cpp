// SPDX-License-Identifier: MIT
#include "analysis/plans/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/format_limits.h"
#include "analysis/plans/deciding_rule.h"
#include "core/graph/op_def.h"
#include "core/graph/unrounded.h"
#include "core/lower/narrow.h"

namespace halfscope {
namespace {

/// Finds the node of the network that a node of the executable came from.
class Sources {
 public:
  explicit Sources(const Model& model) {
    const std::vector<Node>& nodes = model.graph.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const bool in_loss =
          model.first_loss_node != kNone && static_cast<NodeId>(i) >= model.first_loss_node;
      by_path_.try_emplace(nodes[i].path,
                           WrittenNode{.path = nodes[i].path,
                                       .op = nodes[i].op,
                                       .other_names = other_names(nodes[i].path, nodes[i].alias),
                                       .expands = find_op(nodes[i].op).always_expands,
                                       .in_loss = in_loss});
    }
  }

  /// Returns the node with this path, or else the composite above it; null if there is none.
  const WrittenNode* of(std::string path) const {
    for (;;) {
      if (const auto found = by_path_.find(path); found != by_path_.end()) return &found->second;
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) return nullptr;
      path.resize(slash);
    }
  }

 private:
  std::map<std::string, WrittenNode> by_path_;
};

/// Returns the inputs that a node follows, with their formats: "relu1 (fp16), bias (fp32)".
std::string followed_inputs(const Graph& graph, const Node& node) {
  std::string text;
  std::set<std::string> named;
  const size_t readable = std::min(node.inputs.size(), find_op(node.op).stored_inputs_from);
  for (size_t i = 0; i < readable; ++i) {
    if (node.inputs[i] == kNone) continue;
    const ValueId input = before_narrowing(graph, node.inputs[i]);
    const Value& value = graph.value(input);
    if (value.type != ElementType::real) continue;
    std::string name;
    if (const Variable* variable = graph.variable_of(input)) name = variable->path;
    if (value.producer != kNone) name = graph.node(value.producer).path;
    for (const Input& each : graph.inputs()) {
      if (each.value == input) name = "input " + each.name;
    }
    if (name.empty() || !named.insert(name).second) continue;  // a constant
    text += (text.empty() ? "" : ", ") + name + " (" + format_name(value.format) + ")";
  }
  return text;
}

bool selects_node(const std::string& glob, const NodeDecision& node) {
  const size_t part = node.path.find(':');
  return glob_match(glob, node.path) || glob == node.op || glob_match(glob + "/*", node.path) ||
         (part != std::string::npos && glob_match(glob, node.path.substr(0, part)));
}

bool same_formats(const NodeDecision& a, const NodeDecision& b) {
  return a.read == b.read && a.write == b.write && a.weights == b.weights &&
         a.in_double == b.in_double && a.scale == b.scale;
}

/// Returns NodeDecision::scale.
std::string scales_text(const Node& node) {
  const NodePlan& plan = node.plan;
  if (full_precision(plan.read) || !find_op(node.op).sums_products()) return "";
  std::string text = plan.scale.kind == TensorScale::Kind::none ? "" : scale_name(plan.scale);
  if (!plan.second_scale || *plan.second_scale == plan.scale) return text;
  return fmt::format("{}{}second operand: {}", text, text.empty() ? "" : ", ",
                     scale_name(*plan.second_scale));
}

/// Explains the formats of a part of an attention that one kernel computes.
void explain_kernel(const Node& node, NodeDecision& decision) {
  const int64_t place = place_in_kernel(node);
  if (place == kKernelStart) {
    decision.why += " PyTorch's attention kernel keeps the scores in fp32.";
  } else if (place == kKernelInside) {
    decision.why = "PyTorch's attention kernel computes it in fp32.";
    decision.change = "Add a rule with \"mode\": \"stagewise\" for it.";
    decision.follows = false;
  }
}

}  // namespace

bool is_for_inference(const Plan& plan) {
  return plan.defaults.second_scale.has_value() ||
         std::any_of(plan.rules.begin(), plan.rules.end(),
                     [](const PlanRule& rule) { return rule.second_scale.has_value(); });
}

ExplainedPlan explain_plan(const Model& model, const Plan& plan, const RuleFlags& flags,
                           bool inference) {
  ExplainedPlan result{.plan = plan,
                       .flags = flags,
                       .executable = inference || model.loss == kNone || is_for_inference(plan)
                                         ? lower_inference(model, plan)
                                         : lower(model, plan, TrainingSpec{}),
                       .nodes = {}};
  const Graph& graph = result.executable.graph;
  const Sources sources(model);
  for (const NodeId id : result.executable.entry(result.executable.forward)) {
    const Node& node = graph.node(id);
    const bool listed = node.phase == Phase::forward && has_decision(node.path, node.op);
    const WrittenNode* source = listed ? sources.of(node.path) : nullptr;
    if (source == nullptr) continue;
    NodeDecision decision{.path = node.path,
                          .op = node.op,
                          .read = node.plan.read,
                          .write = graph.value(node.outputs[0]).format,
                          .scale = scales_text(node),
                          .in_double = plan.double_precision,
                          .follows = node.plan.follows};
    if (!plan.double_precision) {
      decision.rules = applying_rules(result.plan, node.path, node.op, *source);
      decision.rule = deciding_rule(result.plan, decision.rules);
    }
    for (const ValueId input : node.inputs) {
      const ValueId stored = input == kNone ? kNone : before_narrowing(graph, input);
      if (stored == kNone || graph.variable_of(stored) == nullptr) continue;
      decision.weights = graph.value(stored).format;
      break;
    }
    explain_decision(result.plan, *source, decision, flags);
    if (!plan.double_precision) explain_kernel(node, decision);
    if (decision.follows) decision.inputs = followed_inputs(graph, node);
    result.nodes.push_back(std::move(decision));
  }
  return result;
}

std::vector<const NodeDecision*> decisions_about(const ExplainedPlan& explained,
                                                 const std::string& glob) {
  std::vector<const NodeDecision*> found;
  for (const NodeDecision& node : explained.nodes) {
    if (selects_node(glob, node)) found.push_back(&node);
  }
  return found;
}

std::vector<DecisionDifference> differing_nodes(const ExplainedPlan& a, const ExplainedPlan& b) {
  std::map<std::string, const NodeDecision*> others;
  for (const NodeDecision& node : b.nodes) others.try_emplace(node.path, &node);
  std::vector<DecisionDifference> differences;
  std::set<std::string> seen;
  for (const NodeDecision& node : a.nodes) {
    seen.insert(node.path);
    const auto other = others.find(node.path);
    if (other == others.end()) {
      differences.push_back({&node, nullptr});
    } else if (!same_formats(node, *other->second)) {
      differences.push_back({&node, other->second});
    }
  }
  for (const NodeDecision& node : b.nodes) {
    if (!seen.contains(node.path)) differences.push_back({nullptr, &node});
  }
  return differences;
}

std::vector<SettingDifference> differing_settings(const Plan& a, const Plan& b) {
  std::vector<SettingDifference> differences;
  const auto compare = [&](const char* what, const std::string& left, const std::string& right) {
    if (left != right) differences.push_back({what, left, right});
  };
  const auto optional = [](const std::optional<FloatFormat>& format, const char* otherwise) {
    return format ? format_name(*format) : std::string(otherwise);
  };
  const auto arithmetic = [](const Plan& plan) {
    return std::string(plan.double_precision ? "double" : "by format");
  };
  const auto buffers = [](const Plan& plan) {
    return std::string(plan.buffers == BufferCommit::always ? "in the forward pass"
                                                            : "with the update");
  };
  compare("arithmetic", arithmetic(a), arithmetic(b));
  compare("weights and buffers", format_name(a.storage), format_name(b.storage));
  compare("initial values rounded to", optional(a.initial, "not rounded"),
          optional(b.initial, "not rounded"));
  compare("optimizer state", optional(a.state, "as the weights"),
          optional(b.state, "as the weights"));
  compare("sums of micro-batches", optional(a.gradient_sum, "as the weights"),
          optional(b.gradient_sum, "as the weights"));
  compare("running statistics change", buffers(a), buffers(b));
  compare("arithmetic of the update", format_name(a.update_compute), format_name(b.update_compute));
  compare("clipping", format_name(a.clip), format_name(b.clip));
  compare("sums", accumulation_name(a.defaults.accumulation),
          accumulation_name(b.defaults.accumulation));
  const auto chains = [](const Plan& plan) {
    return std::string(plan.fuses ? "round once, at their end" : "round at every operator");
  };
  compare("chains of element-wise operators", chains(a), chains(b));
  compare("composites", a.defaults.stagewise ? "stagewise" : "fused",
          b.defaults.stagewise ? "stagewise" : "fused");
  return differences;
}

}  // namespace halfscope
