// SPDX-License-Identifier: MIT
// UE8M0, the scale of OCP MX 1.0 (5.4.1): 8 bits c mean 2^(c - 127), 0xff means NaN. It has no
// sign, no zero and no infinity, so it is not a FloatFormat.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/round.h"

namespace halfscope {

inline constexpr uint8_t kUe8m0Nan = 0xff;

/// Rounding of a magnitude between two powers of two. OCP MX leaves it open; its example conversion
/// (6.3) truncates, PTX has cvt.rz and cvt.rp.
enum class Ue8m0Rounding : uint8_t {
  toward_zero,
  up,       ///< to the larger power, so that no scaled value overflows
  nearest,  ///< to the nearer one as a number; halfway (1.5 * 2^e) to the larger
};

HS_HD constexpr float decode_ue8m0(uint8_t code) noexcept {
  if (code == kUe8m0Nan) return std::bit_cast<float>(0x7fc00000u);
  return detail::compose(false, 1, int{code} - 127);
}

/// Returns the code for |x|. NaN gives NaN. Values above 2^127, including infinity, give 2^127, as
/// with .satfinite in PTX. Values below 2^-127, including zero, give 2^-127.
HS_HD constexpr uint8_t encode_ue8m0(float x, Ue8m0Rounding rounding) noexcept {
  const uint32_t magnitude = std::bit_cast<uint32_t>(x) & ~detail::kSignBit;
  if (magnitude > detail::kInfinityBits) return kUe8m0Nan;
  if (magnitude == detail::kInfinityBits) return kUe8m0Nan - 1;
  uint32_t code = magnitude >> 23;
  const uint32_t mantissa = magnitude & 0x007fffffu;
  // Below 2^-126 (code 0) the leading one is no longer implicit: 2^-127 is mantissa 0x400000.
  const uint32_t above = code > 0 ? 0u : 0x00400000u;
  const uint32_t half_way = code > 0 ? 0x00400000u : 0x00600000u;
  if (rounding == Ue8m0Rounding::up && mantissa > above) ++code;
  if (rounding == Ue8m0Rounding::nearest && mantissa >= half_way) ++code;
  return static_cast<uint8_t>(code < kUe8m0Nan ? code : kUe8m0Nan - 1);
}

}  // namespace halfscope
