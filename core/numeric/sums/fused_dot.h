// SPDX-License-Identifier: MIT
// fused_dot: how a tensor core computes one block of products, in integer arithmetic. With raw
// exponents E (subnormals not normalised, product significands in [1, 4) not renormalised), Emax
// the largest of the products' and of c's, and q = 2^(Emax - F):
//   D = rho(q * (sum of trunc(a_k * b_k / q) + trunc(c / q))), trunc towards zero, term by term.
// Xie et al. arXiv:2511.10909 ("truncated fused dot-product-add"); Khattak and Mikaitis
// arXiv:2512.07004. Bit for bit equal to V100, A100, Ada, H100 and B200 on published vectors.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"

namespace halfscope {

/// rho, the last step of a block: converts the exact sum to the accumulator's format.
enum class BlockOutput : uint8_t {
  rz_fp32,   ///< 24 significant bits, towards zero
  rz_e8m13,  ///< 14 significant bits, towards zero, in an fp32 register (fp8 on Ada and Hopper)
  rne_fp16,  ///< fp16, nearest even, one rounding of the exact sum
};

/// Effect of zero products and a zero c on Emax. It matters only if every other term is tiny; the
/// sources disagree (grade C).
enum class ZeroRule : uint8_t {
  zero_terms,  ///< a zero counts as a term with exponent `zero_exponent` (arXiv:2511.10909)
  floor,       ///< Emax is at least `zero_exponent` (arXiv:2512.07004)
  ignored,     ///< zeros do not count
};

struct FusedDot {
  int products = 16;       ///< G: products per block, at most 64
  int fraction_bits = 25;  ///< F: number of bits kept below 2^Emax, 0..38
  BlockOutput output = BlockOutput::rz_fp32;
  ZeroRule zero_rule = ZeroRule::zero_terms;
  int zero_exponent = -133;
  /// A zero sum is -0 if every term is negative (or -0), otherwise +0 (grade C).
  bool negative_zero = true;

  friend constexpr bool operator==(const FusedDot&, const FusedDot&) = default;
};

inline constexpr int kMaxBlockProducts = 64;
/// The NaN of tensor cores, 0x7FFFFFFF, and that of fp16 accumulators, 0x7FFF, widened to fp32.
inline constexpr float kTensorCoreNan = std::bit_cast<float>(0x7FFFFFFFu);
inline constexpr float kTensorCoreNan16 = std::bit_cast<float>(0x7FFFE000u);

HS_HD constexpr float tensor_core_nan(BlockOutput output) noexcept {
  return output == BlockOutput::rne_fp16 ? kTensorCoreNan16 : kTensorCoreNan;
}

namespace detail {

inline constexpr uint32_t kFloatSign = 0x80000000u, kFloatInfinity = 0x7F800000u;
inline constexpr int kNoExponent = -100000;  ///< Emax of a block of zeros

/// A finite magnitude, significand * 2^(exponent - 23), with the format's raw exponent.
struct RawFloat {
  int exponent;
  uint32_t significand;
};

HS_HD constexpr RawFloat raw_float(uint32_t bits, int min_exponent) noexcept {
  const uint32_t mantissa = bits & 0x7FFFFFu;
  const int biased = static_cast<int>(bits >> 23 & 0xFFu);
  const int exponent = (biased == 0 ? 1 : biased) - 127;
  const uint32_t significand = biased == 0 ? mantissa : mantissa | 0x800000u;
  const int below = min_exponent - exponent;  // > 0: a subnormal of the narrow format
  if (below <= 0) return {exponent, significand};
  return {min_exponent, below < 24 ? significand >> below : 0};
}

/// NaNs and infinities among the terms; they alone determine the result.
struct Specials {
  bool nan = false, positive = false, negative = false;

