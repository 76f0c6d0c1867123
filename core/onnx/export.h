// SPDX-License-Identifier: MIT
// Networks as ONNX files, opset 21. A model goes out as it is in inference; an executable graph
// (lower_inference) goes out with what its plan does to every value, in one of two ways:
//
//   casts  it computes in float32, and wherever the plan rounds, a Cast to the format and one back
//          stand in the file: any runtime shows the same rounding, up to the order of its sums
//   types  a strongly typed file: tensors have the plan's formats for types, operators run in them,
//          and Casts lead from one type to another
#pragma once

#include <cstdint>
#include <string>

#include "core/lower/lower.h"

namespace halfscope {

enum class ShownPlan : uint8_t {
  casts,
  types,         ///< inputs and outputs stay float32
  types_and_io,  ///< inputs have the type that all their readers want, outputs their own
};

/// The bytes of the file. `weights` by variable path: all variables that the outputs depend on.
/// Throws Error naming the node, variable or format that ONNX cannot express.
std::string onnx_bytes(const Model& model, const NamedTensors& weights);
std::string onnx_bytes(const Executable& executable, const std::string& name,
                       const NamedTensors& weights, ShownPlan shown = ShownPlan::casts);

}  // namespace halfscope
