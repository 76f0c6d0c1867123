// SPDX-License-Identifier: MIT
// The vector work under measure.h, one implementation per instruction set: plain structs and
// functions on raw memory, so that sources compiled for one instruction set need no library
// header. measure.cpp adds what is rare (non-finite and fp32-subnormal inputs) in portable code.
#pragma once

#include <cstdint>

namespace halfscope::measure_detail {

/// Most elements survey() and round_count() take: kSumChunk.
inline constexpr int64_t kChunk = 4096;

/// How a format is rounded to.
enum class RoundKind : int {
  copy,       ///< fp32: only signalling NaNs change
  half,       ///< fp16: the processor's conversion, or as `magic`
  carry,      ///< fp32's exponents, fewer mantissa bits: integer add with carry into the exponent
  magic,      ///< fewer exponents, at most 21 mantissa bits: (x + M) - M in fp32
  reference,  ///< anything else: round_to_format, one by one
};

/// Constants of one format; "bits" are those of an fp32 number.
struct RoundSpec {
  RoundKind kind;
  uint32_t last_bit;       ///< lowest mantissa bit that is kept
  uint32_t kept;           ///< all bits that are kept: sign, exponent, upper mantissa
  uint32_t exponent_low;   ///< bits of the smallest normal number
  uint32_t exponent_high;  ///< bits of the power of two beyond the largest finite value
  float magic;             ///< M = magic * 2^exponent; 1.5 * 2^(23 - mantissa_bits)
  float max_finite;
  uint32_t overflow;       ///< bits of what a larger value becomes: infinity or NaN
  uint32_t overflow_from;  ///< bits of the smallest magnitude that overflows
};

/// What survey() finds in a chunk of finite values.
struct Survey {
  uint32_t max_bits;      ///< bits of the largest magnitude, NaN and infinity included
  uint32_t min_below;     ///< bits of the smallest non-zero magnitude, less 1; ~0 if none
  int64_t exponent_zero;  ///< values with biased exponent 0: zeros and fp32 subnormals
  double sum, sum_sq;
};

/// Classes of the rounded values, for `half` and `magic`.
struct RoundCounts {
  int64_t zero;
  int64_t below_normal;  ///< zero or subnormal in the format
  int64_t non_finite;
};

struct Kernels {
  /// Rounds n values; any kind but `reference`.
  void (*round)(const float* in, float* out, int64_t n, const RoundSpec& spec);
  /// The same for n <= kChunk and counts the results; kinds `half` and `magic`. `out` may be
  /// null.
  void (*round_count)(const float* in, float* out, int64_t n, const RoundSpec& spec,
                      RoundCounts& counts);
  /// n <= kChunk. Adds to exponents[e] the number of values with biased exponent e, for e in
  /// 1..254. False, with `exponents` untouched, if a value is not finite.
  bool (*survey)(const float* in, int64_t n, int64_t* exponents, Survey& survey);
};

const Kernels& baseline_kernels() noexcept;
#if defined(__x86_64__)
const Kernels& avx2_kernels() noexcept;
const Kernels& avx512_kernels() noexcept;
#endif

}  // namespace halfscope::measure_detail
