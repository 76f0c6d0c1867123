// SPDX-License-Identifier: MIT
// Attributes of a file's own functions: those of a call, and the defaults that a function names.
#pragma once

#include <string>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

using AttributeList = std::vector<::onnx::AttributeProto>;

/// Throws Error naming the function if they are damaged.
AttributeList defaults_of(const ::onnx::FunctionProto& function);

/// Puts attributes into a node of a function's body where it asks for them: the call's, else the
/// defaults; without either the attribute goes. Throws Error naming `what` for graphs that are
/// nested too deeply.
void give_attributes(::onnx::NodeProto& node, const ::onnx::NodeProto& call,
                     const AttributeList& defaults, const std::string& what, int depth = 0);

}  // namespace halfscope::onnx_files
