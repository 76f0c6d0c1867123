// SPDX-License-Identifier: MIT
#include "core/onnx/graph_copy.h"

namespace halfscope::onnx_files {

GraphCopy::GraphCopy(const Model& from)
    : GraphCopy(from, [&](ValueId value) { return from.graph.value(value).shape; }) {}

GraphCopy::GraphCopy(const Model& from, const ShapeOf& shape_of)
    : from_(from),
      new_of_(from.graph.values().size(), kNone),
      constant_of_(from.graph.values().size(), nullptr) {
  const Graph& graph = from.graph;
  for (const Input& input : graph.inputs()) {
    set(input.value,
        result_.graph.add_input(input.name, shape_of(input.value), graph.value(input.value).type));
  }
  for (const Variable& variable : graph.variables()) {
    const Shape& shape = graph.value(variable.value).shape;
    set(variable.value,
        variable.buffer ? result_.graph.add_buffer(variable.path, shape, variable.initializer)
                        : result_.graph.add_variable(variable.path, shape, variable.initializer));
    result_.graph.variables().back().alias = variable.alias;
  }
  for (const Constant& constant : graph.constants())
    constant_of_.at(static_cast<size_t>(constant.value)) = &constant;
  result_.name = from.name;
  result_.initial = from.initial;
}

ValueId GraphCopy::moved(ValueId value) {
  if (value == kNone) return kNone;
  const auto at = static_cast<size_t>(value);
  if (new_of_.at(at) == kNone && constant_of_[at] != nullptr) {
    const Constant& constant = *constant_of_[at];
    new_of_[at] = from_.graph.value(value).type == ElementType::index
                      ? graph().add_index_constant(constant.tensor.shape, constant.indices)
                      : graph().add_constant(constant.tensor);
  }
  return new_of_[at];
}

std::vector<ValueId> GraphCopy::moved(const std::vector<ValueId>& values) {
  std::vector<ValueId> result;
  for (const ValueId value : values) result.push_back(moved(value));
  return result;
}

void GraphCopy::copy(const Node& node) {
  const std::vector<ValueId> outputs =
      graph().add(node.op, node.path, moved(node.inputs), node.attributes);
  for (size_t i = 0; i < node.outputs.size(); ++i) set(node.outputs[i], outputs.at(i));
  Node& made = graph().node(static_cast<NodeId>(graph().nodes().size()) - 1);
  made.alias = node.alias;
  made.written = node.written;
}

Model GraphCopy::finish() {
  for (size_t i = 0; i < from_.graph.variables().size(); ++i)
    graph().variables()[i].next = moved(from_.graph.variables()[i].next);
  result_.input = moved(from_.input);
  result_.labels = moved(from_.labels);
  result_.logits = moved(from_.logits);
  result_.loss = moved(from_.loss);
  for (const NamedValue& output : from_.outputs)
    result_.outputs.push_back({output.name, moved(output.value)});
  return std::move(result_);
}

}  // namespace halfscope::onnx_files
