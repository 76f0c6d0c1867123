// SPDX-License-Identifier: MIT
#include "core/lower/add_planned.h"

#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Whether the rule names the node's path, and its operator if it names one.
bool names_path(const PlanRule& rule, const Node& node) {
  const bool op_fits = rule.op.empty() || rule.op == node.op;
  return op_fits && !rule.path.empty() && glob_match(rule.path, node.path);
}

/// What a composite's primitive does: as the composite, unless a rule names its own path. Rules
/// that applied to the composite have had their say.
NodePlan plan_of_primitive(const Plan& plan, const Node& composite, const Node& primitive) {
  Plan by_path = plan;
  by_path.defaults = composite.plan;
  std::erase_if(by_path.rules, [&](const PlanRule& rule) {
    return rule.path.empty() || names_path(rule, composite);
  });
  return resolve(by_path, primitive.path, primitive.op);
}

/// The plan with rules that select the composite selecting its parts, at their place in the order.
Plan plan_of_parts(Plan plan, const Node& composite) {
  for (PlanRule& rule : plan.rules) {
    if (rule.path.empty() ? rule.op != composite.op : !names_path(rule, composite)) continue;
    rule.op.clear();
    rule.path = exact_glob(composite.path) + "/*";
  }
  return plan;
}

/// Adds what a composite that always expands stands for. Its parts are laid out in a graph of their
/// own first, as some may be composites that the plan wants stagewise.
std::vector<ValueId> add_parts(Graph& graph, const Node& node, const Plan& plan) {
  Graph parts;
  std::vector<ValueId> added;  // by value of `parts`
  Node inside = node;
  for (ValueId& input : inside.inputs) {
    if (input == kNone) continue;
    const Value& value = graph.value(input);
    added.push_back(input);
    input = parts.add_input("", value.shape, value.type);
  }
  std::vector<ValueId> outputs = find_op(node.op).expand(parts, inside);
  added.resize(parts.values().size(), kNone);
  const auto moved = [&](ValueId& value) {
    if (value != kNone) value = added.at(static_cast<size_t>(value));
  };
  for (const Constant& constant : parts.constants()) {
    added.at(static_cast<size_t>(constant.value)) =
        parts.value(constant.value).type == ElementType::index
            ? graph.add_index_constant(constant.tensor.shape, constant.indices)
            : graph.add_constant(constant.tensor);
  }
  const Plan own = plan_of_parts(plan, node);
  for (const Node& part : parts.nodes()) {
    Node copy = part;
    for (ValueId& input : copy.inputs) moved(input);
    const std::vector<ValueId> made = add_planned(graph, copy, own);
    for (size_t i = 0; i < made.size(); ++i)
      added.at(static_cast<size_t>(part.outputs.at(i))) = made[i];
  }
  for (ValueId& output : outputs) moved(output);
  return outputs;
}

}  // namespace

std::vector<ValueId> add_planned(Graph& graph, const Node& node, const Plan& plan) {
  const OpDef& def = find_op(node.op);
  if (def.always_expands) return add_parts(graph, node, plan);
  Node copy = node;
  copy.plan = resolve(plan, node.path, node.op);
  const size_t first = graph.nodes().size();
  const bool stagewise = copy.plan.stagewise && def.expand != nullptr;
  std::vector<ValueId> outputs = stagewise
                                     ? def.expand(graph, copy)
                                     : graph.add(copy.op, copy.path, copy.inputs, copy.attributes);
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    Node& added = graph.node(static_cast<NodeId>(i));
    added.plan = stagewise ? plan_of_primitive(plan, copy, added) : copy.plan;
  }
  return outputs;
}

}  // namespace halfscope
