// SPDX-License-Identifier: MIT
// Scalar arithmetic in a format: add, sub, mul, div, sqrt, fma, comparison and conversion, each
// one exact operation and one rounding (IEEE 754-2019, 5.4), with flags, in integers only. For
// checks and teaching, on the host and on the device; the fast paths are elsewhere.
// Operands are values of the format in fp32 containers; any other float is taken at its value.
//  - Zero results: x - x is +0, but -0 if rounding is down (6.3).
//  - NaN results: the first NaN operand, quiet, else 0x7fc00000; then what the format makes of it.
//  - kInvalid (7.2): a signalling NaN operand, inf - inf, 0 * inf, 0 / 0, inf / inf, sqrt(x < 0),
//    and fma(0, inf, NaN), which is the third operand (as on Arm and RISC-V).
//  - kDivideByZero (7.3): non-zero finite / 0.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope {
namespace detail {

struct Operand {
  uint32_t bits;

  HS_HD constexpr Operand(float x, const FloatFormat& format) noexcept
      : bits(std::bit_cast<uint32_t>(read_operand(x, format))) {}

  HS_HD constexpr uint32_t magnitude() const noexcept { return bits & ~kSignBit; }
  HS_HD constexpr bool negative() const noexcept { return (bits & kSignBit) != 0; }
  HS_HD constexpr bool zero() const noexcept { return magnitude() == 0; }
  HS_HD constexpr bool infinite() const noexcept { return magnitude() == kInfinityBits; }
  HS_HD constexpr bool finite() const noexcept { return magnitude() < kInfinityBits; }
  HS_HD constexpr bool nan() const noexcept { return magnitude() > kInfinityBits; }
  HS_HD constexpr bool signalling() const noexcept { return nan() && (bits & kQuietBit) == 0; }
};

HS_HD constexpr Rounded<float> with_flags(Rounded<float> result, int flags) noexcept {
  return {result.value, static_cast<uint8_t>(result.flags | flags)};
}

HS_HD constexpr Rounded<float> invalid_operation(const FloatFormat& format) noexcept {
  return with_flags(round_nan(0x7fc00000u, format), kInvalid);
}

/// Returns the first NaN among the operands. At least one operand must be NaN.
HS_HD constexpr Rounded<float> propagate_nan(const Operand& a, const Operand& b, const Operand& c,
                                             const FloatFormat& format) noexcept {
  const bool signalling = a.signalling() || b.signalling() || c.signalling();
  const uint32_t first = a.nan() ? a.bits : b.nan() ? b.bits : c.bits;
  return with_flags(round_nan(first | kQuietBit, format), signalling ? kInvalid : kExact);
}

/// Returns x with the top bit of the significand at 61: room for a carry, and the low bits are
/// zeros.
HS_HD constexpr Unpacked with_headroom(const Unpacked& x) noexcept {
  const int shift = leading_zeros(x.significand) - 2;
  return {x.negative, x.significand << shift, x.exponent - shift, false};
}

/// Returns the sum of two nonzero numbers of at most 48 significant bits each.
HS_HD constexpr Rounded<float> round_sum(const Unpacked& a, const Unpacked& b,
                                         const FloatFormat& format,
                                         const Rounding& rounding) noexcept {
  Unpacked big = with_headroom(a), small = with_headroom(b);
  if (small.exponent > big.exponent ||
      (small.exponent == big.exponent && small.significand > big.significand)) {
    const Unpacked other = big;
    big = small;
    small = other;
  }
  // Bits are only lost from a distance of 14 on, where at most one leading bit can cancel.
  const int distance = big.exponent - small.exponent;
  const uint64_t aligned = distance < 64 ? small.significand >> distance : 0;
  const bool sticky = distance < 64 ? aligned << distance != small.significand : true;
  Unpacked sum = big;
  sum.sticky = sticky;
  if (big.negative == small.negative) {
    sum.significand += aligned;
  } else {
    sum.significand -= aligned + (sticky ? 1 : 0);
    if (sum.significand == 0) {
      return {signed_zero(rounding.mode == RoundingMode::down, format), kExact};
    }
  }
  return round_unpacked(sum, format, rounding);
}

HS_HD constexpr Unpacked product(const Operand& a, const Operand& b) noexcept {
  const Unpacked x = unpack(a.bits), y = unpack(b.bits);
  return {x.negative != y.negative, x.significand * y.significand, x.exponent + y.exponent, false};
}

/// Returns a zero sum; two zeros of the same sign keep it.
HS_HD constexpr float zero_sum(bool a_negative, bool b_negative, const FloatFormat& format,
                               const Rounding& rounding) noexcept {
  const bool down = rounding.mode == RoundingMode::down;
  return signed_zero(a_negative == b_negative ? a_negative : down, format);
}

}  // namespace detail

