// SPDX-License-Identifier: MIT
#include "core/lower/add_planned.h"

#include <algorithm>

#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Returns whether the rule names the node's path, and its operator if it names one.
bool names_path(const PlanRule& rule, const Node& node) {
  const bool op_fits = rule.op.empty() || rule.op == node.op;
  return op_fits && !rule.path.empty() && glob_match(rule.path, node.path);
}

/// Returns the plan of a composite's primitive: the composite's, unless a rule names the
/// primitive's path. Rules that select the composite have already been applied.
NodePlan plan_of_primitive(const Plan& plan, const Node& composite, const Node& primitive) {
  Plan by_path = plan;
  by_path.defaults = composite.plan;
  std::erase_if(by_path.rules, [&](const PlanRule& rule) {
    return rule.path.empty() || names_path(rule, composite);
  });
  return resolve(by_path, primitive.path, primitive.op);
}

/// Returns the plan in which every rule that selects the composite selects its parts, in the same
/// order.
Plan plan_of_parts(Plan plan, const Node& composite) {
  for (PlanRule& rule : plan.rules) {
    if (rule.path.empty() ? rule.op != composite.op : !names_path(rule, composite)) continue;
    rule.op.clear();
    rule.path = exact_glob(composite.path) + "/*";
  }
  return plan;
}

/// Copies constants and nodes of `parts` to `graph`, the nodes by `add`. `added` maps values of
/// `parts` to values of `graph`: on entry its inputs, on return all values.
template <class Add>
void copy_parts(const Graph& parts, Graph& graph, std::vector<ValueId>& added, const Add& add) {
  added.resize(parts.values().size(), kNone);
  for (const Constant& constant : parts.constants()) {
    added.at(static_cast<size_t>(constant.value)) =
        parts.value(constant.value).type == ElementType::index
            ? graph.add_index_constant(constant.tensor.shape, constant.indices)
            : graph.add_constant(constant.tensor);
  }
  for (const Node& part : parts.nodes()) {
    Node copy = part;
    for (ValueId& input : copy.inputs) {
      if (input != kNone) input = added.at(static_cast<size_t>(input));
    }
    const std::vector<ValueId> made = add(copy);
    for (size_t i = 0; i < std::min(made.size(), part.outputs.size()); ++i)
      added.at(static_cast<size_t>(part.outputs[i])) = made[i];
  }
}

/// Adds the expansion of a composite that always expands. Its parts are first built in a separate
/// graph, because some may be composites that the plan makes stagewise.
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
  const Plan own = plan_of_parts(plan, node);
  copy_parts(parts, graph, added, [&](const Node& part) { return add_planned(graph, part, own); });
  for (ValueId& output : outputs) {
    if (output != kNone) output = added.at(static_cast<size_t>(output));
  }
  return outputs;
}

/// Adds a node whose plan is set, or its expansion. Rules that select the node have already been
/// applied.
std::vector<ValueId> add_expanded(Graph& graph, const Node& node, const Plan& plan) {
  const OpDef& def = find_op(node.op);
  const size_t first = graph.nodes().size();
  const bool stagewise = node.plan.stagewise && def.expand != nullptr;
  std::vector<ValueId> outputs = stagewise
                                     ? def.expand(graph, node)
                                     : graph.add(node.op, node.path, node.inputs, node.attributes);
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    Node& added = graph.node(static_cast<NodeId>(i));
    added.plan = stagewise ? plan_of_primitive(plan, node, added) : node.plan;
  }
  return outputs;
}

/// Adds the primitives that the file has in place of the composite. Some may be composites, too.
std::vector<ValueId> add_written(Graph& graph, const Node& node, const Plan& plan) {
  const WrittenForm& form = *node.written;
  std::vector<ValueId> added(form.graph.values().size(), kNone);
  for (size_t i = 0; i < node.inputs.size(); ++i)
    added.at(static_cast<size_t>(form.graph.inputs().at(i).value)) = node.inputs[i];
  copy_parts(form.graph, graph, added, [&](Node part) {
    part.path = node.path + "/" + part.path;
    part.plan = plan_of_primitive(plan, node, part);
    return add_expanded(graph, part, plan);
  });
  return {added.at(static_cast<size_t>(form.output))};
}

}  // namespace

std::vector<ValueId> add_planned(Graph& graph, const Node& node, const Plan& plan) {
  if (find_op(node.op).always_expands) return add_parts(graph, node, plan);
  Node copy = node;
  copy.plan = resolve(plan, node.path, node.op);
  if (copy.plan.stagewise && node.written != nullptr) return add_written(graph, copy, plan);
  return add_expanded(graph, copy, plan);
}

}  // namespace halfscope
