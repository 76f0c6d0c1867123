// SPDX-License-Identifier: MIT
// Distances in units in the last place of a format. Finite values of a format, written as exponent
// and mantissa, count upwards like integers (IEEE 754-2019, 3.4), so the distance of two values is
// the difference of their codes; +0 and -0 have the same position.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "core/host_device.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"

namespace halfscope {

/// Returned by ulp_distance when exactly one of the two is NaN.
inline constexpr int64_t kUlpUnordered = std::numeric_limits<int64_t>::max();

namespace detail {

/// Returns the position of a value of `format` among its values: 0 for +-0, 1 for the smallest
/// subnormal ... and one past the largest finite value for infinity.
HS_HD constexpr int64_t ulp_place(float x, const FloatFormat& format) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSignBit;
  const int64_t place = magnitude < kInfinityBits
                            ? int64_t{magnitude_code(std::bit_cast<float>(magnitude), format)}
                            : int64_t{magnitude_code(largest(false, format), format)} + 1;
  return (bits & kSignBit) != 0 ? -place : place;
}

}  // namespace detail

/// Returns the number of steps from a to b in `format`, both rounded to it first; never negative.
/// Infinity is one step beyond the largest finite value. Two NaNs are at distance 0.
HS_HD constexpr int64_t ulp_distance(float a, float b, const FloatFormat& format) noexcept {
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  if (a_nan || b_nan) return a_nan && b_nan ? 0 : kUlpUnordered;
  const float x = round_to_format(a, format).value;
  const float y = round_to_format(b, format).value;
  // A finite value beyond a format without infinity rounds to NaN; it is as far away as infinity
  // would be.
  const float infinity = std::numeric_limits<float>::infinity();
  const int64_t place_a = detail::ulp_place(x != x ? (a > 0 ? infinity : -infinity) : x, format);
  const int64_t place_b = detail::ulp_place(y != y ? (b > 0 ? infinity : -infinity) : y, format);
  return place_a > place_b ? place_a - place_b : place_b - place_a;
}

/// Returns the distance of neighbouring values of `format` in the binade of x: 2^(max(e, emin) -
/// m). Values beyond the largest finite one use its binade; NaN for a NaN.
HS_HD constexpr double ulp_size(double x, const FloatFormat& format) noexcept {
  if (x != x) return x;
  const uint64_t magnitude = std::bit_cast<uint64_t>(x) & ~(uint64_t{1} << 63);
  int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent < format.min_exponent()) exponent = format.min_exponent();
  if (exponent > format.max_exponent()) exponent = format.max_exponent();
  return FloatFormat::power_of_two(exponent - format.mantissa_bits);
}

}  // namespace halfscope
