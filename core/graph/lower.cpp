// SPDX-License-Identifier: MIT
// One pass per step of the flow that lower.h draws; each takes the graph of the one before.
#include "core/graph/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/graph/autodiff.h"
#include "core/graph/sites.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// A path must match a layer, or a primitive of a composite that the plan expands.
void check_paths(const Graph& graph, const Graph& expanded, const Plan& plan) {
  for (const PlanRule& rule : plan.rules) {
    if (rule.path.empty()) continue;
    const auto matches = [&](const Node& node) { return glob_match(rule.path, node.path); };
    if (std::any_of(graph.nodes().begin(), graph.nodes().end(), matches) ||
        std::any_of(expanded.nodes().begin(), expanded.nodes().end(), matches)) {
      continue;
    }
    std::string paths;
    for (const Node& node : graph.nodes()) paths += (paths.empty() ? "" : ", ") + node.path;
    throw usage_error("no layer matches \"" + rule.path + "\"", "layers: " + paths);
  }
}

/// What a composite's primitive does: as the composite, unless a rule names its own path. Rules
/// that applied to the composite have had their say.
NodePlan plan_of_primitive(const Plan& plan, const Node& composite, const Node& primitive) {
  Plan by_path = plan;
  by_path.defaults = composite.plan;
  std::erase_if(by_path.rules, [&](const PlanRule& rule) {
    const bool named = rule.op.empty() || rule.op == composite.op;
    return rule.path.empty() || (named && glob_match(rule.path, composite.path));
  });
  return resolve(by_path, primitive.path, primitive.op);
}

struct Expanded {
  Graph graph;
  std::vector<ValueId> new_of;  // by value of the source graph
  ValueId operator()(ValueId source) const { return new_of.at(static_cast<size_t>(source)); }
};

/// Copies the source graph, with its composites replaced where the plan wants them stagewise.
Expanded expand(const Graph& source, const Plan& plan) {
  Expanded result;
  result.new_of.assign(source.values().size(), kNone);
  const auto set = [&](ValueId from, ValueId to) { result.new_of[static_cast<size_t>(from)] = to; };
  Graph& graph = result.graph;
  for (const Input& input : source.inputs()) {
    const Value& value = source.value(input.value);
    set(input.value, graph.add_input(input.name, value.shape, value.type));
  }
  for (const Variable& variable : source.variables()) {
    set(variable.value, graph.add_variable(variable.path, source.value(variable.value).shape,
                                           variable.initializer));
  }
  for (const Constant& constant : source.constants()) {
    set(constant.value, graph.add_constant(constant.tensor));
  }
  for (const Node& node : source.nodes()) {
    Node copy = node;
    for (ValueId& input : copy.inputs) input = input == kNone ? kNone : result(input);
    copy.plan = resolve(plan, node.path, node.op);
    const OpDef& def = find_op(node.op);
    const size_t first = graph.nodes().size();
    const bool stagewise = copy.plan.stagewise && def.expand != nullptr;
    const std::vector<ValueId> outputs =
        stagewise ? def.expand(graph, copy) : graph.add(copy.op, copy.path, copy.inputs, copy.attributes);
    for (size_t i = first; i < graph.nodes().size(); ++i) {
      Node& added = graph.node(static_cast<NodeId>(i));
      added.plan = stagewise ? plan_of_primitive(plan, copy, added) : copy.plan;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], outputs.at(i));
  }
  return result;
}

const FloatFormat& wider(const FloatFormat& a, const FloatFormat& b) {
  return a.contains(b) ? a : b.contains(a) ? b : kFp32;
}

bool is_constant(const Graph& graph, ValueId value) {
  return std::any_of(graph.constants().begin(), graph.constants().end(),
                     [&](const Constant& constant) { return constant.value == value; });
}

