// SPDX-License-Identifier: MIT
// The work of a chain's nodes other than its core (fusion.h), as parts of the core's body.
#pragma once

#include "gpu/bodies/element_steps.h"
#include "gpu/engine/fusion.h"
#include "gpu/engine/movement_steps.h"
#include "gpu/engine/program_memory.h"

namespace halfscope::gpu {

/// Elements of a softmax's operand, or of its gradient, after the steps of other nodes.
struct SoftmaxParts {
  In<float> x = nullptr;  ///< operand of the first node before a Softmax, or of the Softmax
  Destination rounds{};   ///< of a SoftmaxGrad's own output
  ElementSteps steps{};
};

/// Returns what a node does to element i of the operand `from`.
template <class X>
ElementStep element_step(const ProgramMemory<X>& memory, const Graph& graph, const Node& node,
                         size_t from) {
  const bool chooses = node.op == "Where";
  const ValueId other = node.inputs[chooses ? 3 - from : 1 - from];
  const Shape& to = graph.value(node.outputs[0]).shape;
  ElementStep step;
  step.kind = chooses            ? ElementStep::Kind::choose
              : node.op == "Mul" ? ElementStep::Kind::multiply
              : node.op == "Div" ? ElementStep::Kind::divide
                                 : ElementStep::Kind::add;
  if (other != kNone) {
    step.other = memory.real(other);
    step.at_other = operand_of(node, graph.value(other).shape, to);
  }
  if (chooses) {
    step.condition = memory.index(node.inputs[0]);
    step.at_condition = operand_of(node, graph.value(node.inputs[0]).shape, to);
    step.if_true = from == 1;
  }
  step.rounds = memory.destination(node.outputs[0]);
  return step;
}

/// Returns where a chain's last node writes if that is a Cast of the core's output, otherwise a
/// destination without memory.
template <class X>
Destination cast_of(const ProgramMemory<X>& memory, const Graph& graph, const Chain& chain) {
  const Node& last = graph.node(chain.last());
  return last.op == "Cast" ? memory.destination(last.outputs[0]) : Destination{};
}

/// Returns the parts of a chain around Softmax or SoftmaxGrad.
template <class X>
SoftmaxParts softmax_parts(const ProgramMemory<X>& memory, const Graph& graph, const Chain& chain) {
  SoftmaxParts parts;
  ElementStep* next = &parts.steps.first;
  const NodeId core = chain.nodes[chain.core];
  const bool before = graph.node(core).op == "Softmax";
  ValueId value = kNone;  // that the next node works on
  if (before) {
    const Node& node = graph.node(chain.nodes[0]);
    value = node.inputs[chain.core > 0 ? *element_input(graph, node) : 0];
    parts.x = memory.real(value);
  } else {
    value = graph.node(core).outputs[0];
    parts.rounds = memory.destination(value);
  }
  for (NodeId id : chain.nodes) {
    const Node& node = graph.node(id);
    if (id == core || node.op == "Cast") continue;
    const size_t from = *element_input(graph, node, value);
    *next = element_step(memory, graph, node, from);
    next = &parts.steps.second;
    value = node.outputs[0];
  }
  return parts;
}

/// Returns what a chain does after BatchNormalization; `last` is where its last node writes. The
/// destinations of values that nobody else reads have no memory.
template <class X>
Afterwards<float> normalization_parts(const ProgramMemory<X>& memory, const Graph& graph,
                                      const Chain& chain, const Out<float>& last) {
  const auto between = [&](ValueId value) {
    Destination to = memory.destination(value);
    if (!chain.keeps(value)) to.memory = nullptr;
    return to;
  };
  const ValueId normal = graph.node(chain.nodes[0]).outputs[0];
  Afterwards<float> then{.last = last, .normal = between(normal), .follows = true};
  for (size_t i = 1; i < chain.nodes.size(); ++i) {
    const Node& node = graph.node(chain.nodes[i]);
    if (node.op == "Relu") {
      then.relu = true;
      continue;
    }
    then.other = memory.real(node.inputs[node.inputs[0] == normal ? 1 : 0]);
    if (i + 1 < chain.nodes.size()) then.sum = between(node.outputs[0]);
  }
  return then;
}

}  // namespace halfscope::gpu
