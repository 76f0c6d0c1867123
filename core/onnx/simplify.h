// SPDX-License-Identifier: MIT
// Detours that exporters write, as one node.
#pragma once

#include "core/graph/model.h"

namespace halfscope::onnx_files {

/// A Transpose of the last dimensions between two Reshapes that merge the dimensions in front and
/// split them again is a Transpose alone: PyTorch's exporter writes the keys of attention so.
Model simplified(Model model);

}  // namespace halfscope::onnx_files