/// Formats of variables and of all forward values.
void settle_forward_formats(Graph& graph, const FloatFormat& storage) {
  for (const Variable& variable : graph.variables()) graph.value(variable.value).format = storage;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    if (node.plan.follows) {
      FloatFormat widest{};
      bool first = true;
      for (ValueId input : node.inputs) {
        if (graph.value(input).type != ElementType::real || is_constant(graph, input)) continue;
        widest = first ? graph.value(input).format : wider(widest, graph.value(input).format);
        first = false;
      }
      node.plan.read = node.plan.write = widest;
    }
    for (ValueId input : node.inputs) {
      // A layer kept in a wider format than the variables' storage keeps its variables in it.
      if (graph.variable_of(input) != nullptr && node.plan.read.contains(graph.value(input).format)) {
        graph.value(input).format = node.plan.read;
      }
    }
    for (ValueId output : node.outputs) graph.value(output).format = node.plan.write;
  }
}

/// Plans and formats of the gradient nodes; see lower.h for the rule.
void settle_gradient_formats(Graph& graph, NodeId first_backward, const GradientMap& gradients) {
  std::map<ValueId, ValueId> forward_of;  // gradient value -> what it is the gradient of
  for (const auto& [value, gradient] : gradients) forward_of[gradient] = value;
  // Contributions that an Add sums are gradients of the same value as the sum.
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= first_backward; --id) {
    const Node& node = graph.node(id);
    const auto found = forward_of.find(node.outputs[0]);
    const bool sums = node.op == "Add" && found != forward_of.end() &&
                      (node.forward == kNone || graph.value(found->second).producer == node.forward);
    if (sums) {
      for (ValueId input : node.inputs) forward_of.emplace(input, found->second);
    }
  }
  for (NodeId id = first_backward; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    if (node.forward == kNone) {  // sums the gradients of a shared variable
      node.plan = NodePlan{};
      node.plan.read = node.plan.write =
          wider(graph.value(node.inputs[0]).format, graph.value(node.inputs[1]).format);
    } else {
      node.plan = graph.node(node.forward).plan;
      node.plan.write = node.plan.read;
      const auto found = forward_of.find(node.outputs[0]);
      if (found != forward_of.end()) {
        const FloatFormat& format = graph.value(found->second).format;
        if (node.plan.read.contains(format)) node.plan.write = format;
      }
    }
    for (ValueId output : node.outputs) graph.value(output).format = node.plan.write;
  }
}

/// Operators that take operands in whatever format they come.
bool reads_as_is(const Node& node) {
  return node.phase == Phase::update || node.op == "GradientNorm" || node.op == "Accuracy";
}

/// Inserts the Casts and returns all nodes in execution order. Only narrowing needs one: a value
/// of a narrower format is a value of the wider one already.
std::vector<NodeId> insert_casts(Graph& graph) {
  std::vector<NodeId> order;
  std::map<std::pair<ValueId, std::string>, ValueId> casts;
  const NodeId count = static_cast<NodeId>(graph.nodes().size());
  for (NodeId id = 0; id < count; ++id) {
    if (!reads_as_is(graph.node(id))) {
      for (size_t i = 0; i < graph.node(id).inputs.size(); ++i) {
        const ValueId input = graph.node(id).inputs[i];
        const FloatFormat read = graph.node(id).plan.read;
        if (input == kNone || graph.value(input).type != ElementType::real) continue;
        if (read.contains(graph.value(input).format)) continue;
        ValueId& cast = casts.try_emplace({input, format_name(read)}, kNone).first->second;
        if (cast == kNone) {
          cast = graph.add1("Cast", graph.node(id).path, {input});
          graph.value(cast).format = read;
          Node& node = graph.node(graph.value(cast).producer);
          node.phase = graph.node(id).phase;
          node.forward = graph.node(id).forward;
          node.plan.read = graph.value(input).format;
          node.plan.write = read;
          order.push_back(graph.value(cast).producer);
        }
        graph.node(id).inputs[i] = cast;
      }
    }
    order.push_back(id);
  }
  return order;
}

