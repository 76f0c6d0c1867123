// SPDX-License-Identifier: MIT
#include "core/train/content_hash.h"

#include <string>
#include <variant>
#include <vector>

#include "core/hash.h"
#include "core/number_text.h"

namespace halfscope {
namespace {

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::string text;
  for (const T value : values) text += std::to_string(value) + ' ';
  return text;
}

std::string attribute_text(const Attribute& attribute) {
  if (const double* real = std::get_if<double>(&attribute)) return number_text(*real);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute)) return list_text(*list);
  return std::to_string(std::get<int64_t>(attribute));
}

std::string value_text(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return std::to_string(id) + (value.type == ElementType::index ? " index " : " ") +
         list_text(value.shape) + '\n';
}

std::string node_text(const Graph& graph, const Node& node) {
  std::string text = node.op + ' ' + node.path + '\n' + list_text(node.inputs) + '\n';
  for (const auto& [name, attribute] : node.attributes) {
    text += name + '=' + attribute_text(attribute) + '\n';
  }
  for (const ValueId output : node.outputs) text += value_text(graph, output);
  return text;
}

}  // namespace

uint64_t hash_samples(const Split& split, uint64_t start) noexcept {
  uint64_t hash = hash_values(split.labels, hash_values(split.pixels, start));
  for (const SampleArray& array : split.arrays) {
    hash = hash_values(array.integers, hash_values(array.reals, hash));
  }
  return hash;
}

uint64_t hash_structure(const Graph& graph) {
  std::string text;
  for (const Input& input : graph.inputs())
    text += input.name + ' ' + value_text(graph, input.value);
  for (const Variable& variable : graph.variables()) {
    text += variable.path + (variable.buffer ? " buffer " : " ") + std::to_string(variable.next) +
            ' ' + value_text(graph, variable.value);
  }
  for (const Node& node : graph.nodes()) text += node_text(graph, node);
  uint64_t hash = fnv1a(text);
  for (const Constant& constant : graph.constants()) {
    hash = fnv1a(value_text(graph, constant.value), hash);
    hash = hash_values(constant.indices, hash_values(constant.tensor.data, hash));
  }
  return hash;
}

}  // namespace halfscope
