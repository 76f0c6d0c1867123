// SPDX-License-Identifier: MIT
// FloatFormat: a binary floating-point format as a value, and the grammar of format names.
// A finite value is (-1)^s * 2^(E - bias) * (1 + M / 2^m) for 1 <= E, and
// (-1)^s * 2^(1 - bias) * M / 2^m for E = 0 (IEEE 754-2019, 3.4), with m mantissa bits.
// Values are stored in fp32 containers, so fp32 can represent every value of a valid format.
// Sources: IEEE 754-2019 (fp16, fp32); OCP OFP8 1.0 (e4m3fn, e5m2); OCP MX 1.0 (e3m2, e2m3, e2m1);
// Noune et al., arXiv:2206.02915 (e4m3fnuz, e5m2fnuz); ml_dtypes (e4m3b11fnuz, and aliases).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/host_device.h"

namespace halfscope {

/// Meaning of the codes that are not ordinary numbers.
enum class Encoding : uint8_t {
  ieee,        ///< the top exponent is infinity and NaN, as in IEEE 754
  finite_nan,  ///< no infinity; only all-ones is NaN ("fn"), so the top exponent is usable
  fnuz,        ///< no infinity, no negative zero: its code is the one NaN
  finite,      ///< numbers only; overflow always saturates
};

struct FloatFormat {
  int exponent_bits = 8;   ///< 2..8; 1 with encoding finite: evenly spaced, as integers are
  int mantissa_bits = 23;  ///< 0..23, without the implicit bit
  int bias = 127;
  Encoding encoding = Encoding::ieee;
  bool saturate = false;   ///< overflow and infinity become the largest finite value
  bool flush_in = false;   ///< operands of arithmetic below the smallest normal count as zero
  bool flush_out = false;  ///< results below the smallest normal become zero

  friend constexpr bool operator==(const FloatFormat&, const FloatFormat&) = default;

  /// Returns the unbiased exponent of the smallest normal number.
  HS_HD constexpr int min_exponent() const noexcept { return 1 - bias; }
  /// Returns the unbiased exponent of the largest finite number.
  HS_HD constexpr int max_exponent() const noexcept {
    const int top = (1 << exponent_bits) - 1;
    // Without mantissa bits, the NaN of finite_nan occupies the whole top exponent.
    const bool reserved =
        encoding == Encoding::ieee || (encoding == Encoding::finite_nan && mantissa_bits == 0);
    return (reserved ? top - 1 : top) - bias;
  }
  /// Returns the significand of the largest finite number, an integer of mantissa_bits + 1 bits.
  HS_HD constexpr uint32_t max_significand() const noexcept {
    const uint32_t all_ones = (uint32_t{2} << mantissa_bits) - 1;
    return encoding == Encoding::finite_nan && mantissa_bits > 0 ? all_ones - 1 : all_ones;
  }
  /// Returns the largest finite value: e.g. 65504 for fp16, 448 for e4m3fn.
  HS_HD constexpr double max_finite() const noexcept {
    return static_cast<double>(max_significand()) * power_of_two(max_exponent() - mantissa_bits);
  }
  HS_HD constexpr double min_normal() const noexcept { return power_of_two(min_exponent()); }
  /// Returns the smallest positive value; min_normal() if there are no mantissa bits.
  HS_HD constexpr double min_subnormal() const noexcept {
    return power_of_two(min_exponent() - mantissa_bits);
  }
  HS_HD constexpr bool has_infinity() const noexcept { return encoding == Encoding::ieee; }
  /// Returns whether the format has NaN. IEEE codes of NaN need a mantissa: without one, the top
  /// exponent only encodes infinity.
  HS_HD constexpr bool has_nan() const noexcept {
    return encoding == Encoding::ieee ? mantissa_bits > 0 : encoding != Encoding::finite;
  }
  HS_HD constexpr bool has_negative_zero() const noexcept { return encoding != Encoding::fnuz; }
  /// Returns whether results beyond the largest finite value become that value.
  HS_HD constexpr bool saturates() const noexcept {
    return saturate || encoding == Encoding::finite;
  }

  /// Returns the number of storage bits, including the sign.
  HS_HD constexpr int bits() const noexcept { return 1 + exponent_bits + mantissa_bits; }

  /// Returns whether all values are equally far apart, as integers are.
  HS_HD constexpr bool evenly_spaced() const noexcept { return exponent_bits == 1; }

  /// Returns the format without its options. The codes are the same; encode and decode use it.
  HS_HD constexpr FloatFormat without_options() const noexcept {
    return {exponent_bits, mantissa_bits, bias, encoding};
  }

