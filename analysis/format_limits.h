// SPDX-License-Identifier: MIT
// Where rounding to nearest even leaves a format: from overflow_threshold on a magnitude becomes
// infinity or NaN (65520 for fp16), up to flush_threshold it becomes zero (2^-25 for fp16).
// IEEE 754-2019, 4.3.1 and 7.4: halfway between the last value and the one that does not exist.
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

/// True if the format reaches less far than fp32: its exponent can run out in practice.
inline bool narrow_exponent(const FloatFormat& format) noexcept {
  return format.exponent_bits < kFp32.exponent_bits;
}

/// True for fp32 itself: the format in which nothing of interest is lost.
inline bool full_precision(const FloatFormat& format) noexcept { return format.contains(kFp32); }

}  // namespace halfscope