/// The nodes of `order` that `targets` depend on, not looking past values in `given`.
std::vector<NodeId> nodes_for(const Graph& graph, const std::vector<NodeId>& order,
                              const std::vector<ValueId>& targets, const std::set<NodeId>& given) {
  std::vector<bool> wanted(graph.values().size(), false);
  for (ValueId target : targets) wanted[static_cast<size_t>(target)] = true;
  std::vector<NodeId> result;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Node& node = graph.node(*id);
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId output) { return wanted[static_cast<size_t>(output)]; });
    if (!any || given.contains(*id)) continue;
    result.push_back(*id);
    for (ValueId input : node.inputs) {
      if (input != kNone) wanted[static_cast<size_t>(input)] = true;
    }
  }
  std::reverse(result.begin(), result.end());
  return result;
}

ValueId add_metric(Graph& graph, const char* op, const char* path, ValueId logits, ValueId labels) {
  return graph.add1(op, path, {logits, labels});  // NodePlan's default is fp32
}

}  // namespace

Executable lower(const Model& model, const Plan& plan, const Optimizer& optimizer) {
  Expanded expanded = expand(model.graph, plan);
  check_paths(model.graph, expanded.graph, plan);
  Executable out;
  out.graph = std::move(expanded.graph);
  Graph& graph = out.graph;
  out.input = expanded(model.input);
  out.labels = expanded(model.labels);
  out.logits = expanded(model.logits);
  out.loss = expanded(model.loss);
  const NodeId layer_nodes = static_cast<NodeId>(graph.nodes().size());
  // The metrics are the same function of the logits in every lane, whatever its plan.
  out.eval_loss = add_metric(graph, "SoftmaxCrossEntropyLoss", "metrics/loss", out.logits, out.labels);
  out.accuracy = add_metric(graph, "Accuracy", "metrics/accuracy", out.logits, out.labels);
  settle_forward_formats(graph, plan.storage);

  out.loss_scale = graph.add_input("loss_scale", {});
  const NodeId first_backward = static_cast<NodeId>(graph.nodes().size());
  const size_t trained = graph.variables().size();
  const GradientMap gradients = differentiate(graph, out.loss, out.loss_scale);
  settle_gradient_formats(graph, first_backward, gradients);

  out.inverse_scale = graph.add_input("inverse_scale", {});
  out.learning_rate = graph.add_input("learning_rate", {});
  out.correction_1 = graph.add_input("correction_1", {});
  out.correction_2 = graph.add_input("correction_2", {});
  std::vector<ValueId> all_gradients;
  std::vector<ValueId> grad_targets{out.loss, out.accuracy};
  for (size_t i = 0; i < trained; ++i) {
    const auto found = gradients.find(graph.variables()[i].value);
    if (found == gradients.end()) throw Error("the loss does not depend on " + graph.variables()[i].path);
    all_gradients.push_back(found->second);
  }
  out.gradient_norm = graph.add1("GradientNorm", "metrics/gradient_norm", all_gradients);
  graph.node(graph.value(out.gradient_norm).producer).phase = Phase::backward;
  const UpdateScalars scalars{out.inverse_scale, out.learning_rate, out.correction_1, out.correction_2};
  std::map<ValueId, size_t> updates;  // update value -> variable
  std::vector<ValueId> update_targets;
  for (size_t i = 0; i < trained; ++i) {
    const FloatFormat storage = graph.value(graph.variables()[i].value).format;
    const ValueId update = add_update(graph, i, all_gradients[i], optimizer, scalars, storage);
    updates[update] = i;
    update_targets.push_back(update);
  }

  const std::vector<NodeId> order = insert_casts(graph);
  grad_targets.push_back(out.gradient_norm);
  const std::vector<NodeId> grad = nodes_for(graph, order, grad_targets, {});
  const std::set<NodeId> given(grad.begin(), grad.end());
  out.entries[static_cast<size_t>(Entry::grad)] = grad;
  out.entries[static_cast<size_t>(Entry::update)] = nodes_for(graph, order, update_targets, given);
  out.entries[static_cast<size_t>(Entry::eval)] =
      nodes_for(graph, order, {out.eval_loss, out.accuracy}, {});
  out.taps = find_sites(out, gradients, updates);
  out.layers = describe_layers(graph, layer_nodes);
  return out;
}

}  // namespace halfscope
