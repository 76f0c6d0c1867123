// SPDX-License-Identifier: MIT
#include "core/lower/execution.h"

#include <algorithm>

#include "core/lower/narrow.h"
#include "core/ops/ops.h"

namespace halfscope {

bool is_view(const Node& node) {
  const OpDef* def = lookup_op(node.op);  // null for empty nodes
  return def != nullptr && def->view;
}

bool needs_rounding(const Graph& graph, const Node& node, const Value& output) {
  if (output.format == kFp32) return false;
  if (!find_op(node.op).selects) return true;
  // The only value that a selecting operator may add.
  if (node.op == "Pad" && real_attribute(node, "value", 0.0) != 0.0) return true;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
    return input != kNone && graph.value(input).type == ElementType::real &&
           !output.format.contains(graph.value(input).format);
  });
}

std::map<ValueId, ValueId> memory_aliases(const Graph& graph) {
  std::map<ValueId, ValueId> alias;
  for (const Variable& variable : graph.variables()) {
    if (variable.next != kNone) alias[variable.next] = variable.value;
    if (variable.restored != kNone) alias[variable.restored] = variable.value;
  }
  for (const Node& node : graph.nodes()) {
    if (is_view(node) && !needs_rounding(graph, node, graph.value(node.outputs[0]))) {
      alias[node.outputs[0]] = node.inputs[0];
    }
  }
  return alias;
}

SumSpec sum_spec_of(const Graph& graph, const Node& node, bool unrounded) {
  SumSpec spec{.accumulation = node.plan.accumulation,
               .write = unrounded ? kFp32 : graph.value(node.outputs[0]).format,
               .read = unrounded ? kFp32 : node.plan.read};
  if (!unrounded && find_op(node.op).sums_products()) {
    spec.read = read_format(graph, node, 0);
    spec.read_b = read_format(graph, node, 1);
  }
  return spec;
}

}  // namespace halfscope
