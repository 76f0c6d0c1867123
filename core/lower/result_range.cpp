// SPDX-License-Identifier: MIT
#include "core/lower/result_range.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/graph/unrounded.h"
#include "core/number_text.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

FloatFormat with_range(const Node& node) {
  FloatFormat format = node.plan.write;
  if (node.plan.prescale != 0) {
    const std::optional<FloatFormat> moved = moved_range(format, node.plan.prescale);
    if (!moved) {
      throw usage_error(node.path + ": outputs in " + format_name(format) +
                            " cannot be stored times " +
                            number_text(std::ldexp(1.0, node.plan.prescale)),
                        "remove prescale: it needs a format with a smaller range than fp32's")
          .about({"lanes", "plan"});
    }
    format = *moved;
  }
  format.saturate = format.saturate || node.plan.clamps;
  return format;
}

/// Returns whether the plan's format applies to this output.
bool is_result(const Graph& graph, const Node& node, size_t output, const std::set<ValueId>& next) {
  const ValueId value = node.outputs[output];
  return output < find_op(node.op).statistics_from && !is_unrounded(graph, value) &&
         graph.value(value).type == ElementType::real && !next.contains(value);
}

}  // namespace

void set_result_ranges(Graph& graph) {
  std::set<ValueId> next;  // next values of buffers, which have their own formats
  for (const Variable& variable : graph.variables()) next.insert(variable.next);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    if (node.phase != Phase::forward || (!node.plan.clamps && node.plan.prescale == 0)) continue;
    const FloatFormat format = with_range(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (is_result(graph, node, i, next)) graph.value(node.outputs[i]).format = format;
    }
    if (is_result(graph, node, 0, next)) node.plan.write = format;
  }
}

int prescale_of(const Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return 0;
  const Node& node = graph.node(producer);
  const bool kept = node.phase == Phase::forward && !is_unrounded(graph, value) &&
                    graph.value(value).format == node.plan.write;
  return kept ? node.plan.prescale : 0;
}

}  // namespace halfscope
