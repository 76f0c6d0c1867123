// SPDX-License-Identifier: MIT
#include "core/lower/fused_chains.h"

#include <map>
#include <string>

#include "core/graph/op_def.h"
#include "core/graph/unrounded.h"
#include "core/ops/samples.h"

namespace halfscope {
namespace {

bool can_fuse(const Graph& graph, const Node& node) {
  return node.phase == Phase::forward && !node.plan.stagewise && node.op != "Cast" &&
         !find_op(node.op).view && samples::is_elementwise(find_op(node.op)) &&
         graph.value(node.outputs[0]).type == ElementType::real;
}

}  // namespace

void fuse_chains(Graph& graph, const std::set<ValueId>& kept) {
  // Readers by path: an evaluation reads by a copy of the same node.
  std::map<ValueId, std::map<std::string, NodeId>> readers;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    for (const ValueId input : graph.node(id).inputs) readers[input][graph.node(id).path] = id;
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    const ValueId result = node.outputs[0];
    const auto found = readers.find(result);
    if (!can_fuse(graph, node) || kept.contains(result) || found == readers.end() ||
        found->second.size() != 1) {
      continue;
    }
    const Node& reader = graph.node(found->second.begin()->second);
    const bool as_many = element_count(graph.value(reader.outputs[0]).shape) ==
                         element_count(graph.value(result).shape);
    if (can_fuse(graph, reader) && as_many) node.attributes[kUnrounded] = kStepOfSeveral;
  }
}

}  // namespace halfscope
