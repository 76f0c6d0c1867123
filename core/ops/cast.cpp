// SPDX-License-Identifier: MIT
// Cast: the same numbers rounded to another format, the output's. lower() inserts it where a node
// reads an operand in a format that cannot represent all its values.
#include "core/ops/definitions.h"

namespace halfscope::ops {
namespace {

std::vector<OutputType> infer(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  return {{graph.value(node.inputs[0]).shape}};
}

}  // namespace

const std::vector<OpDef>& cast() {
  static const std::vector<OpDef> defs{
      {.name = "Cast", .domain = "", .infer = infer, .autocast = Autocast::internal}};
  return defs;
}

}  // namespace halfscope::ops
