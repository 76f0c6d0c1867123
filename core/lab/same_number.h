// SPDX-License-Identifier: MIT
// One number in all formats: what each stores, and how far off that is.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

/// The result of storing a number in a format.
enum class Fate : uint8_t {
  exact,
  rounded,
  subnormal,  ///< inexact, and with fewer significant bits than others
  underflow,  ///< not zero, but becomes 0
  overflow,   ///< becomes infinity, or NaN where there is none
  saturated,  ///< becomes the largest number
  special,    ///< infinity or NaN to begin with
};
const char* fate_name(Fate fate) noexcept;

struct NumberIn {
  std::string_view name{};  ///< of the format
  FloatFormat format{};
  uint32_t code = 0;
  float value = 0.0f;
  Fate fate = Fate::exact;
  double error_ulps = 0.0;  ///< stored minus exact, in ulps of the exact; NaN unless finite
  double error = 0.0;       ///< the same relative to the exact number; -1: becomes 0
};
/// Returns the number in every named format, from most to fewest bits.
std::vector<NumberIn> same_number(double number);

}  // namespace halfscope::lab