  HS_HD constexpr void add_infinity(bool is_negative) noexcept {
    (is_negative ? negative : positive) = true;
  }
  HS_HD constexpr void add(uint32_t bits) noexcept {
    if ((bits & ~kFloatSign) > kFloatInfinity) nan = true;
    if ((bits & ~kFloatSign) == kFloatInfinity) add_infinity((bits & kFloatSign) != 0);
  }
  /// Infinity times zero is NaN, even next to other infinities.
  HS_HD constexpr void add_product(uint32_t a, uint32_t b) noexcept {
    const uint32_t a_size = a & ~kFloatSign, b_size = b & ~kFloatSign;
    if (a_size > kFloatInfinity || b_size > kFloatInfinity) {
      nan = true;
    } else if (a_size == kFloatInfinity || b_size == kFloatInfinity) {
      if (a_size == 0 || b_size == 0) nan = true;
      add_infinity(((a ^ b) & kFloatSign) != 0);
    }
  }
  HS_HD constexpr bool any() const noexcept { return nan || positive || negative; }
  HS_HD constexpr float result(BlockOutput output) const noexcept {
    if (nan || (positive && negative)) return tensor_core_nan(output);
    return std::bit_cast<float>(negative ? kFloatSign | kFloatInfinity : kFloatInfinity);
  }
};

/// Returns rho(sum * 2^exponent).
HS_HD constexpr float round_block(int64_t sum, int exponent, BlockOutput output,
                                  bool negative_if_zero) noexcept {
  const bool negative = sum < 0 || (sum == 0 && negative_if_zero);
  const uint32_t sign = negative ? kFloatSign : 0;
  uint64_t size = sum < 0 ? uint64_t{0} - static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  if (size == 0) return std::bit_cast<float>(sign);

  const bool to_fp16 = output == BlockOutput::rne_fp16;
  const int mantissa_bits = to_fp16 ? 10 : output == BlockOutput::rz_e8m13 ? 13 : 23;
  const int min_exponent = to_fp16 ? -14 : -126;
  const int top = 63 - leading_zeros(size) + exponent;  // floor(log2)
  // Also keeps the shifts below small: the sum has at most 63 bits.
  if (top >= 128) return std::bit_cast<float>(sign | kFloatInfinity);
  const int quantum = (top > min_exponent ? top : min_exponent) - mantissa_bits;
  const int drop = quantum - exponent;
  uint64_t kept = 0;
  if (drop <= 0) {
    kept = size << -drop;  // at most mantissa_bits + 1 bits
  } else if (drop < 64) {
    kept = size >> drop;
    if (to_fp16) {
      const uint64_t half = uint64_t{1} << (drop - 1), rest = size & ((half << 1) - 1);
      if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    }
  }
  // kept has at most 24 bits and 2^-149 <= 2^quantum <= 2^104: the product is exact.
  const double value = static_cast<double>(kept) * FloatFormat::power_of_two(quantum);
  if (to_fp16 && value > kFp16.max_finite()) return std::bit_cast<float>(sign | kFloatInfinity);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(value)));
}

/// Returns Emax under the zero rule; kNoExponent if all terms are zero.
HS_HD constexpr int alignment_exponent(const FusedDot& unit, int largest, bool any_zero) noexcept {
  if (largest == kNoExponent || unit.zero_rule == ZeroRule::ignored) return largest;
  if (unit.zero_rule == ZeroRule::zero_terms && !any_zero) return largest;
  return largest > unit.zero_exponent ? largest : unit.zero_exponent;
}

/// Returns magnitude >> shift; bits beyond the word are lost, as in the hardware's aligner.
HS_HD constexpr int64_t aligned(uint64_t magnitude, int shift, bool negative) noexcept {
  const uint64_t kept = shift < 64 ? magnitude >> shift : 0;
  return negative ? -static_cast<int64_t>(kept) : static_cast<int64_t>(kept);
}

/// Returns trunc(c / q) with q = 2^(top - F).
HS_HD constexpr int64_t aligned_c(const FusedDot& unit, uint32_t bits, RawFloat c,
                                  int top) noexcept {
  const uint64_t wide = uint64_t{c.significand} << unit.fraction_bits;
  return aligned(wide, 23 + top - c.exponent, (bits & kFloatSign) != 0);
}

}  // namespace detail

