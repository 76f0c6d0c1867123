// SPDX-License-Identifier: MIT
// The names that tf2onnx writes: TensorFlow's scopes in the names of nodes, and tensors named as
// variables or as computed from variables.
#pragma once

#include <string>
#include <string_view>

#include "core/onnx/origin.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Returns whether tf2onnx wrote the file.
bool is_from_tensorflow(const ::onnx::ModelProto& file);

/// Returns whether tf2onnx named the tensor after the reading of a variable:
/// "model/dense/MatMul/ReadVariableOp:0".
bool is_variable_name(std::string_view tensor);

/// Returns whether a tensor is the result of nodes that TensorFlow or tf2onnx computed in advance.
/// Results that only move the elements of one variable ("conv2d/Reshape:0") do not count.
bool is_computed_name(std::string_view tensor);

/// Returns whether a tensor is part of a batch normalization that TensorFlow or tf2onnx computed in
/// advance, or a kernel multiplied by one.
bool is_batch_norm_name(std::string_view tensor);

/// Sets the layer of every node of a file by tf2onnx, if Keras 3 wrote its scopes. Keras opens the
/// scope of a layer twice, so TensorFlow numbers the one with the nodes: "functional_1/dense_1_2"
/// is layer "dense_1". Scopes within a layer ("moments", "while") have no number.
void find_keras_layers(const ::onnx::GraphProto& graph, Origins& origins);

}  // namespace halfscope::onnx_files
