// SPDX-License-Identifier: MIT
// A float format by definition, for comparison: code by code with ldexp, rounding by search and
// exact comparison in double. Shares nothing with core/numeric but the four numbers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/numeric/round.h"

namespace halfscope::testing {

class EnumeratedFormat {
 public:
  explicit EnumeratedFormat(const FloatFormat& format) : format_(format) {
    // Codes of finite values are 0 .. finite_codes_ - 1 (sign excluded).
    const int64_t all = int64_t{1} << (format.exponent_bits + format.mantissa_bits);
    const int64_t per_exponent = int64_t{1} << format.mantissa_bits;
    finite_codes_ = format.encoding == Encoding::ieee ? all - per_exponent : all - 1;
  }

  int64_t finite_codes() const { return finite_codes_; }
  int64_t smallest_normal_code() const { return int64_t{1} << format_.mantissa_bits; }

  /// The value of a code; one past the last finite one is what an unbounded exponent would give.
  double decode(int64_t code) const {
    const int64_t exponent = code >> format_.mantissa_bits;
    const int64_t mantissa = code & ((int64_t{1} << format_.mantissa_bits) - 1);
    const double fraction = std::ldexp(static_cast<double>(mantissa), -format_.mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - format_.bias)
                         : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - format_.bias);
  }

  /// The point half way between a code and the next; exact, for it needs one bit more.
  double midpoint(int64_t code) const { return (decode(code) + decode(code + 1)) / 2; }

  /// Nearest code to |x|, ties to the even one; finite_codes() or more means overflow.
  int64_t nearest_code(double x) const {
    const double magnitude = std::fabs(x);
    int64_t low = 0, high = finite_codes_;
    if (magnitude >= decode(high)) return high;
    while (high - low > 1) {  // decode(low) <= magnitude < decode(high)
      const int64_t middle = low + (high - low) / 2;
      (decode(middle) <= magnitude ? low : high) = middle;
    }
    const double half_way = midpoint(low);
    if (magnitude != half_way) return magnitude < half_way ? low : high;
    return low % 2 == 0 ? low : high;
  }

  Rounded<double> round(double x) const {
    const double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double beyond = format_.encoding == Encoding::ieee ? infinity : nan;
    if (std::isnan(x)) return {std::copysign(nan, x), kExact};
    if (std::isinf(x)) return {std::copysign(beyond, x), kExact};
    const int64_t code = nearest_code(x);
    if (code >= finite_codes_) {
      return {std::copysign(beyond, x), static_cast<uint8_t>(kInexact | kOverflow)};
    }
    const double value = std::copysign(decode(code), x);
    uint8_t flags = value == x ? kExact : kInexact;
    if (code == 0 && x != 0.0) flags |= kUnderflow;
    if (code > 0 && code < smallest_normal_code()) flags |= kSubnormal;
    return {value, flags};
  }

  /// All codes if there are few, else the ends and a sample.
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
  FloatFormat format_;
  int64_t finite_codes_;
};

/// Equal as numbers of a format: same value and sign, or both NaN with the same sign.
template <class T>
bool same_value(T a, double b) {
  if (std::signbit(a) != std::signbit(b)) return false;
  return std::isnan(b) ? std::isnan(a) : static_cast<double>(a) == b;
}

}  // namespace halfscope::testing
