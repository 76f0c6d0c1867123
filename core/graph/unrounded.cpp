// SPDX-License-Identifier: MIT
#include "core/graph/unrounded.h"

#include <algorithm>

namespace halfscope {

bool is_unrounded(const Graph& graph, ValueId value) {
  if (value == kNone || graph.value(value).producer == kNone) return false;
  const Node& node = graph.node(graph.value(value).producer);
  const bool sums = node.op == "ReduceSum" || node.op == "ReduceMean";
  return int_attribute(node, kUnrounded, 0) != 0 && !node.plan.stagewise &&
         !(sums && node.plan.accumulation.sums_in_format());
}

int64_t place_in_kernel(const Node& node) {
  return node.plan.stagewise ? 0 : int_attribute(node, kInKernel, 0);
}

bool is_inside_kernel(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  return producer != kNone && place_in_kernel(graph.node(producer)) == kKernelInside;
}

bool works_unrounded(const Graph& graph, const Node& node) {
  const auto unrounded = [&](ValueId value) { return is_unrounded(graph, value); };
  return std::any_of(node.inputs.begin(), node.inputs.end(), unrounded) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), unrounded);
}

}  // namespace halfscope
