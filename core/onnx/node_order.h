// SPDX-License-Identifier: MIT
// The nodes of a file: what they are called in messages, and in which order they can run.
#pragma once

#include <string>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Branches and functions within each other.
inline constexpr int kDeepest = 32;

/// Of limited length, valid UTF-8, and without control characters, which would break lines.
std::string printable(std::string text);

/// Returns what messages call a node: "conv1 (Conv)", by its name or its first result. With a
/// module that the file names, "layer1.0.conv1 (Conv node_Conv_3)".
std::string describe(const ::onnx::NodeProto& node);

/// The nodes such that each stands after those whose results it reads, else in the order of the
/// file. Throws Error naming a node that depends on itself.
std::vector<const ::onnx::NodeProto*> in_order(
    const google::protobuf::RepeatedPtrField<::onnx::NodeProto>& nodes);

}  // namespace halfscope::onnx_files
