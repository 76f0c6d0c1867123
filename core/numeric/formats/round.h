// SPDX-License-Identifier: MIT
// round_to_format: the only rounding of the project, in integer arithmetic, usable in constant
// expressions and on the device. Every faster path must agree with it bit for bit.
//
// Overflow gives infinity, NaN if the format has no infinity (OCP OFP8, non-saturating mode), or
// the largest finite value if the mode (IEEE 754-2019, 7.4) or the format says so. An infinity that
// the format cannot represent counts as overflow in every mode. NaN stays NaN (sign kept, payload
// truncated, quiet bit set). In formats without NaN it becomes the result of a positive overflow,
// with kInvalid (PTX cvt to e2m1).
//
// Everything that rounds, including arithmetic.h, ends in detail::round_unpacked.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {
namespace detail {

inline constexpr uint32_t kSignBit = 0x80000000u;
inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr uint32_t kQuietBit = 0x00400000u;

/// (-1)^negative * significand * 2^exponent; if `sticky` a little more: less than 2^exponent, but
/// not zero. The significand is not zero. If sticky it has 57 or more bits, so that 24 bits and the
/// 32 that a stochastic rounding may need are known.
struct Unpacked {
  bool negative;
  uint64_t significand;
  int exponent;
  bool sticky;
};

HS_HD constexpr int leading_zeros(uint64_t x) noexcept {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(x));
#else
  return std::countl_zero(x);
#endif
}

/// Returns the same value with the top bit of the significand set.
HS_HD constexpr Unpacked normalised(Unpacked x) noexcept {
  const int shift = leading_zeros(x.significand);
  x.significand <<= shift;
  x.exponent -= shift;
  return x;
}

/// Unpacks a finite nonzero float, given as bits.
HS_HD constexpr Unpacked unpack(uint32_t bits) noexcept {
  const int biased = static_cast<int>((bits & kInfinityBits) >> 23);
  const uint32_t implicit = biased == 0 ? 0u : 0x00800000u;
  return {.negative = (bits & kSignBit) != 0,
          .significand = (bits & 0x007fffffu) | implicit,
          .exponent = (biased == 0 ? 1 : biased) - 150,
          .sticky = false};
}

HS_HD constexpr Unpacked unpack(uint64_t bits) noexcept {
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t implicit = biased == 0 ? 0 : uint64_t{1} << 52;
  return {.negative = bits >> 63 != 0,
          .significand = (bits & ((uint64_t{1} << 52) - 1)) | implicit,
          .exponent = (biased == 0 ? 1 : biased) - 1075,
          .sticky = false};
}

HS_HD constexpr float with_sign(bool negative, uint32_t magnitude) noexcept {
  return std::bit_cast<float>(magnitude | (negative ? kSignBit : 0u));
}

/// Returns significand * 2^exponent, which must be a nonzero finite float.
HS_HD constexpr float compose(bool negative, uint32_t significand, int exponent) noexcept {
  const int shift = leading_zeros(significand) - 40;  // to 24 bits
  const int biased = exponent - shift + 150;
  const uint32_t magnitude = biased >= 1
                                 ? (static_cast<uint32_t>(biased - 1) << 23) +
                                       (shift >= 0 ? significand << shift : significand >> -shift)
                                 : significand << (exponent + 149);
  return with_sign(negative, magnitude);
}

HS_HD constexpr float signed_zero(bool negative, const FloatFormat& format) noexcept {
  return with_sign(negative && format.has_negative_zero(), 0);
}

HS_HD constexpr float largest(bool negative, const FloatFormat& format) noexcept {
  return compose(negative, format.max_significand(), format.max_exponent() - format.mantissa_bits);
}

/// Returns the format's replacement for infinity: infinity itself, the largest finite value, or
/// NaN.
HS_HD constexpr float beyond_largest(bool negative, const FloatFormat& format) noexcept {
  if (format.saturates()) return largest(negative, format);
  if (format.has_infinity()) return with_sign(negative, kInfinityBits);
  // The one NaN of fnuz has no sign.
  return with_sign(negative && format.has_negative_zero(), kInfinityBits | kQuietBit);
}

/// Rounds an exact result of infinity.
HS_HD constexpr Rounded<float> round_infinity(bool negative, const FloatFormat& format) noexcept {
  const bool exact = format.has_infinity() && !format.saturates();
  return {beyond_largest(negative, format),
          static_cast<uint8_t>(exact ? kExact : kInexact | kOverflow)};
}