  /// Returns whether rounding to this format changes no value that `other` can deliver, including
  /// infinities, NaN and the sign of zero.
  HS_HD constexpr bool contains(const FloatFormat& other) const noexcept {
    const bool others_infinity = other.has_infinity() && !other.saturates();
    const double smallest = other.flush_out ? other.min_normal() : other.min_subnormal();
    return mantissa_bits >= other.mantissa_bits && max_exponent() >= other.max_exponent() &&
           min_exponent() - mantissa_bits <= other.min_exponent() - other.mantissa_bits &&
           max_finite() >= other.max_finite() &&
           (!others_infinity || (has_infinity() && !saturates())) &&
           (has_nan() || !other.has_nan()) && (has_negative_zero() || !other.has_negative_zero()) &&
           (!flush_out || smallest >= min_normal());
  }

  /// Returns 2^e exactly, for -1022 <= e <= 1023.
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
inline constexpr FloatFormat kE4m3fnuz{4, 3, 8, Encoding::fnuz};
inline constexpr FloatFormat kE5m2fnuz{5, 2, 16, Encoding::fnuz};
inline constexpr FloatFormat kE4m3b11fnuz{4, 3, 11, Encoding::fnuz};
inline constexpr FloatFormat kE3m2{3, 2, 3, Encoding::finite};
inline constexpr FloatFormat kE2m3{2, 3, 1, Encoding::finite};
inline constexpr FloatFormat kE2m1{2, 1, 1, Encoding::finite};
/// Integers from -127 to 127 and from -7 to 7: symmetric, without -128 and -8, as codes of weights
/// are in TensorFlow Lite (Jacob et al., arXiv:1712.05877).
inline constexpr FloatFormat kInt8Format{1, 6, -5, Encoding::finite};
inline constexpr FloatFormat kInt4Format{1, 2, -1, Encoding::finite};

/// A format with a name. Plans, options, their completion and hints, ONNX files, the viewer and the
/// float lab list formats from this one table.
struct NamedFormat {
  std::string_view name;  ///< returned by format_name
  FloatFormat format;
  std::array<std::string_view, 3> aliases{};    ///< also accepted by parse_format
  std::array<std::string_view, 3> elsewhere{};  ///< ambiguous names used by other programs
  int onnx_type = 0;      ///< number in ONNX's TensorProto.DataType; 0 if it has none
  bool compared = false;  ///< the viewer shows, for each tensor, the effect of this format
};
/// Returns the named formats, from most to fewest bits.
std::span<const NamedFormat> named_formats() noexcept;
/// Returns the names of named_formats().
std::vector<std::string> format_names();

/// Biases for which fp32, including its subnormals, represents every value of a format. Empty
/// (first > last) for e8m23fnuz and similar formats.
struct BiasRange {
  int first, last;
};
HS_HD constexpr BiasRange bias_range(int exponent_bits, int mantissa_bits,
                                     Encoding encoding) noexcept {
  const FloatFormat unbiased{exponent_bits, mantissa_bits, 0, encoding};
  return {unbiased.max_exponent() - 127, 150 - mantissa_bits};
}

/// Returns whether the bit counts are in range and fp32 represents every value. Everything else in
/// core/numeric requires valid formats.
HS_HD constexpr bool is_valid(const FloatFormat& format) noexcept {
  if (format.exponent_bits < 1 || format.exponent_bits > 8) return false;
  if (format.mantissa_bits < 0 || format.mantissa_bits > 23) return false;
  if (format.encoding > Encoding::finite) return false;
  if (format.exponent_bits == 1 && format.encoding != Encoding::finite) return false;
  const BiasRange range = bias_range(format.exponent_bits, format.mantissa_bits, format.encoding);
  return range.first <= format.bias && format.bias <= range.last;
}

/// Parses a name or alias of named_formats() or eXmY[fn|fnuz|finite|ieee][bBIAS], then any of the
/// options ":sat", ":ftz" (both directions), ":ftz-in", ":ftz-out", each at most once.
///  - the bias may also precede the encoding, as in ml_dtypes' e4m3b11fnuz;
///  - X from 2 to 8, or 1 if finite, Y from 0 to 23; without a suffix ieee, but e3m2, e2m3, e2m1,
///    e1m6 and e1m2 are finite;
///  - the bias is 2^(X-1) - 1 unless given, for fnuz 2^(X-1).
/// Returns nothing for an invalid format.
std::optional<FloatFormat> parse_format(std::string_view text);

/// Returns why parse_format rejects the text, as half a sentence; empty if it accepts it.
std::string format_problem(std::string_view text);

/// Returns the shortest name that parse_format reads back: "fp16", "e4m3fn", "e6m9", "e4m3b5:sat"
/// ...
std::string format_name(const FloatFormat& format);

}  // namespace halfscope
