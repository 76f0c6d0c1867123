// SPDX-License-Identifier: MIT
// An ONNX file as protobuf classes: read with limits on size and depth, written in one piece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Supported opsets of the default domain; the changes of each one were checked. From 22 on the
/// changes are types, attributes that we read (SpaceToDepth's mode, DequantizeLinear's
/// output_dtype) and new operators.
inline constexpr int64_t kOldestOpset = 8, kNewestOpset = 28;

/// Reads a file. Throws Error if it cannot be read, is larger than 2 GB, is not a valid ONNX file,
/// or is nested too deeply.
::onnx::ModelProto read_model(const std::filesystem::path& file);

/// Parses a file in memory; errors call it `name`.
::onnx::ModelProto parse_model(std::span<const uint8_t> bytes, const std::string& name);

/// Returns the opset of the default domain. Throws Error if the model has none or it is
/// unsupported.
int64_t opset_of(const ::onnx::ModelProto& model, const std::string& name);

/// Serializes a model. Throws Error if it does not fit into one file.
std::string model_bytes(const ::onnx::ModelProto& model, const std::string& name);

}  // namespace halfscope::onnx_files
