// SPDX-License-Identifier: MIT
#include "core/onnx/recognise.h"
namespace halfscope::onnx_files {
Model recognise_composites(Model model) { return model; }
}  // namespace halfscope::onnx_files
