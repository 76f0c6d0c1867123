// SPDX-License-Identifier: MIT
// Nodes of a file: their names in messages, and an order in which they can run.
#pragma once

#include <string>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

/// Maximum nesting depth of branches and functions.
inline constexpr int kDeepest = 32;

/// Returns the text with limited length, as valid UTF-8 and without control characters, which would
/// break lines.
std::string printable(std::string text);

/// Returns the name of a node for messages: "conv1 (Conv)", from its name or its first output. If
/// the file names its module: "layer1.0.conv1 (Conv node_Conv_3)".
std::string describe(const ::onnx::NodeProto& node);

/// Returns the nodes so that each comes after those whose outputs it reads, otherwise in the order
/// of the file. Throws Error naming a node that depends on itself.
std::vector<const ::onnx::NodeProto*> in_order(
    const google::protobuf::RepeatedPtrField<::onnx::NodeProto>& nodes);

}  // namespace halfscope::onnx_files