/// Rounds a NaN whose sign and payload are at their places in a float.
HS_HD constexpr Rounded<float> round_nan(uint32_t bits, const FloatFormat& format) noexcept {
  const uint8_t flags = (bits & kQuietBit) == 0 ? kInvalid : kExact;
  if (!format.has_nan()) return {beyond_largest(false, format), kInvalid};
  if (format.encoding == Encoding::fnuz) return {with_sign(false, 0x7fc00000u), flags};
  const uint32_t kept = ~0u << (23 - format.mantissa_bits);
  return {std::bit_cast<float>((bits & (kept | kSignBit)) | kInfinityBits | kQuietBit), flags};
}

/// A significand reduced to fewer bits. The part that was cut off is fraction * 2^-64 of the last
/// place, and a little more if `more`.
struct Cut {
  uint64_t kept, fraction;
  bool more;
};

/// Drops the low `drop` >= 1 bits.
HS_HD constexpr Cut cut(uint64_t significand, bool sticky, int drop) noexcept {
  if (drop < 64) return {significand >> drop, significand << (64 - drop), sticky};
  if (drop == 64) return {0, significand, sticky};
  if (drop >= 128) return {0, 0, true};
  return {0, significand >> (drop - 64), sticky || significand << (128 - drop) != 0};
}

/// Returns the kept bits, plus one or with the last bit set if the mode requires it.
HS_HD constexpr uint64_t round_cut(const Cut& cut, bool negative,
                                   const Rounding& rounding) noexcept {
  const uint64_t half = uint64_t{1} << 63;
  const uint64_t inexact = (cut.fraction | (cut.more ? 1u : 0u)) != 0 ? 1 : 0;
  switch (rounding.mode) {
    case RoundingMode::nearest_even: {  // without branches, which would depend on the data
      const uint64_t fraction = cut.fraction | (cut.more ? 1u : 0u);
      const uint64_t sum = fraction + (half - 1) + (cut.kept & 1);
      return cut.kept + (sum < fraction ? 1 : 0);
    }
    case RoundingMode::nearest_away:
      return cut.kept + (cut.fraction >= half ? 1 : 0);
    case RoundingMode::toward_zero:
      return cut.kept;
    case RoundingMode::up:
      return cut.kept + (negative ? 0 : inexact);
    case RoundingMode::down:
      return cut.kept + (negative ? inexact : 0);
    case RoundingMode::odd:
      return cut.kept | inexact;
    case RoundingMode::stochastic: {
      const int wanted = rounding.random_bits;
      const int bits = wanted < 1 ? 1 : wanted > 32 ? 32 : wanted;
      const uint64_t random = rounding.random & ((uint64_t{1} << bits) - 1);
      return cut.kept + ((cut.fraction >> (64 - bits)) + random) / (uint64_t{1} << bits);
    }
  }
  return cut.kept;
}

/// Rounds a magnitude beyond the largest finite value (IEEE 754-2019, 7.4).
HS_HD constexpr Rounded<float> round_overflow(bool negative, const FloatFormat& format,
                                              RoundingMode mode) noexcept {
  const bool stays = mode == RoundingMode::toward_zero || mode == RoundingMode::odd ||
                     mode == (negative ? RoundingMode::up : RoundingMode::down);
  return {stays ? largest(negative, format) : beyond_largest(negative, format),
          kInexact | kOverflow};
}

/// Returns a result of `kept` units of 2^quantum below the smallest normal value. It is tiny under
/// both definitions of tininess.
HS_HD constexpr Rounded<float> round_subnormal(bool negative, uint32_t kept, int quantum,
                                               bool inexact, const FloatFormat& format) noexcept {
  if (kept == 0 || format.flush_out) {
    return {signed_zero(negative, format), kInexact | kUnderflow | kFlushed};
  }
  const int flags = kSubnormal | (inexact ? kInexact | kUnderflow : kExact);
  return {compose(negative, kept, quantum), static_cast<uint8_t>(flags)};
}

