// SPDX-License-Identifier: MIT
// Operators for index tensors only: Mod(a, b), as in ONNX with fmod = 0, BitwiseAnd, BitwiseOr and
// BitwiseXor, and conversions from and to real numbers, which ONNX also calls Cast. IndexToReal(x)
// is rounded to the node's write format; RealToIndex(x) rounds toward zero, values out of the
// 32-bit range become its nearest end, and NaN becomes 0. No gradient passes either of them.
#include <algorithm>
#include <utility>

#include "core/ops/definitions.h"
#include "core/ops/index_functions.h"
#include "core/ops/samples.h"

namespace halfscope {

bool works_on_indices(const Graph& graph, const Node& node) {
  const auto index = [&](ValueId value) {
    return value == kNone || graph.value(value).type == ElementType::index;
  };
  return std::all_of(node.inputs.begin(), node.inputs.end(), index) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), index);
}

namespace ops {
namespace {

std::vector<OutputType> infer_pair(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 2, "needs two inputs");
  check_index(graph, node, 0);
  check_index(graph, node, 1);
  return {
      {broadcast_shapes(node, graph.value(node.inputs[0]).shape, graph.value(node.inputs[1]).shape),
       ElementType::index}};
}

std::vector<OutputType> infer_to_real(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  check_index(graph, node, 0);
  return {{graph.value(node.inputs[0]).shape}};
}

std::vector<OutputType> infer_to_index(const Graph& graph, const Node& node) {
  check_node(node, node.inputs.size() == 1, "needs one input");
  check_real(graph, node, 0);
  return {{graph.value(node.inputs[0]).shape, ElementType::index}};
}

OpDef of_two(const char* name, OnnxForm onnx) {
  return {.name = name,
          .domain = "",
          .infer = infer_pair,
          .autocast = Autocast::follow,
          .onnx = std::move(onnx),
          .keeps_samples = samples::broadcast};
}

}  // namespace

const std::vector<OpDef>& index() {
  static const std::vector<OpDef> defs{
      of_two("BitwiseAnd", {.written = true}),
      of_two("BitwiseOr", {.written = true}),
      of_two("BitwiseXor", {.written = true}),
      of_two("Mod", {.written = true}),
      {.name = "IndexToReal",
       .domain = "halfscope",
       .infer = infer_to_real,
       .autocast = Autocast::follow,
       .keeps_samples = samples::alone},
      {.name = "RealToIndex",
       .domain = "halfscope",
       .infer = infer_to_index,
       .autocast = Autocast::follow,
       .keeps_samples = samples::alone},
  };
  return defs;
}

}  // namespace ops
}  // namespace halfscope
