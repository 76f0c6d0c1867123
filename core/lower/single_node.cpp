// SPDX-License-Identifier: MIT
#include "core/lower/single_node.h"

#include <algorithm>

#include "core/error.h"
#include "core/ops/ops.h"

namespace halfscope {

Executable single_node(const Graph& graph, NodeId node) {
  Executable single;
  single.graph = graph.only(node);
  single.forward = Entry::eval;
  single.entries[static_cast<size_t>(Entry::eval)] = {node};
  const Node& kept = single.graph.node(node);
  for (const ValueId input : kept.inputs) {
    const bool known = std::any_of(single.inputs.begin(), single.inputs.end(),
                                   [&](const NamedValue& each) { return each.value == input; });
    if (input != kNone && !known) single.inputs.push_back({std::to_string(input), input});
  }
  for (const ValueId output : kept.outputs) {
    single.outputs.push_back({std::to_string(output), output});
  }
  return single;
}

Executable bare_product(const Graph& graph, NodeId id) {
  const Node& whole = graph.node(id);
  if (!find_op(whole.op).sums_products()) {
    throw Error(whole.path + " (" + whole.op + ") does not sum products");
  }
  Executable single = single_node(graph, id);
  Node& node = single.graph.node(id);
  node.inputs.resize(2);
  node.attributes.erase("alpha");
  node.attributes.erase("beta");
  node.plan.write = kFp32;
  Value& result = single.graph.value(node.outputs[0]);
  result.format = kFp32;
  result.rounding = {};
  std::erase_if(single.inputs, [&](const NamedValue& each) {
    return each.value != node.inputs[0] && each.value != node.inputs[1];
  });
  return single;
}

}  // namespace halfscope
