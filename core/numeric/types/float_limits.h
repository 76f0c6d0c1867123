// SPDX-License-Identifier: MIT
// std::numeric_limits and std::hash of Float<F>, derived from the format. is_iec559 is true only
// for binary16 and binary32: the other formats are not among those of IEEE 754-2019, 3.6, and
// options (saturation, flushing) break its rules.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/types/float_value.h"

namespace halfscope::detail {

/// Returns floor(log10(x)) for x >= 1. fp32's largest value is below 10^39, and all powers are
/// distinguished.
constexpr int floor_log10(double x) {
  int n = 0;
  for (double power = 10; power <= x; power *= 10) ++n;
  return n;
}

/// Returns the smallest n <= 0 with 10^n >= x: ceil(log10(x)) for x <= 1. `10^n >= x` is tested as
/// `1 >= x * 10^-n`, and no power of two except 1 is near a power of ten.
constexpr int ceil_log10(double x) {
  int n = 0;
  for (x *= 10; x <= 1; x *= 10) --n;
  return n;
}

template <FloatFormat F>
constexpr Float<F> from_code(uint32_t code) {
  return Float<F>::from_bits(static_cast<typename Float<F>::Code>(code));
}

}  // namespace halfscope::detail

template <halfscope::FloatFormat F>
struct std::numeric_limits<halfscope::Float<F>> {
 private:
  using T = halfscope::Float<F>;
  static constexpr uint32_t kTopExponent = ((uint32_t{1} << F.exponent_bits) - 1)
                                           << F.mantissa_bits;
  /// log10(2) is a little less than 30103 / 100000.
  static constexpr int decimal_digits(int bits) { return bits * 30103 / 100000; }

 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr bool is_iec559 = F == halfscope::kFp16 || F == halfscope::kFp32;
  static constexpr bool has_infinity = F.has_infinity();
  static constexpr bool has_quiet_NaN = F.has_nan();
  /// One mantissa bit is not enough for a NaN whose first bit is zero.
  static constexpr bool has_signaling_NaN =
      F.encoding == halfscope::Encoding::ieee && F.mantissa_bits >= 2;
  static constexpr std::float_denorm_style has_denorm =
      F.mantissa_bits > 0 && !F.flush_out ? std::denorm_present : std::denorm_absent;
  static constexpr bool has_denorm_loss = false;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
  static constexpr std::float_round_style round_style = std::round_to_nearest;

  static constexpr int radix = 2;
  static constexpr int digits = F.mantissa_bits + 1;
  static constexpr int digits10 = decimal_digits(digits - 1);
  static constexpr int max_digits10 = decimal_digits(digits) + 2;
  static constexpr int min_exponent = F.min_exponent() + 1;  // for a significand below 1, as in C
  static constexpr int max_exponent = F.max_exponent() + 1;
  static constexpr int min_exponent10 = halfscope::detail::ceil_log10(F.min_normal());
  static constexpr int max_exponent10 = halfscope::detail::floor_log10(F.max_finite());

  static constexpr T min() noexcept {
    return halfscope::detail::from_code<F>(uint32_t{1} << F.mantissa_bits);
  }
  static constexpr T max() noexcept {
    const float largest = halfscope::detail::largest(false, F);
    return halfscope::detail::from_code<F>(halfscope::detail::code_of_value(largest, F));
  }
  static constexpr T lowest() noexcept { return -max(); }
  static constexpr T denorm_min() noexcept {
    return has_denorm == std::denorm_present ? halfscope::detail::from_code<F>(1) : min();
  }
  /// Returns 2^-mantissa_bits, if the format can represent it.
  static constexpr T epsilon() noexcept { return rounded(-F.mantissa_bits); }
  /// Returns half a unit in the last place.
  static constexpr T round_error() noexcept { return rounded(-1); }
  /// Returns zero if there is no infinity, as for the built-in types.
  static constexpr T infinity() noexcept {
    return has_infinity ? halfscope::detail::from_code<F>(kTopExponent) : T{};
  }
  static constexpr T quiet_NaN() noexcept {
    if (!has_quiet_NaN) return T{};
    const float nan = halfscope::detail::with_sign(false, 0x7fc00000u);
    return halfscope::detail::from_code<F>(halfscope::detail::code_of_value(nan, F));
  }
  static constexpr T signaling_NaN() noexcept {
    return has_signaling_NaN ? halfscope::detail::from_code<F>(kTopExponent | 1) : T{};
  }

 private:
  static constexpr T rounded(int exponent) {
    const double value = halfscope::FloatFormat::power_of_two(exponent);
    const double result = halfscope::round_to_format(value, F).value;
    return halfscope::detail::from_code<F>(
        halfscope::detail::code_of_value(static_cast<float>(result), F));
  }
};

/// Hashes equal values alike, including -0 and +0. All NaNs hash alike, though none equals another:
/// a set keeps each NaN that is inserted, as it does for float.
template <halfscope::FloatFormat F>
struct std::hash<halfscope::Float<F>> {
  size_t operator()(halfscope::Float<F> x) const noexcept {
    if (isnan(x)) return std::hash<uint32_t>{}(0xffffffffu);
    return std::hash<uint32_t>{}(x == halfscope::Float<F>{} ? 0u : uint32_t{x.bits()});
  }
};
