// SPDX-License-Identifier: MIT
#include "core/lower/followed_format.h"

#include <algorithm>

#include "core/graph/op_def.h"
#include "core/graph/unrounded.h"

namespace halfscope {
namespace {

/// Returns whether some of the gradients of `weight` in a sum come from products that read it
/// transposed, and some from products that read it as it is.
bool sums_over_copies(const Graph& graph, const Node& sum, ValueId weight) {
  std::set<bool> transposed;
  std::vector<ValueId> terms = sum.inputs;
  while (!terms.empty()) {
    const NodeId id = graph.value(terms.back()).producer;
    terms.pop_back();
    if (id == kNone) continue;
    const Node& term = graph.node(id);
    if (term.forward == kNone) {
      terms.insert(terms.end(), term.inputs.begin(), term.inputs.end());
      continue;
    }
    const Node& reader = graph.node(term.forward);
    if (reader.op == "Gemm" && reader.inputs[1] == weight)
      transposed.insert(int_attribute(reader, "transB", 0) != 0);
  }
  return transposed.size() == 2;
}

}  // namespace

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

FloatFormat format_of_sum(const Graph& graph, const Node& sum, ValueId value) {
  const FloatFormat& widest =
      wider(graph.value(sum.inputs[0]).format, graph.value(sum.inputs[1]).format);
  const bool copies = graph.variable_of(value) != nullptr && sums_over_copies(graph, sum, value);
  return copies ? wider(widest, graph.value(value).format) : widest;
}

}  // namespace halfscope
