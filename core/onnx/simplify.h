// SPDX-License-Identifier: MIT
// Replaces roundabout sequences of nodes that exporters write by one node.
#pragma once

#include "core/graph/model.h"

namespace halfscope::onnx_files {

/// Replaces a Transpose of the last dimensions between two Reshapes, which merge and split the
/// leading dimensions, by one Transpose: PyTorch's exporter writes the keys of attention this way.
Model simplified(Model model);

}  // namespace halfscope::onnx_files
