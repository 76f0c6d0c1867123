// SPDX-License-Identifier: MIT
// ONNX export, opset 21 (22 for typed files with bfloat16 operators). A model is exported for
// inference; an executable graph (lower_inference) is exported with its plan, in one of two ways:
//
//   casts  the file computes in float32; wherever the plan rounds, it has a Cast to the format and
//          one back: any runtime shows the same rounding, up to the order of its sums
//   types  a strongly typed file: tensors have the plan's formats as types, operators run in them,
//          and Casts convert between types
#pragma once

#include <cstdint>
#include <string>

#include "core/lower/lower.h"

namespace halfscope {

enum class ShownPlan : uint8_t {
  casts,
  types,         ///< inputs and outputs stay float32
  types_and_io,  ///< inputs have the type that all their readers use, outputs their own
};

/// Returns the bytes of the file. `weights`, by variable path, must contain all variables that the
/// outputs depend on. Throws Error naming the node, variable or format that ONNX cannot express.
std::string onnx_bytes(const Model& model, const NamedTensors& weights);
std::string onnx_bytes(const Executable& executable, const std::string& name,
                       const NamedTensors& weights, ShownPlan shown = ShownPlan::casts);

}  // namespace halfscope
