// SPDX-License-Identifier: MIT
// TensorProto to KnownTensor and back. Declared sizes are checked against the bytes of the file
// before memory is allocated.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/onnx/known_tensor.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Reads all encodings: raw bytes, the typed fields, and external data, whose files must be in
/// `folder` or below. Throws Error naming `what`.
KnownTensor read_tensor(const ::onnx::TensorProto& proto, const std::filesystem::path& folder,
                        const std::string& what);

/// Returns the file with the external data of a tensor, nothing if its data is in the model. Throws
/// Error naming `what` if the file is not in `folder` or below.
std::optional<std::filesystem::path> external_file(const ::onnx::TensorProto& proto,
                                                   const std::filesystem::path& folder,
                                                   const std::string& what);

/// Writes raw little-endian bytes of type FLOAT, FLOAT16, BFLOAT16, an 8-bit float, INT64, INT32,
/// INT8, INT4 or BOOL.
void write_tensor(const KnownTensor& tensor, const std::string& name, ::onnx::TensorProto& proto);

}  // namespace halfscope::onnx_files
