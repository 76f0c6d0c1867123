// SPDX-License-Identifier: MIT
// Finds the readers of a file's initializers, and which of these readings are the same parameter.
// Exporters store equal tensors once and compute constants from parameters, so the tensors of a
// file differ from the parameters of the network; training is only correct with the parameters.
//
// Evidence, best first: dynamo's metadata of each call and each tensor (Signature); TorchScript's
// names of copies of a tensor and the modules that read them; the values: tensors of one repeated
// number may be equal by chance, random ones may not.
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
  std::string identity;  ///< readings with the same identity are the same tensor
  std::string stored;    ///< the initializer whose values it has
  std::string name{};    ///< of the parameter: "layer1.0.conv1.weight"; "" if unknown
  Trains trains = Trains::no;
  bool transposed = false;  ///< transpose of the tensor that other readings of this identity read
  bool turned = false;      ///< transpose of the parameter, which the file has in no other form
  bool computed = false;    ///< computed by the exporter, so its elements may repeat a parameter's
  bool spread = false;      ///< broadcast of the tensor of this identity
  /// Operators with which the exporter computed it from a parameter that starts as `undone`.
  std::vector<std::string> functions{};
  TensorPtr undone{};
  int64_t padding_row = -1;  ///< row of a table that does not train where it is looked up; -1: none

  bool is_form() const { return transposed || spread || !functions.empty() || padding_row >= 0; }
};

using Initializers = std::map<std::string, TensorPtr>;

struct Readings {
  /// By node and input.
  std::map<std::pair<const ::onnx::NodeProto*, int>, Reading> readings{};
  std::vector<ImportDoubt> doubts{};        ///< what may train differently
  std::vector<ImportConstant> constants{};  ///< real tensors of several elements that do not train
  std::vector<std::string> notes{};
  /// Names of biases that the exporter removed because they were zero, by convolution or product.
  std::map<const ::onnx::NodeProto*, std::string> removed_biases{};

  const Reading* find(const ::onnx::NodeProto& node, int input) const {
    const auto found = readings.find({&node, input});
    return found == readings.end() ? nullptr : &found->second;
  }
};

/// Decides for every reading of a real initializer by a node of the main graph; nodes of nested
/// graphs read the same tensors as the nodes around them.
Readings find_readings(const ::onnx::ModelProto& file, const Initializers& initializers,
                       const Origins& origins, const ImportOptions& options);

}  // namespace halfscope::onnx_files
