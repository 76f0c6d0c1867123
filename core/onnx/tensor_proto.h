// SPDX-License-Identifier: MIT
// TensorProto to KnownTensor and back. What a file declares is checked against the bytes that are
// there before memory is taken for it.
#pragma once

#include <filesystem>
#include <string>

#include "core/onnx/known_tensor.h"
#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Reads all encodings: raw bytes, the typed fields, and external data, whose files must lie in
/// `folder` or below. Throws Error naming `what`.
KnownTensor read_tensor(const ::onnx::TensorProto& proto, const std::filesystem::path& folder,
                        const std::string& what);

/// Raw little-endian bytes of type FLOAT, FLOAT16, BFLOAT16, an 8-bit float, INT64, INT32 or BOOL.
void write_tensor(const KnownTensor& tensor, const std::string& name, ::onnx::TensorProto& proto);

}  // namespace halfscope::onnx_files
