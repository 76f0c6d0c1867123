// SPDX-License-Identifier: MIT
// A float format by definition, for comparison: its values code by code with ldexp, rounding by
// search among them and exact comparison in double. Shares nothing with core/numeric but the
// numbers and options of FloatFormat and the names of modes and flags.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope::testing {

inline constexpr RoundingMode kDeterministicModes[] = {
    RoundingMode::nearest_even, RoundingMode::nearest_away, RoundingMode::toward_zero,
    RoundingMode::up,           RoundingMode::down,         RoundingMode::odd};

class EnumeratedFormat {
 public:
  explicit EnumeratedFormat(const FloatFormat& format) : format_(format) {
    // Codes of finite values are 0 .. finite_codes_ - 1 (sign excluded).
    const int64_t all = int64_t{1} << (format.exponent_bits + format.mantissa_bits);
    const int64_t per_exponent = int64_t{1} << format.mantissa_bits;
    switch (format.encoding) {
      case Encoding::ieee:
        finite_codes_ = all - per_exponent;
        break;
      case Encoding::finite_nan:
        finite_codes_ = all - 1;
        break;
      case Encoding::fnuz:
      case Encoding::finite:
        finite_codes_ = all;
        break;
    }
    if (finite_codes_ > 1 << 17) return;
    for (int64_t code = 0; code <= finite_codes_; ++code) values_.push_back(calculate(code));
  }

  const FloatFormat& format() const { return format_; }
  int64_t finite_codes() const { return finite_codes_; }
  int64_t smallest_normal_code() const { return int64_t{1} << format_.mantissa_bits; }
  double largest() const { return decode(finite_codes_ - 1); }
  double smallest_normal() const { return decode(smallest_normal_code()); }

  /// The value of a code; one past the last finite one is what an unbounded exponent would give.
  double decode(int64_t code) const {
    return values_.empty() ? calculate(code) : values_[static_cast<size_t>(code)];
  }

  /// The point half way between a code and the next; exact, for it needs one bit more.
  double midpoint(int64_t code) const { return (decode(code) + decode(code + 1)) / 2; }

  /// The last code whose value is not above a magnitude; finite_codes() beyond all.
  int64_t code_below(double magnitude) const {
    if (magnitude >= decode(finite_codes_)) return finite_codes_;
    if (!values_.empty()) {
      return std::upper_bound(values_.begin(), values_.end(), magnitude) - values_.begin() - 1;
    }
    int64_t low = 0, high = finite_codes_;
    while (high - low > 1) {  // decode(low) <= magnitude < decode(high)
      const int64_t middle = low + (high - low) / 2;
      (decode(middle) <= magnitude ? low : high) = middle;
    }
    return low;
  }

  /// Rounds x, or any number whose double rounded to odd is x: 53 bits are enough to find its side
  /// of every value and midpoint.
  Rounded<double> round(double x, const Rounding& rounding = {}) const {
    const double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const bool numbers_only = format_.encoding == Encoding::finite;
    const bool no_nan =
        numbers_only || (format_.encoding == Encoding::ieee && format_.mantissa_bits == 0);
    const bool one_nan = format_.encoding == Encoding::fnuz;
    double beyond = format_.encoding == Encoding::ieee ? infinity : nan;
    if (format_.saturate || numbers_only) beyond = largest();
    const double signed_beyond = one_nan && std::isnan(beyond) ? nan : std::copysign(beyond, x);

    if (std::isnan(x) && no_nan) return {beyond, kInvalid};
    if (std::isnan(x)) return {one_nan ? nan : std::copysign(nan, x), kExact};
    if (std::isinf(x)) {
      return {signed_beyond, static_cast<uint8_t>(signed_beyond == x ? 0 : kInexact | kOverflow)};
    }
    const double zero = std::signbit(x) && !one_nan ? -0.0 : 0.0;
    const double magnitude = std::fabs(x);
    if (magnitude == 0) return {zero, kExact};
    const int64_t code = choose(magnitude, std::signbit(x), rounding);
    if (code >= finite_codes_) {
      const bool stays = rounding.mode == RoundingMode::toward_zero ||
                         rounding.mode == RoundingMode::odd ||
                         rounding.mode == (x > 0 ? RoundingMode::down : RoundingMode::up);
      return {stays ? std::copysign(largest(), x) : signed_beyond, kInexact | kOverflow};
    }
    double value = std::copysign(decode(code), x);
    const bool subnormal = code < smallest_normal_code();
    if (subnormal && (code == 0 || format_.flush_out)) value = zero;
    uint8_t flags = value == x ? kExact : kInexact;
    if (value != x && is_tiny(magnitude, std::signbit(x), rounding)) flags |= kUnderflow;
    if (value == 0) flags |= kFlushed;
    if (value != 0 && subnormal) flags |= kSubnormal;
    return {value, flags};
  }

