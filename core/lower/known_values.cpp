// SPDX-License-Identifier: MIT
#include "core/lower/known_values.h"

#include <algorithm>

namespace halfscope {

std::vector<bool> known_values(const Executable& executable) {
  const Graph& graph = executable.graph;
  std::vector<bool> known(graph.values().size(), false);
  const auto mark = [&](ValueId value) { known[static_cast<size_t>(value)] = true; };
  for (const Variable& variable : graph.variables()) mark(variable.value);
  for (const Constant& constant : graph.constants()) mark(constant.value);
  for (const NodeId id : executable.entry(executable.forward)) {
    const Node& node = graph.node(id);
    const bool all = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input == kNone || known[static_cast<size_t>(input)];
    });
    if (!all) continue;
    for (const ValueId output : node.outputs) {
      if (output != kNone) mark(output);
    }
  }
  return known;
}

}  // namespace halfscope
