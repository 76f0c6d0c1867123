// SPDX-License-Identifier: MIT
#include "gpu/engine/layout.h"

#include "core/error.h"
#include "core/graph/execution.h"

namespace halfscope::gpu {
namespace {

constexpr int64_t kAlignment = 256;  // whole transactions, and vector loads of any width

}  // namespace

Layout::Layout(const Executable& executable)
    : alias_(memory_aliases(executable.graph)), places_(executable.graph.values().size(), -1) {
  const Graph& graph = executable.graph;
  for (const Variable& variable : graph.variables()) add(graph, variable.value);
  if (executable.input != kNone) add(graph, executable.input);
  if (executable.labels != kNone) add(graph, executable.labels);
  for (const NamedValue& input : executable.inputs) add(graph, input.value);
  for (const NamedValue& output : executable.outputs) add(graph, output.value);
  for (const std::vector<NodeId>& entry : executable.entries) {
    for (NodeId id : entry) {
      for (ValueId value : graph.node(id).inputs) {
        if (value != kNone) add(graph, value);
      }
      for (ValueId value : graph.node(id).outputs) add(graph, value);
    }
  }
}

void Layout::add(const Graph& graph, ValueId value) {
  int64_t& place = places_[static_cast<size_t>(value)];
  if (place >= 0) return;
  if (const auto alias = alias_.find(value); alias != alias_.end()) {
    add(graph, alias->second);
    place = places_[static_cast<size_t>(alias->second)];
    return;
  }
  place = bytes_;
  const int64_t wanted = element_count(graph.value(value).shape) * 4;
  bytes_ += (wanted + kAlignment - 1) / kAlignment * kAlignment;
}

std::map<ValueId, std::vector<IndexUse>> index_uses(const Graph& graph) {
  std::map<ValueId, std::vector<IndexUse>> uses;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    const bool loss = node.op == "SoftmaxCrossEntropyLoss" ||
                      node.op == "SoftmaxCrossEntropyLossGrad" || node.op == "Accuracy";
    const bool gather = node.op == "GatherElements";
    if (!loss && !gather) continue;
    const ValueId index = node.inputs[1];
    if (graph.value(index).producer != kNone) {
      throw Error(node.path + " (" + node.op + "): labels that a node makes are not checked yet");
    }
    uses[index].push_back({.node = id,
                           .classes = graph.value(node.inputs[0]).shape[1],
                           .ignored = loss ? int_attribute(node, "ignore_index", -1) : -1});
  }
  return uses;
}

void check_indices(const Graph& graph, const IndexUse& use, const std::vector<int32_t>& indices) {
  for (int32_t index : indices) {
    if (index < 0 || index == use.ignored || index < use.classes) continue;
    const Node& node = graph.node(use.node);
    throw Error(node.path + " (" + node.op + "): label " + std::to_string(index) + " of " +
                std::to_string(use.classes) + " classes");
  }
}

}  // namespace halfscope::gpu