HS_HD constexpr Rounded<float> add(float a, float b, const FloatFormat& format,
                                   const Rounding& rounding = {}) noexcept {
  const detail::Operand x(a, format), y(b, format);
  if (x.nan() || y.nan()) return detail::propagate_nan(x, y, y, format);
  if (x.infinite() || y.infinite()) {
    if (x.infinite() && y.infinite() && x.negative() != y.negative()) {
      return detail::invalid_operation(format);
    }
    return detail::round_infinity(x.infinite() ? x.negative() : y.negative(), format);
  }
  if (x.zero() && y.zero()) {
    return {detail::zero_sum(x.negative(), y.negative(), format, rounding), kExact};
  }
  if (x.zero() || y.zero()) {
    return detail::round_unpacked(detail::unpack(x.zero() ? y.bits : x.bits), format, rounding);
  }
  return detail::round_sum(detail::unpack(x.bits), detail::unpack(y.bits), format, rounding);
}

HS_HD constexpr Rounded<float> sub(float a, float b, const FloatFormat& format,
                                   const Rounding& rounding = {}) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(b);
  const bool nan = (bits & ~detail::kSignBit) > detail::kInfinityBits;  // keeps its sign
  return add(a, nan ? b : std::bit_cast<float>(bits ^ detail::kSignBit), format, rounding);
}

HS_HD constexpr Rounded<float> mul(float a, float b, const FloatFormat& format,
                                   const Rounding& rounding = {}) noexcept {
  const detail::Operand x(a, format), y(b, format);
  if (x.nan() || y.nan()) return detail::propagate_nan(x, y, y, format);
  const bool negative = x.negative() != y.negative();
  if (x.infinite() || y.infinite()) {
    if (x.zero() || y.zero()) return detail::invalid_operation(format);
    return detail::round_infinity(negative, format);
  }
  if (x.zero() || y.zero()) return {detail::signed_zero(negative, format), kExact};
  return detail::round_unpacked(detail::product(x, y), format, rounding);
}

HS_HD constexpr Rounded<float> div(float a, float b, const FloatFormat& format,
                                   const Rounding& rounding = {}) noexcept {
  const detail::Operand x(a, format), y(b, format);
  if (x.nan() || y.nan()) return detail::propagate_nan(x, y, y, format);
  const bool negative = x.negative() != y.negative();
  if ((x.infinite() && y.infinite()) || (x.zero() && y.zero())) {
    return detail::invalid_operation(format);
  }
  if (x.infinite()) return detail::round_infinity(negative, format);
  if (y.zero()) return detail::with_flags(detail::round_infinity(negative, format), kDivideByZero);
  if (x.zero() || y.infinite()) return {detail::signed_zero(negative, format), kExact};

  const detail::Unpacked n = detail::normalised(detail::unpack(x.bits));
  const detail::Unpacked d = detail::normalised(detail::unpack(y.bits));
  // Significands of 24 bits; the quotient gets 63 or 64, in two steps of long division.
  const uint64_t numerator = n.significand >> 40, denominator = d.significand >> 40;
  const uint64_t high = (numerator << 39) / denominator;
  const uint64_t rest = ((numerator << 39) % denominator) << 24;
  return detail::round_unpacked({.negative = negative,
                                 .significand = high << 24 | rest / denominator,
                                 .exponent = n.exponent - d.exponent - 63,
                                 .sticky = rest % denominator != 0},
                                format, rounding);
}

HS_HD constexpr Rounded<float> sqrt(float a, const FloatFormat& format,
                                    const Rounding& rounding = {}) noexcept {
  const detail::Operand x(a, format);
  if (x.nan()) return detail::propagate_nan(x, x, x, format);
  if (x.zero()) return {detail::signed_zero(x.negative(), format), kExact};
  if (x.negative()) return detail::invalid_operation(format);
  if (x.infinite()) return detail::round_infinity(false, format);

  // Two bits of the radicand give one of the root, as on paper: 26 bits and 90 zeros give 58.
  const detail::Unpacked n = detail::normalised(detail::unpack(x.bits));
  const bool odd = ((n.exponent + 40) & 1) != 0;
  const uint64_t radicand = (n.significand >> 40) << (odd ? 1 : 0);
  const int exponent = n.exponent + 40 - (odd ? 1 : 0);
  uint64_t root = 0, rest = 0;
  for (int pair = 12; pair >= 12 - 57; --pair) {
    rest = rest << 2 | (pair >= 0 ? radicand >> (2 * pair) & 3 : 0);
    const uint64_t trial = root << 2 | 1;
    root <<= 1;
    if (rest >= trial) {
      rest -= trial;
      root |= 1;
    }
  }
  return detail::round_unpacked(
      {.negative = false, .significand = root, .exponent = exponent / 2 - 45, .sticky = rest != 0},
      format, rounding);
}