  /// Returns all codes if there are few, otherwise both ends and a sample.
  std::vector<int64_t> sample_codes(int64_t most) const {
    std::vector<int64_t> codes;
    if (finite_codes_ <= most) {
      for (int64_t code = 0; code < finite_codes_; ++code) codes.push_back(code);
      return codes;
    }
    std::mt19937_64 generator(1);
    std::uniform_int_distribution<int64_t> any(0, finite_codes_ - 1);
    for (int64_t i = 0; i < 64; ++i) {
      codes.push_back(i);
      codes.push_back(finite_codes_ - 1 - i);
      codes.push_back(smallest_normal_code() - 32 + i);
    }
    while (static_cast<int64_t>(codes.size()) < most) codes.push_back(any(generator));
    return codes;
  }

 private:
  double calculate(int64_t code) const {
    const int64_t exponent = code >> format_.mantissa_bits;
    const int64_t mantissa = code & ((int64_t{1} << format_.mantissa_bits) - 1);
    const double fraction = std::ldexp(static_cast<double>(mantissa), -format_.mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - format_.bias)
                         : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - format_.bias);
  }

  /// The last digit of a code's significand is even. With one digit (no mantissa bits) that is
  /// zero alone.
  bool even(int64_t code) const { return format_.mantissa_bits == 0 ? code == 0 : code % 2 == 0; }

  /// The code that the mode picks for a magnitude that is not zero.
  int64_t choose(double magnitude, bool negative, const Rounding& rounding) const {
    const int64_t low = code_below(magnitude);
    if (low == finite_codes_ || decode(low) == magnitude) return low;
    const double below = decode(low), above = decode(low + 1);
    const double half_way = (below + above) / 2;
    switch (rounding.mode) {
      case RoundingMode::nearest_even:
        if (magnitude != half_way) return magnitude < half_way ? low : low + 1;
        return even(low) ? low : low + 1;  // IEEE 754-2019, 4.3.1: else the larger one
      case RoundingMode::nearest_away:
        return magnitude < half_way ? low : low + 1;
      case RoundingMode::toward_zero:
        return low;
      case RoundingMode::up:
        return negative ? low : low + 1;
      case RoundingMode::down:
        return negative ? low + 1 : low;
      case RoundingMode::odd:
        return even(low) ? low + 1 : low;
      case RoundingMode::stochastic: {
        const double share = (magnitude - below) / (above - below);  // steps are powers of two
        const double scale = std::ldexp(1.0, rounding.random_bits);
        const double random = std::fmod(static_cast<double>(rounding.random & 0xffffffffu), scale);
        return std::floor(share * scale) + random >= scale ? low + 1 : low;
      }
    }
    return -1;
  }

  bool is_tiny(double magnitude, bool negative, const Rounding& rounding) const {
    if (rounding.tininess == Tininess::before_rounding) return magnitude < smallest_normal();
    if (magnitude >= smallest_normal()) return false;
    if (2 * magnitude < smallest_normal()) return true;
    // The values of the binade below, had it all of them, are halves of those of the lowest one.
    return choose(2 * magnitude, negative, rounding) < 2 * smallest_normal_code();
  }

  FloatFormat format_;
  int64_t finite_codes_ = 0;
  std::vector<double> values_;
};

/// Equal as numbers of a format: same value and sign, or both NaN with the same sign.
template <class T>
bool same_value(T a, double b) {
  if (std::signbit(a) != std::signbit(b)) return false;
  return std::isnan(b) ? std::isnan(a) : static_cast<double>(a) == b;
}

}  // namespace halfscope::testing
