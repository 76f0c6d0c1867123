// SPDX-License-Identifier: MIT
// Quantization of a tensor that is read in parts, for formats with a scale of the whole tensor.
#pragma once

#include <span>

#include "core/numeric/scaling/block_format.h"

namespace halfscope {

/// Returns the largest magnitude of the finite values; 0 if there is none.
float largest_finite(std::span<const float> values) noexcept;

/// Does what quantize() does with whole blocks of a larger tensor, whose largest finite magnitude
/// is `largest`. Only nvfp4 uses it.
void quantize_part(std::span<const float> in, const BlockShape& shape, const BlockFormat& format,
                   float largest, std::span<float> out, std::span<float> scales,
                   BlockStats* stats = nullptr);

}  // namespace halfscope
