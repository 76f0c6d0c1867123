// SPDX-License-Identifier: MIT
#include "tests/zoo/remake.h"

namespace halfscope::zoo {
namespace {

std::vector<size_t> as_it_is(size_t count) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  return order;
}

}  // namespace

Remake::Remake(const Model& from)
    : inputs(as_it_is(from.graph.inputs().size())),
      variables(as_it_is(from.graph.variables().size())),
      nodes(as_it_is(from.graph.nodes().size())),
      from_(from) {}

ValueId Remake::id_of(ValueId old) const {
  return old == kNone ? kNone : ids_[static_cast<size_t>(old)];
}

void Remake::add_sources() {
  Graph& graph = made_.graph;
  for (const size_t i : inputs) {
    const Input& input = from_.graph.inputs()[i];
    const Value& value = from_.graph.value(input.value);
    const ValueId id = graph.add_input(
        name_of(input.name), input_shape ? input_shape(value.shape) : value.shape, value.type);
    ids_[static_cast<size_t>(input.value)] = id;
    if (input.value == from_.input) main_input_ = id;
  }
  for (const size_t i : variables) {
    const Variable& variable = from_.graph.variables()[i];
    ids_[static_cast<size_t>(variable.value)] = graph.add_variable(
        name_of(variable.path), from_.graph.value(variable.value).shape, variable.initializer);
    graph.variables().back().buffer = variable.buffer;
  }
  for (const Constant& each : from_.graph.constants()) {
    const bool index = from_.graph.value(each.value).type == ElementType::index;
    ids_[static_cast<size_t>(each.value)] =
        index ? graph.add_index_constant(each.tensor.shape, each.indices)
              : graph.add_constant(constant ? constant(each.tensor) : each.tensor);
  }
  if (!behind) return;
  for (const size_t i : inputs) {
    const ValueId old = from_.graph.inputs()[i].value;
    ids_[static_cast<size_t>(old)] = behind(graph, old, id_of(old));
  }
}

void Remake::add_node(size_t i) {
  if (static_cast<NodeId>(i) == from_.first_loss_node) {
    made_.first_loss_node = static_cast<NodeId>(made_.graph.nodes().size());
  }
  Node next = from_.graph.nodes()[i];
  const std::vector<ValueId> before = next.outputs;
  for (ValueId& input : next.inputs) input = id_of(input);
  if (node) node(made_.graph, next);
  const std::vector<ValueId> after =
      made_.graph.add(next.op, name_of(next.path), next.inputs, next.attributes);
  for (size_t k = 0; k < before.size(); ++k) {
    ids_[static_cast<size_t>(before[k])] =
        behind && k == 0 ? behind(made_.graph, before[k], after[k]) : after.at(k);
  }
}

Model Remake::run() {
  made_ = from_;
  made_.graph = Graph();
  ids_.assign(from_.graph.values().size(), kNone);
  add_sources();
  for (const size_t i : nodes) add_node(i);
  for (size_t i = 0; i < variables.size(); ++i) {
    made_.graph.variables()[i].next = id_of(from_.graph.variables()[variables[i]].next);
  }
  made_.input = main_input_;
  for (ValueId* const each : {&made_.labels, &made_.logits, &made_.loss}) *each = id_of(*each);
  for (NamedValue& each : made_.outputs) each.value = id_of(each.value);
  return std::move(made_);
}

}  // namespace halfscope::zoo