/// Computes one block: `count` products, at most unit.products, and c. Operands are values of their
/// formats, c is a value of the accumulator's (fp16 for rne_fp16, otherwise fp32). Every product is
/// multiplied by 2^scale_exponent (block scales of mxf8f6f4). Total: all inputs have a defined
/// result; bits of an operand below its format's grid are ignored.
HS_HD constexpr float fused_dot(const FusedDot& unit, const FloatFormat& a_format,
                                const FloatFormat& b_format, const float* a, const float* b,
                                int count, float c, int scale_exponent = 0) noexcept {
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  const int c_min = unit.output == BlockOutput::rne_fp16 ? -14 : -126;
  detail::Specials specials;
  specials.add(c_bits);
  const detail::RawFloat c_raw = detail::raw_float(c_bits, c_min);
  int largest = c_raw.significand != 0 ? c_raw.exponent : detail::kNoExponent;
  bool any_zero = c_raw.significand == 0;
  bool all_negative = (c_bits & detail::kFloatSign) != 0;
  uint64_t magnitude[kMaxBlockProducts] = {};
  int exponent[kMaxBlockProducts] = {};
  bool negative[kMaxBlockProducts] = {};
  const int products = count < kMaxBlockProducts ? count : kMaxBlockProducts;
  for (int k = 0; k < products; ++k) {
    const uint32_t a_bits = std::bit_cast<uint32_t>(a[k]), b_bits = std::bit_cast<uint32_t>(b[k]);
    specials.add_product(a_bits, b_bits);
    const detail::RawFloat x = detail::raw_float(a_bits, a_format.min_exponent());
    const detail::RawFloat y = detail::raw_float(b_bits, b_format.min_exponent());
    magnitude[k] = uint64_t{x.significand} * y.significand;  // 46 fraction bits
    exponent[k] = x.exponent + y.exponent + scale_exponent;
    negative[k] = ((a_bits ^ b_bits) & detail::kFloatSign) != 0;
    all_negative = all_negative && negative[k];
    if (magnitude[k] == 0) {
      any_zero = true;
    } else if (exponent[k] > largest) {
      largest = exponent[k];
    }
  }
  if (specials.any()) return specials.result(unit.output);

  const int top = detail::alignment_exponent(unit, largest, any_zero);
  if (top == detail::kNoExponent) {
    return std::bit_cast<float>(all_negative && unit.negative_zero ? detail::kFloatSign : 0u);
  }
  int64_t sum = detail::aligned_c(unit, c_bits, c_raw, top);
  for (int k = 0; k < products; ++k) {
    if (magnitude[k] == 0) continue;
    const int shift = 46 - unit.fraction_bits + top - exponent[k];
    sum += detail::aligned(magnitude[k], shift, negative[k]);
  }
  return detail::round_block(sum, top - unit.fraction_bits, unit.output,
                             all_negative && unit.negative_zero);
}

/// The products of a block: how many are not zero, and how many of these vanish when they are
/// aligned and cut off.
struct SwampedProducts {
  int products = 0, swamped = 0;
  bool specials = false;  ///< an operand is infinite or NaN: then no product is swamped
};

HS_HD constexpr SwampedProducts swamped_products(const FusedDot& unit, const FloatFormat& a_format,
                                                 const FloatFormat& b_format, const float* a,
                                                 const float* b, int count, float c) noexcept {
  const int c_min = unit.output == BlockOutput::rne_fp16 ? -14 : -126;
  const detail::RawFloat c_raw = detail::raw_float(std::bit_cast<uint32_t>(c), c_min);
  SwampedProducts result;
  int largest = c_raw.significand != 0 ? c_raw.exponent : detail::kNoExponent;
  detail::Specials specials;
  for (int k = 0; k < count; ++k) {
    const uint32_t a_bits = std::bit_cast<uint32_t>(a[k]), b_bits = std::bit_cast<uint32_t>(b[k]);
    specials.add_product(a_bits, b_bits);
    const detail::RawFloat x = detail::raw_float(a_bits, a_format.min_exponent());
    const detail::RawFloat y = detail::raw_float(b_bits, b_format.min_exponent());
    if (x.significand == 0 || y.significand == 0) continue;
    ++result.products;
    if (x.exponent + y.exponent > largest) largest = x.exponent + y.exponent;
  }
  result.specials = specials.any();
  const bool any_zero = c_raw.significand == 0 || result.products < count;
  const int top = detail::alignment_exponent(unit, largest, any_zero);
  for (int k = 0; k < count && !result.specials; ++k) {
    const detail::RawFloat x =
        detail::raw_float(std::bit_cast<uint32_t>(a[k]), a_format.min_exponent());
    const detail::RawFloat y =
        detail::raw_float(std::bit_cast<uint32_t>(b[k]), b_format.min_exponent());
    const uint64_t magnitude = uint64_t{x.significand} * y.significand;
    const int shift = 46 - unit.fraction_bits + top - x.exponent - y.exponent;
    result.swamped += magnitude != 0 && detail::aligned(magnitude, shift, false) == 0 ? 1 : 0;
  }
  return result;
}

/// Format of the scales of mxf4 and nvf4: a power of two (ue8m0), or an unsigned e4m3.
enum class ScaleFormat : uint8_t { ue8m0, ue4m3 };

