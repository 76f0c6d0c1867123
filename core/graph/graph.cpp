// SPDX-License-Identifier: MIT
#include "core/graph/graph.h"

#include "core/error.h"
#include "core/graph/op_def.h"

namespace halfscope {

ValueId Graph::add_value(Shape shape, ElementType type, NodeId producer) {
  values_.push_back(Value{std::move(shape), type, producer, kFp32});
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_input(std::string name, Shape shape, ElementType type) {
  const ValueId id = add_value(std::move(shape), type);
  inputs_.push_back({std::move(name), id});
  return id;
}

ValueId Graph::add_variable(std::string path, Shape shape, Initializer initializer) {
  const ValueId id = add_value(std::move(shape), ElementType::real);
  variables_.push_back({.path = std::move(path), .value = id, .initializer = initializer});
  return id;
}

ValueId Graph::add_buffer(std::string path, Shape shape, Initializer initializer) {
  const ValueId id = add_variable(std::move(path), std::move(shape), initializer);
  variables_.back().buffer = true;
  return id;
}

ValueId Graph::add_constant(Tensor tensor) {
  const ValueId id = add_value(tensor.shape, ElementType::real);
  constants_.push_back({id, std::move(tensor)});
  return id;
}

ValueId Graph::add_index_constant(Shape shape, std::vector<int32_t> indices) {
  const ValueId id = add_value(shape, ElementType::index);
  constants_.push_back({id, Tensor{std::move(shape), {}}, std::move(indices)});
  return id;
}

std::vector<ValueId> Graph::add(std::string op, std::string path, std::vector<ValueId> inputs,
                                Attributes attributes) {
  const OpDef& def = find_op(op);
  Node node;
  node.op = std::move(op);
  node.path = std::move(path);
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  const NodeId id = static_cast<NodeId>(nodes_.size());
  for (OutputType& output : def.infer(*this, node)) {
    node.outputs.push_back(add_value(std::move(output.shape), output.type, id));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

ValueId Graph::input(const std::string& name) const {
  for (const Input& each : inputs_) {
    if (each.name == name) return each.value;
  }
  throw Error("the graph has no input named '" + name + "'");
}

Graph Graph::only(NodeId id) const {
  Graph alone;
  alone.values_.resize(values_.size());
  alone.nodes_.resize(nodes_.size());
  const Node& kept = node(id);
  alone.node(id) = kept;
  for (const ValueId input : kept.inputs) {
    if (input == kNone) continue;
    alone.value(input) = value(input);
    alone.value(input).producer = kNone;
  }
  for (const ValueId output : kept.outputs) alone.value(output) = value(output);
  return alone;
}

const Variable* Graph::variable_of(ValueId value) const {
  for (const Variable& each : variables_) {
    if (each.value == value) return &each;
  }
  return nullptr;
}

namespace {

template <class T>
T attribute(const Node& node, const std::string& name, T fallback) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return fallback;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw Error(node.path + " (" + node.op + "): attribute '" + name + "' has the wrong type");
}

}  // namespace

int64_t int_attribute(const Node& node, const std::string& name, int64_t fallback) {
  return attribute<int64_t>(node, name, fallback);
}
double real_attribute(const Node& node, const std::string& name, double fallback) {
  return attribute<double>(node, name, fallback);
}
std::vector<int64_t> ints_attribute(const Node& node, const std::string& name,
                                    std::vector<int64_t> fallback) {
  return attribute<std::vector<int64_t>>(node, name, std::move(fallback));
}

}  // namespace halfscope
