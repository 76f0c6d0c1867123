// SPDX-License-Identifier: MIT
#include "analysis/plans/lint_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "analysis/plans/lint_rules.h"
#include "core/graph/op_def.h"
#include "core/policy/torch.h"
#include "core/policy/torch_lists.h"

namespace halfscope::lint {
namespace {

bool is_part_of(const Node& node, const char* function) {
  return int_attribute(node, kTorchFunction, kUnknownFunction) == torch_function_number(function);
}

bool is_half(const FloatFormat& format) { return !format.contains(kFp32); }

/// Looks through the nodes of a planned network.
class Formulas {
 public:
  explicit Formulas(const Graph& graph) : graph_(graph) {
    for (const Constant& constant : graph.constants()) constants_[constant.value] = &constant;
  }

  const Node* producer(ValueId value) const {
    const NodeId id = value == kNone ? kNone : graph_.value(value).producer;
    return id == kNone ? nullptr : &graph_.node(id);
  }
  /// Returns the value before conversions between formats.
  ValueId before_casts(ValueId value) const {
    const Node* node = producer(value);
    while (node != nullptr && node->op == "Cast") {
      value = node->inputs[0];
      node = producer(value);
    }
    return value;
  }
  /// Returns the node that computes the value, which others may only convert or reshape.
  const Node* source(ValueId value) const {
    const Node* node = producer(value);
    while (node != nullptr && (node->op == "Cast" || find_op(node->op).view))
      node = producer(node->inputs[0]);
    return node;
  }
  bool is_number(ValueId value, float number) const {
    const auto found = constants_.find(before_casts(value));
    return found != constants_.end() && found->second->tensor.data == std::vector<float>{number};
  }
  /// Returns the value whose logarithm the node takes; kNone for other nodes.
  ValueId logarithm_of(const Node& node) const {
    return node.op == "Log" ? before_casts(node.inputs[0]) : kNone;
  }
  /// Returns p for 1 - p, which may be written as 1 + -p; kNone for other values.
  ValueId complement_of(ValueId value) const {
    const Node* node = producer(value);
    if (node == nullptr) return kNone;
    if (node->op == "Sub" && is_number(node->inputs[0], 1.0f)) return before_casts(node->inputs[1]);
    for (size_t i = 0; node->op == "Add" && i < 2; ++i) {
      const Node* negative = producer(before_casts(node->inputs[i]));
      if (negative == nullptr || negative->op != "Neg") continue;
      if (is_number(node->inputs[1 - i], 1.0f)) return before_casts(negative->inputs[0]);
    }
    return kNone;
  }

 private:
  const Graph& graph_;
  std::map<ValueId, const Constant*> constants_;
};

/// Returns the number above which every number rounds to at least 1: half a step below 1.
double largest_below_one(const FloatFormat& format) {
  return 1.0 - std::ldexp(1.0, -(format.mantissa_bits + 2));
}

/// Returns the paths of the last nodes of losses that PyTorch refuses under the plan's autocast.
/// Where the user has a rule for the loss, the code computes it outside autocast.
std::vector<std::string> refused_losses(const Model& model, const ExplainedPlan& explained) {
  const Plan& plan = explained.plan;
  const std::optional<TorchAutocast> autocast = torch_autocast(plan);
  constexpr const char* kLoss = "binary_cross_entropy";
  if (!autocast || !autocast->cuda) return {};
  std::set<std::string> planned;  // by autocast
  for (const NodeDecision& node : explained.nodes) {
    if (node.rule >= 0 && !plan.rules[static_cast<size_t>(node.rule)].why.empty())
      planned.insert(node.path);
  }
  std::set<ValueId> inner;
  for (const Node& node : model.graph.nodes()) {
    if (is_part_of(node, kLoss)) inner.insert(node.inputs.begin(), node.inputs.end());
  }
  std::vector<std::string> losses;
  for (const Node& node : model.graph.nodes()) {
    if (is_part_of(node, kLoss) && !inner.contains(node.outputs[0]) && planned.contains(node.path))
      losses.push_back(node.path);
  }
  return losses;
}

}  // namespace

void check_binary_cross_entropy(const Model& model, const ExplainedPlan& explained,
                                std::vector<Finding>& findings) {
  const std::vector<std::string> refused = refused_losses(model, explained);
  for (const std::string& loss : refused) {
    findings.push_back(finding(
        "bce_under_autocast", Severity::error, loss,
        fmt::format("{}: the network computes binary_cross_entropy. Under autocast, PyTorch raises "
                    "an error: \"binary_cross_entropy and torch.nn.BCELoss are unsafe to "
                    "autocast\". In half "
                    "precision, probabilities near 1 become 1, and the loss is wrong.",
                    loss),
        "Compute the loss from logits: binary_cross_entropy_with_logits, without the sigmoid. Or "
        "call it outside autocast, with .float() on its input."));
  }
  const Graph& graph = explained.executable.graph;
  const Formulas formulas(graph);
  std::set<ValueId> logarithms;  // values whose logarithm is taken
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::forward) logarithms.insert(formulas.logarithm_of(node));
  }
  std::set<ValueId> reported;
  for (const Node& node : graph.nodes()) {
    const ValueId p = node.phase == Phase::forward && node.op == "Log"
                          ? formulas.complement_of(formulas.logarithm_of(node))
                          : kNone;
    if (p == kNone || !logarithms.contains(p) || !is_half(graph.value(p).format)) continue;
    const bool clamped = is_part_of(node, "binary_cross_entropy");
    if (is_part_of(node, "binary_cross_entropy_with_logits") || (clamped && !refused.empty()))
      continue;
    const Node* probability = formulas.source(p);
    if (probability == nullptr || !reported.insert(p).second) continue;
    findings.push_back(finding(
        "bce_in_half", Severity::error, node.path,
        fmt::format("{}: the network takes the logarithms of p and 1 - p, but p (from {}) is {}. "
                    "There, every p above {:.4g} is 1, and the loss is {}. For this reason, "
                    "PyTorch refuses binary_cross_entropy under autocast on CUDA.",
                    node.path, probability->path, format_name(graph.value(p).format),
                    largest_below_one(graph.value(p).format), clamped ? "0 or 100" : "infinite"),
        "Compute the loss from logits: binary_cross_entropy_with_logits in PyTorch, "
        "from_logits=True in Keras. Or keep the sigmoid and all after it in fp32."));
  }
}

}  // namespace halfscope::lint
