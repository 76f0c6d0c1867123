// SPDX-License-Identifier: MIT
// Limits of a format under rounding to nearest even: magnitudes of at least overflow_threshold
// become infinity or NaN (65520 for fp16), those up to flush_threshold become 0 (2^-25 for fp16).
// IEEE 754-2019, 4.3.1 and 7.4: halfway between the last value and the next one outside the range.
#pragma once

#include "core/numeric/formats/float_format.h"

namespace halfscope {

inline double overflow_threshold(const FloatFormat& format) noexcept {
  return format.max_finite() +
         FloatFormat::power_of_two(format.max_exponent() - format.mantissa_bits - 1);
}

inline double flush_threshold(const FloatFormat& format) noexcept {
  const double half_step = 0.5 * format.min_subnormal();
  return format.flush_out ? format.min_normal() - half_step : half_step;
}

/// Returns whether the format has a smaller exponent range than fp32, so that values can fall
/// outside it in practice.
inline bool narrow_exponent(const FloatFormat& format) noexcept {
  return format.exponent_bits < kFp32.exponent_bits;
}

/// Returns whether the format contains fp32, in which nothing of interest is lost.
inline bool full_precision(const FloatFormat& format) noexcept { return format.contains(kFp32); }

}  // namespace halfscope
