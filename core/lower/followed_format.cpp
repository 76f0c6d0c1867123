// SPDX-License-Identifier: MIT
#include "core/lower/followed_format.h"

#include <algorithm>

#include "core/graph/op_def.h"
#include "core/graph/unrounded.h"

namespace halfscope {

std::set<ValueId> target_inputs(const Model& model, const std::vector<ValueId>& new_of) {
  std::set<ValueId> targets;
  if (model.first_loss_node == kNone) return targets;
  const Graph& graph = model.graph;
  for (const Input& input : graph.inputs()) {
    bool network_reads = graph.value(input.value).type != ElementType::real;
    for (NodeId id = 0; id < model.first_loss_node && !network_reads; ++id) {
      const std::vector<ValueId>& inputs = graph.node(id).inputs;
      network_reads = std::find(inputs.begin(), inputs.end(), input.value) != inputs.end();
    }
    if (!network_reads) targets.insert(new_of.at(static_cast<size_t>(input.value)));
  }
  return targets;
}

const FloatFormat& wider(const FloatFormat& a, const FloatFormat& b) {
  return a.contains(b) ? a : b.contains(a) ? b : kFp32;
}

FloatFormat widest_input(const Graph& graph, const Node& node, const std::set<ValueId>& targets) {
  const auto is_constant = [&](ValueId value) {
    return std::any_of(graph.constants().begin(), graph.constants().end(),
                       [&](const Constant& constant) { return constant.value == value; });
  };
  FloatFormat widest{};
  bool first = true;
  const size_t readable = std::min(node.inputs.size(), find_op(node.op).stored_inputs_from);
  for (size_t i = 0; i < readable; ++i) {
    const ValueId input = node.inputs[i];
    if (input == kNone || graph.value(input).type != ElementType::real || is_constant(input) ||
        targets.contains(input)) {
      continue;
    }
    // An intermediate result counts as the format it was computed from.
    const FloatFormat& format = is_unrounded(graph, input)
                                    ? graph.node(graph.value(input).producer).plan.read
                                    : graph.value(input).format;
    widest = first ? format : wider(widest, format);
    first = false;
  }
  return widest;
}

}  // namespace halfscope
