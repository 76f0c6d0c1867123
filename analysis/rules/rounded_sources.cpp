// SPDX-License-Identifier: MIT
#include "analysis/rules/rounded_sources.h"

#include <algorithm>
#include <iterator>

#include "analysis/format_limits.h"
#include "core/ops/ops.h"

namespace halfscope {

bool is_rounded(const LaneFacts& lane, int node) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  return own.layer >= 0 && own.output_site >= 0 &&
         !full_precision(lane.site(own.output_site).format);
}

bool hands_on(const std::string& op) {
  constexpr const char* kOps[] = {"Add",  "Sub",  "Sum",        "Mul",       "Div",     "Pow",
                                  "Neg",  "Abs",  "ReduceMean", "ReduceSum", "Reshape", "Transpose",
                                  "Relu", "Sqrt", "Concat",     "Slice",     "Flatten", "Expand"};
  return std::any_of(std::begin(kOps), std::end(kOps),
                     [&](const char* each) { return op == each; });
}

std::vector<int> rounded_before(const LaneFacts& lane, int node) {
  const std::vector<ForwardNode>& nodes = lane.nodes();
  std::vector<int> rounded, open{node};
  std::vector<bool> seen(nodes.size(), false);
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int input : nodes[static_cast<size_t>(at)].inputs) {
      const ForwardNode& own = nodes[static_cast<size_t>(input)];
      if (own.layer < 0 || seen[static_cast<size_t>(input)]) continue;
      seen[static_cast<size_t>(input)] = true;
      const std::string& op = lane.info().layers[static_cast<size_t>(own.layer)].op;
      if (!hands_on(op)) continue;
      const OpDef* def = lookup_op(op);
      const bool moves = def != nullptr && (def->view || def->movement != nullptr);
      if (is_rounded(lane, input) && !moves) rounded.push_back(input);
      open.push_back(input);
    }
  }
  return rounded;
}

}  // namespace halfscope
