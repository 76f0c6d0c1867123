// SPDX-License-Identifier: MIT
// Codes of a format: the sign in the top bit, then exponent and mantissa (IEEE 754-2019, 3.4), so
// that codes of one sign count upwards with the values. decode() runs over all 2^bits() of them;
// encode() is its inverse. Options of the format (saturate, flush_*) change no code.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace detail {

/// Returns the code, without the sign, of a non-negative finite value of `format`.
HS_HD constexpr uint32_t magnitude_code(float value, const FloatFormat& format) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & ~kSignBit;
  if (bits == 0) return 0;
  const Unpacked x = normalised(unpack(bits));
  const int m = format.mantissa_bits;
  const int exponent = x.exponent + 63, min_exponent = format.min_exponent();
  if (exponent < min_exponent) {
    const int drop = min_exponent - m - x.exponent;
    return drop < 64 ? static_cast<uint32_t>(x.significand >> drop) : 0;
  }
  const uint32_t significand = static_cast<uint32_t>(x.significand >> (63 - m));
  return (static_cast<uint32_t>(exponent - min_exponent) << m) + significand;
}

}  // namespace detail

/// Returns the value of a code; bits above the format's are ignored. NaNs of an IEEE encoding keep
/// their payload and stay signalling; other NaNs become the quiet NaN, with their sign if they have
/// one.
HS_HD constexpr float decode(uint32_t code, const FloatFormat& format) noexcept {
  const int m = format.mantissa_bits;
  const uint32_t sign_bit = uint32_t{1} << (format.bits() - 1);
  const bool negative = (code & sign_bit) != 0;
  const uint32_t magnitude = code & (sign_bit - 1);
  const uint32_t mantissa = magnitude & ((uint32_t{1} << m) - 1);
  const int exponent = static_cast<int>(magnitude >> m);
  const bool all_ones = magnitude == sign_bit - 1;
  const bool top = exponent == (1 << format.exponent_bits) - 1;
  if (format.encoding == Encoding::ieee && top) {
    return detail::with_sign(negative, detail::kInfinityBits | mantissa << (23 - m));
  }
  const bool nan = format.encoding == Encoding::fnuz
                       ? negative && magnitude == 0
                       : format.encoding == Encoding::finite_nan && all_ones;
  if (nan) {
    const bool signed_nan = negative && format.encoding == Encoding::finite_nan;
    return detail::with_sign(signed_nan, detail::kInfinityBits | detail::kQuietBit);
  }
  if (magnitude == 0) return detail::with_sign(negative, 0);
  const uint32_t significand = mantissa | (exponent > 0 ? uint32_t{1} << m : 0u);
  return detail::compose(negative, significand, (exponent > 1 ? exponent : 1) - format.bias - m);
}

namespace detail {

/// Returns the code of a float that is a value of `format`. NaNs keep the quiet bit and as much
/// payload as fits.
HS_HD constexpr uint32_t code_of_value(float value, const FloatFormat& format) noexcept {
  const int m = format.mantissa_bits;
  const uint32_t sign_bit = uint32_t{1} << (format.bits() - 1);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits & kSignBit) != 0 ? sign_bit : 0;
  const uint32_t magnitude = bits & ~kSignBit;
  if (magnitude < kInfinityBits) {
    return sign | magnitude_code(std::bit_cast<float>(magnitude), format);
  }
  if (format.encoding == Encoding::fnuz) return sign_bit;
  if (format.encoding == Encoding::finite_nan) return sign | (sign_bit - 1);
  const uint32_t top = (uint32_t{1} << format.exponent_bits) - 1;
  return sign | top << m | (magnitude & 0x007fffffu) >> (23 - m);
}

}  // namespace detail

/// Returns the code of a value. Numbers that the format cannot represent are first rounded to
/// nearest even.
HS_HD constexpr uint32_t encode(float value, const FloatFormat& format) noexcept {
  const int m = format.mantissa_bits;
  const uint32_t in = std::bit_cast<uint32_t>(value);
  const bool ieee_nan = format.encoding == Encoding::ieee && m > 0 &&
                        (in & ~detail::kSignBit) > detail::kInfinityBits;
  // A signalling NaN stays one if a payload bit remains to distinguish it from infinity.
  if (ieee_nan && (in & 0x007fffffu) >> (23 - m) != 0) return detail::code_of_value(value, format);
  return detail::code_of_value(round_to_format(value, format.without_options()).value, format);
}

}  // namespace halfscope
