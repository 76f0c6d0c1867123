// SPDX-License-Identifier: MIT
// Roots that are norms.
#pragma once

namespace halfscope {

/// Attribute of a Sqrt: where it is 1, the gradient at 0 is 0 instead of infinite, as PyTorch's
/// norms have it.
///   source: PyTorch 2.15, torch/csrc/autograd/FunctionsManual.cpp, norm_backward
inline constexpr const char* kZeroSlopeAtZero = "zero_slope_at_zero";

}  // namespace halfscope
