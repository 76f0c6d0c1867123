// SPDX-License-Identifier: MIT
#include "core/onnx/node_attributes.h"

#include "core/error.h"

namespace halfscope::onnx_files {

using Type = ::onnx::AttributeProto;

const ::onnx::AttributeProto* NodeAttributes::find(const char* name) const {
  for (const ::onnx::AttributeProto& attribute : node_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

const ::onnx::AttributeProto* NodeAttributes::find(const char* name,
                                                   ::onnx::AttributeProto::AttributeType type,
                                                   const char* type_text) const {
  const ::onnx::AttributeProto* found = find(name);
  if (found == nullptr) return nullptr;
  // Very old files leave the type out.
  if (found->has_type() && found->type() != Type::UNDEFINED && found->type() != type) {
    throw Error(what_ + ": attribute '" + name + "' is not " + type_text);
  }
  return found;
}

int64_t NodeAttributes::integer(const char* name, int64_t fallback) const {
  const auto* found = find(name, Type::INT, "an integer");
  return found != nullptr ? found->i() : fallback;
}

double NodeAttributes::real(const char* name, double fallback) const {
  const auto* found = find(name, Type::FLOAT, "a number");
  return found != nullptr ? static_cast<double>(found->f()) : fallback;
}

std::string NodeAttributes::text(const char* name, const std::string& fallback) const {
  const auto* found = find(name, Type::STRING, "a text");
  return found != nullptr ? found->s() : fallback;
}

std::vector<std::string> NodeAttributes::texts(const char* name) const {
  const auto* found = find(name, Type::STRINGS, "a list of strings");
  if (found == nullptr) return {};
  return {found->strings().begin(), found->strings().end()};
}

std::optional<std::vector<int64_t>> NodeAttributes::ints(const char* name) const {
  const auto* found = find(name, Type::INTS, "a list of integers");
  if (found == nullptr) return std::nullopt;
  return std::vector<int64_t>(found->ints().begin(), found->ints().end());
}

std::vector<int64_t> NodeAttributes::ints(const char* name,
                                          const std::vector<int64_t>& fallback) const {
  return ints(name).value_or(fallback);
}

std::optional<std::vector<float>> NodeAttributes::reals(const char* name) const {
  const auto* found = find(name, Type::FLOATS, "a list of numbers");
  if (found == nullptr) return std::nullopt;
  return std::vector<float>(found->floats().begin(), found->floats().end());
}

const ::onnx::TensorProto* NodeAttributes::tensor(const char* name) const {
  const auto* found = find(name, Type::TENSOR, "a tensor");
  return found != nullptr ? &found->t() : nullptr;
}

const ::onnx::GraphProto* NodeAttributes::graph(const char* name) const {
  const auto* found = find(name, Type::GRAPH, "a graph");
  return found != nullptr ? &found->g() : nullptr;
}

}  // namespace halfscope::onnx_files