/// Returns a * b + c with a single rounding.
HS_HD constexpr Rounded<float> fma(float a, float b, float c, const FloatFormat& format,
                                   const Rounding& rounding = {}) noexcept {
  const detail::Operand x(a, format), y(b, format), z(c, format);
  const bool zero_times_infinity = (x.zero() && y.infinite()) || (x.infinite() && y.zero());
  if (x.nan() || y.nan() || z.nan()) {
    return detail::with_flags(detail::propagate_nan(x, y, z, format),
                              zero_times_infinity ? kInvalid : kExact);
  }
  if (zero_times_infinity) return detail::invalid_operation(format);
  const bool negative = x.negative() != y.negative();
  const bool infinite = x.infinite() || y.infinite();
  if (infinite && z.infinite() && negative != z.negative()) {
    return detail::invalid_operation(format);
  }
  if (infinite || z.infinite()) {
    return detail::round_infinity(infinite ? negative : z.negative(), format);
  }
  if (x.zero() || y.zero()) {
    if (z.zero()) return {detail::zero_sum(negative, z.negative(), format, rounding), kExact};
    return detail::round_unpacked(detail::unpack(z.bits), format, rounding);
  }
  if (z.zero()) return detail::round_unpacked(detail::product(x, y), format, rounding);
  return detail::round_sum(detail::product(x, y), detail::unpack(z.bits), format, rounding);
}

/// Converts a value of `from` to `to` (IEEE 754-2019, 5.4.2, formatOf-convertFormat).
HS_HD constexpr Rounded<float> convert(float x, const FloatFormat& from, const FloatFormat& to,
                                       const Rounding& rounding = {}) noexcept {
  return round_to_format(read_operand(x, from), to, rounding);
}

enum class Ordering : uint8_t { less, equal, greater, unordered };

/// Comparison predicates (IEEE 754-2019, 5.11): quiet ones raise kInvalid for signalling NaNs only,
/// signalling ones for every NaN.
enum class Predicate : uint8_t { quiet, signalling };

HS_HD constexpr Rounded<Ordering> compare(float a, float b, const FloatFormat& format,
                                          Predicate predicate = Predicate::quiet) noexcept {
  const detail::Operand x(a, format), y(b, format);
  if (x.nan() || y.nan()) {
    const bool invalid = predicate == Predicate::signalling || x.signalling() || y.signalling();
    return {Ordering::unordered, invalid ? kInvalid : kExact};
  }
  const int64_t left = x.negative() ? -int64_t{x.magnitude()} : int64_t{x.magnitude()};
  const int64_t right = y.negative() ? -int64_t{y.magnitude()} : int64_t{y.magnitude()};
  if (left == right) return {Ordering::equal, kExact};  // +0 and -0 are
  return {left < right ? Ordering::less : Ordering::greater, kExact};
}

/// The usual operators: == is quiet, the others signal (IEEE 754-2019, table 5.1 and 5.2).
HS_HD constexpr Rounded<bool> equal(float a, float b, const FloatFormat& format) noexcept {
  const Rounded<Ordering> order = compare(a, b, format, Predicate::quiet);
  return {order.value == Ordering::equal, order.flags};
}
HS_HD constexpr Rounded<bool> less(float a, float b, const FloatFormat& format) noexcept {
  const Rounded<Ordering> order = compare(a, b, format, Predicate::signalling);
  return {order.value == Ordering::less, order.flags};
}
HS_HD constexpr Rounded<bool> less_equal(float a, float b, const FloatFormat& format) noexcept {
  const Rounded<Ordering> order = compare(a, b, format, Predicate::signalling);
  return {order.value == Ordering::less || order.value == Ordering::equal, order.flags};
}
HS_HD constexpr Rounded<bool> unordered(float a, float b, const FloatFormat& format) noexcept {
  const Rounded<Ordering> order = compare(a, b, format, Predicate::quiet);
  return {order.value == Ordering::unordered, order.flags};
}

}  // namespace halfscope
