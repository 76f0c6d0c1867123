// SPDX-License-Identifier: MIT
// Round to odd, double to float: truncate, and set the last bit if anything was cut off. A later
// rounding to a format with at most 22 significand bits then gives the same result as one rounding
// of the double (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// Finite values never become infinite or zero (unless they are zero); NaN stays NaN.
HS_HD inline float round_to_odd(double x) noexcept {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  const bool finite = x - x == 0.0;
  if (back == x || !finite) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if ((x < 0.0 ? back < x : back > x)) --bits;  // truncate: one step towards zero
  return std::bit_cast<float>(bits | 1u);
}

/// A result computed in double, handed to a caller that will round it to `write`.
HS_HD inline float deliver(double x, const FloatFormat& write) noexcept {
  return write.mantissa_bits <= 21 ? round_to_odd(x) : static_cast<float>(x);
}

}  // namespace halfscope
