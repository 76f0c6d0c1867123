// SPDX-License-Identifier: MIT
// Round to odd, double to float: truncate, and set the last bit if anything was cut off. A later
// rounding to a format with at most 22 significand bits then gives the same result as one rounding
// of the double (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"

namespace halfscope {

/// Rounds toward zero. Finite values never become infinite; NaN stays NaN.
HS_HD inline float round_toward_zero(double x) noexcept {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (x - x != 0.0 || (x < 0.0 ? back >= x : back <= x)) return nearest;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) - 1);
}

/// Rounds to odd. Finite values never become infinite, nonzero values never become zero; NaN stays
/// NaN.
HS_HD inline float round_to_odd(double x) noexcept {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  // Magnitudes as integers, whose differences borrow if they are negative: without branches and
  // comparisons, loops vectorize.
  constexpr uint64_t kInfinity = 0x7ff0000000000000;
  const uint64_t exact = std::bit_cast<uint64_t>(x) << 1 >> 1;
  const uint64_t rounded = std::bit_cast<uint64_t>(back) << 1 >> 1;
  const uint64_t finite = (exact - kInfinity) >> 63;
  const uint64_t away = (exact - rounded) >> 63, towards = (rounded - exact) >> 63;
  const uint32_t down = static_cast<uint32_t>(away & finite);
  const uint32_t odd = static_cast<uint32_t>((away | towards) & finite);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - down) | odd);
}

/// Prepares a result computed in double for a caller that will round it to `write`.
HS_HD inline float deliver(double x, const FloatFormat& write) noexcept {
  return write.mantissa_bits <= 21 ? round_to_odd(x) : static_cast<float>(x);
}

namespace detail {

/// Returns how many bits a float has below the last place of every number of a format, including
/// subnormals.
HS_HD constexpr int extra_bits(const FloatFormat& format) noexcept {
  const int smallest = format.min_exponent() + 126;
  return 23 - format.mantissa_bits + (smallest < 0 ? smallest : 0);
}

/// Returns Rounding::random_bits, limited to its range.
HS_HD constexpr int random_bits_of(const Rounding& rounding) noexcept {
  const int bits = rounding.random_bits;
  return bits < 1 ? 1 : bits > 32 ? 32 : bits;
}

/// Returns whether a stochastic rounding goes away from zero. `fraction` is the dropped part of the
/// last place, as an integer of `places` bits (random_bits or more).
HS_HD constexpr bool rounds_away(uint64_t fraction, int places, const Rounding& rounding) noexcept {
  const int bits = random_bits_of(rounding);
  const uint64_t random = rounding.random & ((uint64_t{1} << bits) - 1);
  return ((fraction >> (places - bits)) + random) >> bits != 0;
}

/// Returns the float next to x that rounds to the same number as x. One of the two neighbours does,
/// because rounding keeps the order of magnitudes. Parameters are passed by value, because it is a
/// call on devices.
HS_HD HS_SELDOM inline float neighbour_rounding_alike(double x, FloatFormat write,
                                                      Rounding rounding) noexcept {
  const auto bits = [](float y) { return std::bit_cast<uint32_t>(y); };
  const float below = round_toward_zero(x);
  const float above = std::bit_cast<float>(bits(below) + 1);
  const uint64_t exact = std::bit_cast<uint64_t>(x);
  const int exponent = static_cast<int>(exact >> 52 & 0x7ff) - 1023;
  const int places = 52 - write.mantissa_bits;
  const bool usual = exponent >= write.min_exponent() && exponent >= kFp32.min_exponent() &&
                     exponent < write.max_exponent();
  if (rounding.mode == RoundingMode::stochastic && usual && places >= random_bits_of(rounding)) {
    const uint64_t fraction = exact & ((uint64_t{1} << places) - 1);
    const uint64_t of_below = fraction >> 29 << 29;  // the part of it that a float can represent
    const bool same =
        rounds_away(of_below, places, rounding) == rounds_away(fraction, places, rounding);
    return same ? below : above;
  }
  const float wanted = static_cast<float>(round_to_format(x, write, rounding).value);
  return bits(round_to_format(below, write, rounding).value) == bits(wanted) ? below : above;
}

}  // namespace detail

/// Returns a float that `rounding` rounds to the same number of `write` as it would round x: in
/// every mode a single rounding of x, with the same draw in stochastic mode. For nearest even that
/// is deliver(x, write).
HS_HD inline float deliver(double x, const FloatFormat& write, const Rounding& rounding) noexcept {
  if (rounding.mode == RoundingMode::nearest_even) return deliver(x, write);
  const float odd = round_to_odd(x);
  if (static_cast<double>(odd) == x || x != x) return odd;
  // Stochastic rounding needs random_bits after the last place, other modes need one. They only
  // need to know whether the remaining bits are zero. The largest float may represent much larger
  // numbers.
  const bool stochastic = rounding.mode == RoundingMode::stochastic;
  const int looks_at = stochastic ? detail::random_bits_of(rounding) : 1;
  const bool beyond = (std::bit_cast<uint32_t>(odd) & ~detail::kSignBit) == 0x7f7fffffu;
  if (looks_at < detail::extra_bits(write) && !beyond) return odd;
  return detail::neighbour_rounding_alike(x, write, rounding);
}

/// Returns an exact value rounded to odd, given the nearest double and a `rest` with the sign of
/// their difference.
HS_HD inline double to_odd(double nearest, double rest) noexcept {
  const uint64_t bits = std::bit_cast<uint64_t>(nearest);
  if (!(rest > 0.0 || rest < 0.0) || (bits & 1) != 0) return nearest;
  return std::bit_cast<double>((rest > 0.0) == (nearest > 0.0) ? bits + 1 : bits - 1);
}

// Exact results of arithmetic on floats, as doubles that are rounded to odd if 53 bits are not
// enough. Rounding them to 52 bits or fewer, in any mode, gives the exact result rounded once.

/// Returns a + b. `down`: the later rounding is toward -infinity, which turns exact differences of
/// zero into -0 (IEEE 754-2019, 6.3).
HS_HD inline double odd_sum(double a, double b, bool down) noexcept {
  const double s = a + b;
  const double t = s - a, rest = (a - (s - t)) + (b - t);  // TwoSum (Knuth)
  const uint64_t signs = std::bit_cast<uint64_t>(a) | std::bit_cast<uint64_t>(b);
  if (s == 0.0) return down && (signs >> 63) != 0 ? -0.0 : s;
  return to_odd(s, rest);
}
HS_HD inline double odd_quotient(double a, double b) noexcept {
  const double q = a / b;
  const double rest = std::fma(-q, b, a);
  return to_odd(q, b < 0.0 ? -rest : rest);
}
HS_HD inline double odd_root(double x) noexcept {
  const double root = std::sqrt(x);
  return to_odd(root, std::fma(-root, root, x));
}

}  // namespace halfscope
