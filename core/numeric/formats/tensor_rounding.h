// SPDX-License-Identifier: MIT
// Rounding of a whole tensor: one mode for all elements, and for stochastic rounding a key from
// which each element draws its bits. Element i depends only on the key and on i, so neither threads
// nor the division of a tensor into parts change the result.
#pragma once

#include <cstdint>

#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {

struct TensorRounding {
  RoundingMode mode = RoundingMode::nearest_even;
  uint64_t key = 0;      ///< stochastic: random_key() of the tensor's place and step
  int random_bits = 32;  ///< stochastic: Rounding::random_bits
  uint64_t first = 0;    ///< index of the first element, for a part of a tensor

  /// Returns the rounding of the part that begins `by` elements later.
  HS_HD constexpr TensorRounding from(int64_t by) const noexcept {
    return {mode, key, random_bits, first + static_cast<uint64_t>(by)};
  }
  /// Returns the rounding of element `index` of this part; it uses the upper bits of its draw.
  HS_HD constexpr Rounding element(int64_t index) const noexcept {
    if (mode != RoundingMode::stochastic) return {.mode = mode};
    const int bits = random_bits < 1 ? 1 : random_bits > 32 ? 32 : random_bits;
    const uint32_t draw = random_draw(key, first + static_cast<uint64_t>(index));
    return {.mode = mode, .random = draw >> (32 - bits), .random_bits = bits};
  }
};

}  // namespace halfscope
