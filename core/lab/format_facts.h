// SPDX-License-Identifier: MIT
// Range, precision and number of values of a format, and one number in all formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"

namespace halfscope::lab {

struct FormatFacts {
  double largest = 0.0;
  double smallest_normal = 0.0;
  double smallest = 0.0;  ///< positive; the smallest normal one if subnormals are flushed
  double epsilon = 0.0;   ///< from 1 to the next number; of the spacing at 1 if 1 is not a value
  int64_t codes = 0;      ///< 2^bits
  int64_t values = 0;     ///< different finite numbers; both zeros count as one
  int64_t nans = 0;       ///< codes
  int64_t infinities = 0;
  double decibels = 0.0;  ///< 20 log10(largest / smallest)
  double digits = 0.0;    ///< decimal digits of precision: log10 of 2^(mantissa_bits + 1)
};
FormatFacts facts_of(const FloatFormat& format);

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
