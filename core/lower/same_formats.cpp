// SPDX-License-Identifier: MIT
#include "core/lower/same_formats.h"

#include <algorithm>

#include "core/error.h"
#include "core/graph/op_def.h"

namespace halfscope {

void check_same_formats(const Graph& graph, const Node& node) {
  if (!node.plan.follows || !node.plan.same_formats || !find_op(node.op).sums_products()) return;
  const Value* first = nullptr;
  for (const ValueId input : node.inputs) {
    if (input == kNone || graph.value(input).type != ElementType::real) continue;
    const bool constant = std::any_of(graph.constants().begin(), graph.constants().end(),
                                      [&](const Constant& each) { return each.value == input; });
    if (constant) continue;
    const Value& value = graph.value(input);
    if (first == nullptr) first = &value;
    if (value.format == first->format) continue;
    throw usage_error(node.path + ": autocast is off here, so " + node.op + " would multiply " +
                          format_name(first->format) + " by " + format_name(value.format) +
                          ", which PyTorch refuses",
                      "cast its input as x.float() does: add {\"path\": \"" + node.path +
                          "\", \"format\": \"fp32\"} after that rule")
        .about({"lanes", "plan"});
  }
}

}  // namespace halfscope
