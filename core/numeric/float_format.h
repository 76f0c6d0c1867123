// SPDX-License-Identifier: MIT
// FloatFormat: a binary floating-point format as a value, and the table of named formats.
// A finite value is (-1)^s * 2^(E - bias) * (1 + M / 2^m) for 1 <= E, and
// (-1)^s * 2^(1 - bias) * M / 2^m for E = 0 (IEEE 754-2019, 3.4), with m mantissa bits.
// Sources: IEEE 754-2019 (fp16, fp32); OCP OFP8 1.0 (e4m3fn, e5m2).
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/numeric/host_device.h"

namespace halfscope {

/// What the codes with all exponent bits set mean.
enum class Encoding : uint8_t {
  ieee,        ///< infinities and NaNs, as in IEEE 754
  finite_nan,  ///< no infinity; only all-ones is NaN ("fn"), so the top exponent is usable
};

struct FloatFormat {
  int exponent_bits = 8;   ///< 2..8
  int mantissa_bits = 23;  ///< 1..23, without the implicit bit
  int bias = 127;
  Encoding encoding = Encoding::ieee;

  friend constexpr bool operator==(const FloatFormat&, const FloatFormat&) = default;

  /// Unbiased exponent of the smallest normal number.
  HS_HD constexpr int min_exponent() const noexcept { return 1 - bias; }
  /// Unbiased exponent of the largest finite number.
  HS_HD constexpr int max_exponent() const noexcept {
    const int top = (1 << exponent_bits) - 1;
    return (encoding == Encoding::ieee ? top - 1 : top) - bias;
  }
  /// Largest finite value: e.g. 65504 for fp16, 448 for e4m3fn.
  HS_HD constexpr double max_finite() const noexcept {
    // finite_nan gives its all-ones mantissa to NaN, so the largest mantissa is one less.
    const int64_t all_ones = (int64_t{1} << (mantissa_bits + 1)) - 1;
    const int64_t significand = encoding == Encoding::ieee ? all_ones : all_ones - 1;
    return static_cast<double>(significand) * power_of_two(max_exponent() - mantissa_bits);
  }
  HS_HD constexpr double min_normal() const noexcept { return power_of_two(min_exponent()); }
  HS_HD constexpr double min_subnormal() const noexcept {
    return power_of_two(min_exponent() - mantissa_bits);
  }
  HS_HD constexpr bool has_infinity() const noexcept { return encoding == Encoding::ieee; }

  /// Total storage bits, sign included.
  HS_HD constexpr int bits() const noexcept { return 1 + exponent_bits + mantissa_bits; }

  /// True if every value of `other` (infinities included) is a value of this format.
  HS_HD constexpr bool contains(const FloatFormat& other) const noexcept {
    return mantissa_bits >= other.mantissa_bits && max_exponent() >= other.max_exponent() &&
           min_exponent() - mantissa_bits <= other.min_exponent() - other.mantissa_bits &&
           max_finite() >= other.max_finite() && (has_infinity() || !other.has_infinity());
  }

  /// 2^e, exact, for -1022 <= e <= 1023.
  HS_HD static constexpr double power_of_two(int e) noexcept {
    return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52);
  }
};

inline constexpr FloatFormat kFp32{8, 23, 127, Encoding::ieee};
inline constexpr FloatFormat kTf32{8, 10, 127, Encoding::ieee};
inline constexpr FloatFormat kBf16{8, 7, 127, Encoding::ieee};
inline constexpr FloatFormat kFp16{5, 10, 15, Encoding::ieee};
inline constexpr FloatFormat kE4m3fn{4, 3, 7, Encoding::finite_nan};
inline constexpr FloatFormat kE5m2{5, 2, 15, Encoding::ieee};

/// Reads "fp16", "float16", "half", "bf16", "bfloat16", "tf32", "fp32", "float32", "e4m3fn",
/// "e5m2", or "eXmY" (2 <= X <= 8, 1 <= Y <= 23, IEEE encoding, bias 2^(X-1) - 1).
std::optional<FloatFormat> parse_format(std::string_view text);

/// The shortest name that parse_format reads back: "fp16", "bf16", "e4m3fn", "e6m9" ...
std::string format_name(const FloatFormat& format);

}  // namespace halfscope
