// SPDX-License-Identifier: MIT
#include "gpu/engine/layout.h"

#include "core/error.h"
#include "core/graph/execution.h"
#include "core/ops/ops.h"

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
    const bool gather = node.op == "Gather" || node.op == "GatherGrad" ||
                        node.op == "GatherElements" || node.op == "GatherElementsGrad";
    if (!loss && !gather) continue;
    const bool backward = node.op == "GatherGrad" || node.op == "GatherElementsGrad";
    const bool labels = loss || takes_labels(node);
    const Shape& table = graph.value(backward ? node.outputs[0] : node.inputs[0]).shape;
    const size_t axis = labels ? 1 : static_cast<size_t>(axis_attribute(node, table.size(), 0));
    uses[node.inputs[1]].push_back({.node = id,
                                    .classes = table[axis],
                                    .ignored = loss ? int_attribute(node, "ignore_index", -1) : -1,
                                    .labels = labels});
  }
  return uses;
}

void check_indices(const Graph& graph, const IndexUse& use, const std::vector<int32_t>& indices) {
  const Node& node = graph.node(use.node);
  const bool loss = use.labels && !takes_labels(node);
  for (int32_t index : indices) {
    const bool ignored = use.labels ? index < 0 || index == use.ignored : false;
    if (ignored || (index < use.classes && index >= -use.classes)) continue;
    throw Error(node.path + " (" + node.op + "): " + (loss ? "label " : "index ") +
                std::to_string(index) + " of " + std::to_string(use.classes) +
                (loss ? " classes" : ""));
  }
}

}  // namespace halfscope::gpu
