// SPDX-License-Identifier: MIT
// round_to_format: the one rounding of the project, in integer arithmetic only, usable in
// constant expressions and on the device. Nearest, ties to even (IEEE 754-2019, 4.3.1).
// Overflow gives infinity, or NaN where the format has none (OCP OFP8, non-saturating mode).
// NaN stays NaN (sign kept, payload truncated, quiet bit set). Every faster path must agree
// with this one bit for bit.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/float_format.h"

namespace halfscope {

/// What rounding did; a set of bits.
enum RoundFlags : uint8_t {
  kExact = 0,
  kInexact = 1,
  kOverflow = 2,   ///< finite value rounded beyond the largest finite one
  kUnderflow = 4,  ///< non-zero value rounded to zero
  kSubnormal = 8,  ///< rounded value is non-zero and below the smallest normal one
};

template <class T>
struct Rounded {
  T value;
  uint8_t flags;
};

namespace detail {

/// Rounds a finite or non-finite binary floating-point number given as bits; see round_to_format.
template <class T, class Bits, int kMantissa, int kBias>
HS_HD constexpr Rounded<T> round_bits(T x, const FloatFormat& format) noexcept {
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  constexpr Bits kImplicit = Bits{1} << kMantissa;
  constexpr Bits kInfinity = ~kSign & ~(kImplicit - 1);
  constexpr Bits kQuiet = Bits{1} << (kMantissa - 1);
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits sign = bits & kSign;
  const Bits magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {  // NaN: the quiet bit keeps it a NaN when the payload is cut
    const int dropped = kMantissa - format.mantissa_bits;
    const Bits payload = dropped > 0 ? magnitude >> dropped << dropped : magnitude;
    return {std::bit_cast<T>(static_cast<Bits>(sign | payload | kQuiet)), kExact};
  }
  if (magnitude == kInfinity) {
    if (format.has_infinity()) return {x, kExact};
    return {std::bit_cast<T>(static_cast<Bits>(sign | kInfinity | kQuiet)), kExact};
  }
  if (magnitude == 0) return {x, kExact};

  // magnitude = significand * 2^(exponent - kMantissa), with exponent the "raw" one (>= 1 - kBias)
  const int biased = static_cast<int>(magnitude >> kMantissa);
  int exponent = (biased == 0 ? 1 : biased) - kBias;
  Bits significand = (magnitude & (kImplicit - 1)) | (biased == 0 ? Bits{0} : kImplicit);
  while (significand < kImplicit) {  // normalise a subnormal
    significand <<= 1;
    --exponent;
  }
  // The result is a multiple of 2^quantum.
  const int min_exponent = format.min_exponent();
  const int quantum = (exponent > min_exponent ? exponent : min_exponent) - format.mantissa_bits;
  const int shift = quantum - (exponent - kMantissa);  // bits of the significand to drop
  if (shift <= 0) {
    uint8_t flags = exponent < min_exponent ? kSubnormal : kExact;
    if (exponent <= format.max_exponent()) {
      // Already representable, unless it is beyond the largest finite value.
      const double value = static_cast<double>(std::bit_cast<T>(magnitude));
      if (value <= format.max_finite()) return {x, flags};
    }
  }
  Bits kept = 0;
  bool inexact = false;
  if (shift > kMantissa + 1) {  // below half of the smallest step
    inexact = true;
  } else if (shift > 0) {
    const Bits half = Bits{1} << (shift - 1);
    const Bits rest = significand & ((half << 1) - 1);
    kept = significand >> shift;
    inexact = rest != 0;
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  } else {
    kept = significand << -shift;
  }
  if (kept == 0) {
    return {std::bit_cast<T>(sign), static_cast<uint8_t>(kInexact | kUnderflow)};
  }
  // value = kept * 2^quantum; kept has at most mantissa_bits + 2 bits.
  const double value = static_cast<double>(kept) * FloatFormat::power_of_two(quantum);
  if (value > format.max_finite()) {
    const Bits infinity = format.has_infinity() ? kInfinity : (kInfinity | kQuiet);
    return {std::bit_cast<T>(static_cast<Bits>(sign | infinity)),
            static_cast<uint8_t>(kInexact | kOverflow)};
  }
  uint8_t flags = inexact ? kInexact : kExact;
  if (value < format.min_normal()) flags |= kSubnormal;
  const Bits result = std::bit_cast<Bits>(static_cast<T>(value));
  return {std::bit_cast<T>(static_cast<Bits>(sign | result)), flags};
}

}  // namespace detail

/// Rounds to `format`, nearest even. Total: every input, NaN included, has a defined result.
HS_HD constexpr Rounded<float> round_to_format(float x, const FloatFormat& format) noexcept {
  return detail::round_bits<float, uint32_t, 23, 127>(x, format);
}

/// The same from double, with a single rounding. The result is a value of `format`.
HS_HD constexpr Rounded<double> round_to_format(double x, const FloatFormat& format) noexcept {
  return detail::round_bits<double, uint64_t, 52, 1023>(x, format);
}

}  // namespace halfscope
