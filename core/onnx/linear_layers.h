// SPDX-License-Identifier: MIT
// PyTorch's linear layers with a bias: its exporters write a product and a sum for inputs of other
// than two dimensions, but PyTorch adds the bias inside of the product and rounds once.
#pragma once

#include <functional>

#include "core/graph/model.h"

namespace halfscope::onnx_files {

/// Replaces MatMul and Add of torch.nn.functional.linear by one MatMul with a bias, under the path
/// of the sum, where PyTorch computes at::addmm (aten/src/ATen/native/Linear.cpp): where the
/// input is contiguous in fp32 (autocast packs an input that it casts). `type_of` returns the format in which the file
/// computes a node. `is_copied` returns whether the code has copied a product's input
/// (.contiguous(), which exporters leave out).
Model with_linear_layers(Model model, const std::function<FloatFormat(const Node&)>& type_of,
                         const std::function<bool(const Node&)>& is_copied);

}  // namespace halfscope::onnx_files
