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

/// Opsets of the default domain that are understood: what each one changed was looked up. From 22
/// on these are types, attributes that we read (SpaceToDepth's mode, DequantizeLinear's
/// output_dtype) and new operators.
inline constexpr int64_t kOldestOpset = 8, kNewestOpset = 28;

/// Throws Error if it cannot be read, is over 2 GB, is not an ONNX file, or is nested too deeply.
::onnx::ModelProto read_model(const std::filesystem::path& file);

/// The same of bytes in memory, which errors call `name`.
::onnx::ModelProto parse_model(std::span<const uint8_t> bytes, const std::string& name);

/// Of the default domain. Throws Error if the model has none or one that is not understood.
int64_t opset_of(const ::onnx::ModelProto& model, const std::string& name);

/// Throws Error if the model does not fit into one file.
std::string model_bytes(const ::onnx::ModelProto& model, const std::string& name);

}  // namespace halfscope::onnx_files
