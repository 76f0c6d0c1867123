// SPDX-License-Identifier: MIT
// Networks as ONNX files, opset 21. A model goes out as it is in inference; an executable graph
// (lower_inference) goes out with what its plan does to every value: it computes in float32, and
// wherever the plan rounds, a Cast to the format and one back to float32 stand in the file. Any
// runtime then shows the same rounding, up to the order of its sums.
#pragma once

#include <string>

#include "core/lower/lower.h"

namespace halfscope {

/// The bytes of the file. `weights` by variable path: all variables that the outputs depend on.
/// Throws Error naming the node, variable or format that ONNX cannot express.
std::string onnx_bytes(const Model& model, const NamedTensors& weights);
std::string onnx_bytes(const Executable& executable, const std::string& name,
                       const NamedTensors& weights);

}  // namespace halfscope
