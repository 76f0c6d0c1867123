// SPDX-License-Identifier: MIT
#include "core/graph/autodiff.h"

#include "core/error.h"
#include "core/graph/op_def.h"

namespace halfscope {
namespace {

/// Marks the values whose gradient is needed: variables and everything real that depends on them.
std::vector<bool> values_leading_to_variables(const Graph& graph) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const Variable& variable : graph.variables()) {
    if (!variable.buffer) needed[static_cast<size_t>(variable.value)] = true;
  }
  for (const Node& node : graph.nodes()) {
    bool any = false;
    for (ValueId input : node.inputs)
      any = any || (input != kNone && needed[static_cast<size_t>(input)]);
    for (ValueId output : node.outputs) {
      needed[static_cast<size_t>(output)] = any && graph.value(output).type == ElementType::real;
    }
  }
  return needed;
}

}  // namespace

std::vector<ValueId> GradientContext::add_all(std::string op, std::vector<ValueId> inputs,
                                              Attributes attributes) {
  std::vector<ValueId> outputs =
      graph_.add(std::move(op), node().path, std::move(inputs), std::move(attributes));
  Node& added = graph_.node(graph_.value(outputs.front()).producer);
  added.phase = Phase::backward;
  added.forward = node_;
  return outputs;
}

ValueId GradientContext::add(std::string op, std::vector<ValueId> inputs, Attributes attributes) {
  return add_all(std::move(op), std::move(inputs), std::move(attributes)).front();
}

ValueId GradientContext::unbroadcast(ValueId gradient, const Shape& shape) {
  const Shape from = graph_.value(gradient).shape;
  if (from == shape) return gradient;
  std::vector<int64_t> axes;
  const size_t extra = from.size() - shape.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && from[i] != 1))
      axes.push_back(static_cast<int64_t>(i));
  }
  if (!axes.empty()) {
    gradient = add("ReduceSum", {gradient}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  }
  return graph_.value(gradient).shape == shape ? gradient : reshape(gradient, shape);
}

ValueId GradientContext::reshape(ValueId value, const Shape& shape) {
  return add("Reshape", {value}, {{"shape", shape}, {"allowzero", int64_t{1}}});
}

GradientMap differentiate(Graph& graph, ValueId loss, ValueId seed) {
  const std::vector<bool> needed = values_leading_to_variables(graph);
  std::map<ValueId, std::vector<ValueId>> contributions;
  contributions[loss].push_back(seed);
  GradientMap gradients;

  // Adds up the contributions of all readers of `value`; kNone if there are none. The path is a
  // copy, because the graph grows.
  const auto settle = [&](ValueId value, NodeId owner, const std::string path) -> ValueId {
    const auto found = contributions.find(value);
    if (found == contributions.end()) return kNone;
    ValueId sum = found->second.front();
    for (size_t i = 1; i < found->second.size(); ++i) {
      sum = graph.add1("Add", path, {sum, found->second[i]});
      Node& added = graph.node(graph.value(sum).producer);
      added.phase = Phase::backward;
      added.forward = owner;
    }
    gradients[value] = sum;
    return sum;
  };

  const NodeId forward_count = static_cast<NodeId>(graph.nodes().size());
  for (NodeId id = forward_count - 1; id >= 0; --id) {
    const std::vector<ValueId> inputs = graph.node(id).inputs;
    const std::vector<ValueId> outputs = graph.node(id).outputs;
    std::vector<ValueId> output_gradients;
    bool reached = false;
    for (ValueId output : outputs) {
      output_gradients.push_back(
          needed[static_cast<size_t>(output)] ? settle(output, id, graph.node(id).path) : kNone);
      reached = reached || output_gradients.back() != kNone;
    }
    if (!reached) continue;

    const OpDef& def = find_op(graph.node(id).op);
    if (def.gradient == nullptr) {
      throw Error(graph.node(id).path + " (" + graph.node(id).op + ") has no gradient");
    }
    std::vector<bool> wanted;
    for (ValueId input : inputs)
      wanted.push_back(input != kNone && needed[static_cast<size_t>(input)]);
    GradientContext context(graph, id, std::move(output_gradients), wanted);
    const std::vector<ValueId> input_gradients = def.gradient(context);
    for (size_t i = 0; i < input_gradients.size(); ++i) {
      if (input_gradients[i] != kNone && wanted[i])
        contributions[inputs[i]].push_back(input_gradients[i]);
    }
  }
  for (const Variable& variable : std::vector<Variable>(graph.variables())) {
    settle(variable.value, kNone, variable.path);
  }
  return gradients;
}

}  // namespace halfscope