/// Rounds. All other functions end here. Parameters are passed by value, because it is a call on
/// devices.
HS_HD HS_SELDOM constexpr Rounded<float> round_unpacked(Unpacked exact, FloatFormat format,
                                                        Rounding rounding) noexcept {
  const Unpacked x = normalised(exact);
  const int m = format.mantissa_bits;
  const int min_exponent = format.min_exponent();
  const int exponent = x.exponent + 63;  // 2^exponent <= |x| < 2^(exponent + 1)
  // The result is a multiple of 2^quantum.
  const int quantum = (exponent > min_exponent ? exponent : min_exponent) - m;
  const Cut parts = cut(x.significand, x.sticky, quantum - x.exponent);
  const bool inexact = (parts.fraction | (parts.more ? 1u : 0u)) != 0;
  const uint32_t kept = static_cast<uint32_t>(round_cut(parts, x.negative, rounding));

  bool tiny = exponent < min_exponent;
  if (exponent == min_exponent - 1 && inexact && rounding.tininess == Tininess::after_rounding) {
    // With one more exponent, would it round up to the smallest normal number?
    const Cut finer = cut(x.significand, x.sticky, 63 - m);
    tiny = round_cut(finer, x.negative, rounding) >> (m + 1) == 0;
  }
  const uint32_t implicit = uint32_t{1} << m;
  if (kept < implicit) return round_subnormal(x.negative, kept, quantum, inexact, format);

  const bool carried = kept >> m >= 2;  // to the next power of two
  const int top = quantum + m + (carried ? 1 : 0);
  const int max_exponent = format.max_exponent();
  if (top > max_exponent || (top == max_exponent && !carried && kept > format.max_significand())) {
    return round_overflow(x.negative, format, rounding.mode);
  }
  const int flags = (inexact ? kInexact : 0) | (inexact && tiny ? kUnderflow : 0);
  return {compose(x.negative, kept, quantum), static_cast<uint8_t>(flags)};
}

/// For sources of any width: zeros, infinities and NaNs go their own ways.
template <class Bits, int kMantissa>
HS_HD constexpr Rounded<float> round_bits(Bits bits, const FloatFormat& format,
                                          const Rounding& rounding) noexcept {
  constexpr int kSignPlace = static_cast<int>(sizeof(Bits)) * 8 - 1;
  constexpr Bits kMagnitude = ~(Bits{1} << kSignPlace);
  constexpr Bits kInfinity = kMagnitude & ~((Bits{1} << kMantissa) - 1);
  const bool negative = bits >> kSignPlace != 0;
  const Bits magnitude = bits & kMagnitude;
  if (magnitude < kInfinity && magnitude != 0) {
    return round_unpacked(unpack(bits), format, rounding);
  }
  if (magnitude == 0) return {signed_zero(negative, format), kExact};
  if (magnitude == kInfinity) return round_infinity(negative, format);
  const Bits payload = (magnitude & ~kInfinity) >> (kMantissa - 23);
  return round_nan(static_cast<uint32_t>(payload) | (negative ? kSignBit : 0u), format);
}

}  // namespace detail

/// Rounds to `format`. Total: every input, NaN included, has a defined result.
HS_HD constexpr Rounded<float> round_to_format(float x, const FloatFormat& format,
                                               const Rounding& rounding) noexcept {
  return detail::round_bits<uint32_t, 23>(std::bit_cast<uint32_t>(x), format, rounding);
}

/// Rounds a double, with a single rounding. The result is a value of `format`.
HS_HD constexpr Rounded<double> round_to_format(double x, const FloatFormat& format,
                                                const Rounding& rounding) noexcept {
  const Rounded<float> result =
      detail::round_bits<uint64_t, 52>(std::bit_cast<uint64_t>(x), format, rounding);
  return {static_cast<double>(result.value), result.flags};
}

/// Rounds to nearest, ties to even, with tininess after rounding: the rounding of the tap and of
/// every kernel.
HS_HD constexpr Rounded<float> round_to_format(float x, const FloatFormat& format) noexcept {
  return round_to_format(x, format, Rounding{});
}
HS_HD constexpr Rounded<double> round_to_format(double x, const FloatFormat& format) noexcept {
  return round_to_format(x, format, Rounding{});
}

/// Returns an operand of arithmetic as `format` reads it: with flush_in, subnormal values become
/// zeros.
HS_HD constexpr float read_operand(float x, const FloatFormat& format) noexcept {
  if (!format.flush_in) return x;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~detail::kSignBit;
  const float smallest = detail::compose(false, 1, format.min_exponent());
  if (magnitude == 0 || magnitude >= std::bit_cast<uint32_t>(smallest)) return x;
  return detail::signed_zero((bits & detail::kSignBit) != 0, format);
}

}  // namespace halfscope
