// SPDX-License-Identifier: MIT
// Who reads the initializers of a file, and which of those readings are one parameter. Exporters
// store equal tensors once and compute constants from parameters, so a file has other tensors than
// the network had parameters; training is right only with the parameters.
//
// What decides, best evidence first: what dynamo says of each call and each tensor (Signature); the
// names that TorchScript gives copies of a tensor, and the modules that read them; the values:
// tensors of one repeated number are equal by chance, two random ones are not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/onnx/import.h"
#include "core/onnx/known_tensor.h"
#include "core/onnx/origin.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

enum class Trains : uint8_t { yes, no };
using TensorPtr = std::shared_ptr<const KnownTensor>;

/// One input of one node that is an initializer.
struct Reading {
  std::string identity;  ///< readings with the same one are the same tensor
  std::string stored;    ///< the initializer whose values it has
  std::string name{};    ///< of the parameter: "layer1.0.conv1.weight"; "" if nothing says it
  Trains trains = Trains::no;
  bool transposed = false;  ///< of the tensor that others of this identity read
  bool computed = false;    ///< the exporter computed it, so its elements may repeat a parameter's
  bool spread = false;      ///< the tensor of this identity, broadcast
  /// Operators that the exporter computed it with, of a parameter that starts as `undone`.
  std::vector<std::string> functions{};
  TensorPtr undone{};
  int64_t padding_row = -1;  ///< of a table: what reads this row does not train it

  bool is_form() const { return transposed || spread || !functions.empty() || padding_row >= 0; }
};

using Initializers = std::map<std::string, TensorPtr>;

struct Readings {
  /// Of (node, input).
  std::map<std::pair<const ::onnx::NodeProto*, int>, Reading> readings{};
  std::vector<ImportDoubt> doubts{};        ///< what may train differently
  std::vector<ImportConstant> constants{};  ///< real tensors of several elements that do not train
  std::vector<std::string> notes{};
  /// Convolutions and products whose bias the exporter removed because it was zero: its name.
  std::map<const ::onnx::NodeProto*, std::string> removed_biases{};

  const Reading* find(const ::onnx::NodeProto& node, int input) const {
    const auto found = readings.find({&node, input});
    return found == readings.end() ? nullptr : &found->second;
  }
};

/// Decides for every reading of a real initializer by a node of the graph itself; nodes of graphs
/// within it read what those around them read.
Readings find_readings(const ::onnx::ModelProto& file, const Initializers& initializers,
                       const Origins& origins, const ImportOptions& options);

}  // namespace halfscope::onnx_files
