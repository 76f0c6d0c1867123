// SPDX-License-Identifier: MIT
#include "core/onnx/tensorflow_file.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <vector>

#include "core/onnx/values.h"

namespace halfscope::onnx_files {
namespace {

using NameParts = std::vector<std::string>;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

NameParts parts_of(std::string_view path) {
  NameParts parts;
  while (true) {
    const size_t end = path.find('/');
    parts.emplace_back(path.substr(0, end));
    if (end == path.npos) return parts;
    path.remove_prefix(end + 1);
  }
}

/// Returns "Reshape" for "layer/Reshape_1:0".
std::string_view operation_of(std::string_view tensor) {
  tensor = tensor.substr(0, tensor.rfind(':'));
  tensor.remove_prefix(tensor.rfind('/') + 1);  // npos + 1 is 0
  const size_t digits = tensor.find_last_not_of("0123456789");
  if (digits != tensor.npos && digits + 1 < tensor.size() && tensor[digits] == '_')
    tensor = tensor.substr(0, digits);
  return tensor;
}

/// Returns "dense_1" for "dense_1_2", or nothing without a number.
std::optional<std::string> without_copy_number(const std::string& scope) {
  const size_t under = scope.rfind('_');
  if (under == scope.npos || under == 0 || under + 1 == scope.size()) return std::nullopt;
  const bool number =
      std::all_of(scope.begin() + static_cast<std::ptrdiff_t>(under) + 1, scope.end(),
                  [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!number) return std::nullopt;
  return scope.substr(0, under);
}

/// Returns the layers around a node or tensor, outermost first.
NameParts layers_of(std::string_view path) {
  NameParts layers, parts = parts_of(path);
  parts.pop_back();  // the operation
  for (const std::string& part : parts) {
    const std::optional<std::string> layer = without_copy_number(part);
    if (!layer) break;
    layers.push_back(*layer);
  }
  return layers;
}

}  // namespace

bool is_from_tensorflow(const ::onnx::ModelProto& file) {
  return file.producer_name() == "tf2onnx";
}

bool is_variable_name(std::string_view tensor) {
  return contains(tensor, "ReadVariableOp") || contains(tensor, "readvariableop_resource");
}

bool is_batch_norm_name(std::string_view tensor) {
  return contains(tensor, "/batchnorm/") || contains(tensor, "/merged_input") ||
         contains(tensor, "_fused_bn");
}

bool is_computed_name(std::string_view tensor) {
  if (is_variable_name(tensor)) return false;
  constexpr std::string_view kMoves[] = {"Reshape", "Squeeze", "Transpose", "transpose",
                                         "ExpandDims"};
  const std::string_view operation = operation_of(tensor);
  return std::find(std::begin(kMoves), std::end(kMoves), operation) == std::end(kMoves);
}

void find_keras_layers(const ::onnx::GraphProto& graph, Origins& origins) {
  std::set<std::string> initializers;
  for (const ::onnx::TensorProto& tensor : graph.initializer()) {
    if (tensor.data_type() == ::onnx::TensorProto::FLOAT) initializers.insert(tensor.name());
  }
  struct Place {
    NodeOrigin* origin;
    NameParts layers;
    bool weighs;
  };
  std::vector<Place> places;
  for (const ::onnx::NodeProto& node : graph.node()) {
    // tf2onnx numbers nodes that it adds: "Conv__227". Their weights have names.
    std::string_view path = node.name();
    bool weighs = false;
    for (const std::string& input : node.input()) {
      const bool weight = initializers.contains(input) && contains(input, "/");
      weighs = weighs || weight;
      if (weight && !contains(path, "/")) path = input;
    }
    if (!contains(path, "/")) continue;
    places.push_back({&origins[&node], layers_of(path), weighs});
  }
  // Scopes without numbers are not Keras 3's. Its own functions outside of layers have none either,
  // but do not read weights.
  const bool numbered = std::all_of(places.begin(), places.end(), [](const Place& place) {
    return !place.layers.empty() || !place.weighs;
  });
  if (!numbered) return;
  // The model's own scope says nothing if all weights are within it.
  const auto first =
      std::find_if(places.begin(), places.end(), [](const Place& place) { return place.weighs; });
  const std::string model = first == places.end() ? "" : first->layers[0];
  const bool drop = std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return !place.weighs || (place.layers[0] == model && place.layers.size() > 1);
  });
  for (Place& place : places) {
    if (place.layers.empty()) continue;
    std::string module;
    for (size_t i = drop && place.layers[0] == model ? 1 : 0; i < place.layers.size(); ++i)
      module += (module.empty() ? "" : ".") + place.layers[i];
    place.origin->module = place.origin->module_call = printable(module);
    place.origin->known = true;
  }
}

}  // namespace halfscope::onnx_files