/// Computes one block of mxf4 or nvf4: groups of 16 products of e2m1 values are summed exactly,
/// scaled, and aligned by the exponents of their scales only (grade B). `a_scales` and `b_scales`
/// contain one value per group; the sign of a ue4m3 scale is ignored, because the format has none.
HS_HD constexpr float grouped_dot(const FusedDot& unit, ScaleFormat scales, const float* a,
                                  const float* b, int count, const float* a_scales,
                                  const float* b_scales, float c) noexcept {
  constexpr int kGroup = 16, kGroups = kMaxBlockProducts / kGroup;
  const int scale_min = scales == ScaleFormat::ue4m3 ? kE4m3fn.min_exponent() : -126;
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  detail::Specials specials;
  specials.add(c_bits);
  const detail::RawFloat c_raw = detail::raw_float(c_bits, -126);
  int largest = c_raw.significand != 0 ? c_raw.exponent : detail::kNoExponent;
  bool any_zero = c_raw.significand == 0;
  bool all_negative = (c_bits & detail::kFloatSign) != 0;
  uint64_t magnitude[kGroups] = {};
  int exponent[kGroups] = {};
  bool negative[kGroups] = {};
  const int products = count < kMaxBlockProducts ? count : kMaxBlockProducts;
  for (int group = 0; group * kGroup < products; ++group) {
    int quarters = 0;  // the group's sum: products of e2m1 values are multiples of 1/4
    bool zero = true;
    for (int k = group * kGroup; k < products && k < (group + 1) * kGroup; ++k) {
      const uint32_t a_bits = std::bit_cast<uint32_t>(a[k]), b_bits = std::bit_cast<uint32_t>(b[k]);
      specials.add_product(a_bits, b_bits);
      // |x| <= 6 has exponents of at most 2; the mask keeps other values from overflowing.
      const detail::RawFloat x = detail::raw_float(a_bits, 2), y = detail::raw_float(b_bits, 2);
      const int x_halves = static_cast<int>(x.significand >> 20 & 0xFu);
      const int y_halves = static_cast<int>(y.significand >> 20 & 0xFu);
      const bool minus = ((a_bits ^ b_bits) & detail::kFloatSign) != 0;
      quarters += minus ? -x_halves * y_halves : x_halves * y_halves;
      zero = zero && x_halves * y_halves == 0;
      all_negative = all_negative && minus;
    }
    const uint32_t u = std::bit_cast<uint32_t>(a_scales[group]) & ~detail::kFloatSign;
    const uint32_t v = std::bit_cast<uint32_t>(b_scales[group]) & ~detail::kFloatSign;
    if (u >= detail::kFloatInfinity || v >= detail::kFloatInfinity) specials.nan = true;
    detail::RawFloat x = detail::raw_float(u, scale_min), y = detail::raw_float(v, scale_min);
    if (scales == ScaleFormat::ue8m0) {  // 2^-127 is a normal number of ue8m0
      if (x.significand == 0x400000u) x = {-127, 0x800000u};
      if (y.significand == 0x400000u) y = {-127, 0x800000u};
    }
    // 2 fraction bits of the sum, 3 of each scale.
    const uint64_t size = static_cast<uint64_t>(quarters < 0 ? -quarters : quarters);
    magnitude[group] = size * (x.significand >> 20) * (y.significand >> 20);
    exponent[group] = x.exponent + y.exponent;
    negative[group] = quarters < 0;
    if (zero || x.significand == 0 || y.significand == 0) {
      any_zero = true;
    } else if (exponent[group] > largest) {  // also if the products cancel
      largest = exponent[group];
    }
  }
  if (specials.any()) return specials.result(unit.output);

  const int top = detail::alignment_exponent(unit, largest, any_zero);
  if (top == detail::kNoExponent) {
    return std::bit_cast<float>(all_negative && unit.negative_zero ? detail::kFloatSign : 0u);
  }
  int64_t sum = detail::aligned_c(unit, c_bits, c_raw, top);
  for (int group = 0; group < kGroups; ++group) {
    if (magnitude[group] == 0) continue;
    sum += detail::aligned(magnitude[group] << unit.fraction_bits, 8 + top - exponent[group],
                           negative[group]);
  }
  return detail::round_block(sum, top - unit.fraction_bits, unit.output,
                             all_negative && unit.negative_zero);
}

}  // namespace halfscope
