// SPDX-License-Identifier: MIT
// Attributes of a file's own functions: values of a call and defaults of a function.
#pragma once

#include <string>
#include <vector>

#include "core/onnx/proto.h"

namespace halfscope::onnx_files {

using AttributeList = std::vector<::onnx::AttributeProto>;

/// Returns the defaults of a function. Throws Error naming the function if they are damaged.
AttributeList defaults_of(const ::onnx::FunctionProto& function);

/// Replaces references to attributes in a node of a function's body: by the call's value, else by
/// the default; without either the attribute is removed. Throws Error naming `what` for graphs that
/// are nested too deeply.
void give_attributes(::onnx::NodeProto& node, const ::onnx::NodeProto& call,
                     const AttributeList& defaults, const std::string& what, int depth = 0);

}  // namespace halfscope::onnx_files
