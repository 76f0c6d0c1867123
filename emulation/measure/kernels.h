// SPDX-License-Identifier: MIT
// The vector code under measure.h, one implementation per instruction set. Plain structs and
// functions on raw memory, so that sources compiled for one instruction set need no library header.
// measure.cpp handles rare inputs (non-finite, fp32 subnormals) in portable code.
#pragma once

#include <cstdint>

namespace halfscope::measure_detail {

/// Largest number of elements for survey() and round_count(): kSumChunk.
inline constexpr int64_t kChunk = 4096;

/// Method of rounding to a format. The first four round to nearest even, without options.
enum class RoundKind : int {
  copy,       ///< fp32: only signalling NaNs change
  half,       ///< fp16: the processor's conversion, or like `magic`
  carry,      ///< fp32's exponents, fewer mantissa bits: integer add with carry into the exponent
  magic,      ///< fewer exponents, at most 21 mantissa bits: (x + M) - M in fp32
  magic_way,  ///< the same in any mode, with options: magic_round.h
  general,    ///< any format, mode and option: general_round.h
};

/// Treatment of the bits below the last one kept, for `magic_way` and `general`.
enum class RoundWay : int { nearest_even, nearest_away, truncate, directed, odd, stochastic };

/// Exponents that `general` has to handle. Parts that are constant for all values make it faster.
enum class RoundRange : int {
  fixed,    ///< fp32's, at least one mantissa bit: the last bit's place is constant
  flushed,  ///< same, and subnormal results become zero
  normal,   ///< the smallest normal value is normal in fp32
  any,      ///< the smallest normal value may be subnormal in fp32; fnuz
};

/// Special cases that `magic_way` has to handle.
enum class RoundOptions : int {
  none,
  fnuz,  ///< fnuz only: no flushing, no saturation
  all,   ///< flushing, fnuz, or NaN becomes another number
};

/// Constants of one format and rounding; "bits" are the bits of an fp32 number.
struct RoundSpec {
  RoundKind kind;
  RoundWay way;
  RoundRange range;
  uint32_t last_bit;       ///< lowest mantissa bit that is kept
  uint32_t kept;           ///< all bits that are kept: sign, exponent, upper mantissa
  uint32_t exponent_low;   ///< bits of the smallest normal number
  uint32_t exponent_high;  ///< bits of the power of two beyond the largest finite value
  float magic;             ///< M = magic * 2^exponent; 1.5 * 2^(23 - mantissa_bits)
  float max_finite;
  uint32_t overflow;       ///< bits of the value that replaces larger ones: infinity or NaN
  uint32_t overflow_from;  ///< bits of the smallest magnitude that overflows

  // The rest is for `magic_way` and `general`. `general` cuts off the lowest `drop` bits of a
  // magnitude a, where drop = clamp(drop_sum - (a >> 23), drop_min, drop_max). If the normal range
  // reaches into fp32's subnormals (`deep`), drop is (float(a) >> 23) - drop_bias instead, with the
  // same limits.
  int32_t drop_sum, drop_min, drop_max, drop_bias;
  bool deep;                   ///< use the second formula
  uint32_t unit;               ///< bits of the format's smallest value
  uint32_t half_unit;          ///< to nearest, magnitudes up to this become zero
  uint32_t flush_limit;        ///< results up to this become zero
  uint32_t over[2];            ///< replaces larger results, for positive and negative values
  uint32_t infinity;           ///< replaces infinity
  uint32_t nan_kept, nan_set;  ///< a NaN x becomes (x & nan_kept) | nan_set
  bool unsigned_zero;          ///< fnuz: zero and NaN have no sign
  uint32_t away_flip;          ///< directed: round away from zero where x ^ away_flip is negative
  RoundOptions options;
  float half_step;       ///< half of the last place is half_step * 2^exponent
  uint32_t inverse;      ///< minus the bits of 2^e: bits of 2^32 over the last place
  uint64_t draw_start;   ///< stochastic: draw_start() of the key
  uint32_t random_mask;  ///< bits of a random_draw() that count, the upper ones
};

/// Result of survey() for a chunk of finite values.
struct Survey {
  uint32_t max_bits;      ///< bits of the largest magnitude, NaN and infinity included
  uint32_t min_below;     ///< bits of the smallest non-zero magnitude, less 1; ~0 if none
  int64_t exponent_zero;  ///< values with biased exponent 0: zeros and fp32 subnormals
  double sum, sum_sq;
};

/// Number of rounded values per class.
struct RoundCounts {
  int64_t zero;
  int64_t below_normal;  ///< zero or subnormal in the format
  int64_t beyond;        ///< overflowed, plus all infinities and NaNs of the input
};

struct Kernels {
  /// Rounds n values. `first` is the index of the first one: element i of a tensor uses
  /// random_draw() number i. With `stream`, stores bypass the caches if the instruction set can do
  /// that; the caller must then call end_streaming() (measure.cpp) before another thread reads.
  void (*round)(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                bool stream);
  /// Same for n <= kChunk, and counts the rounded values. Any kind except `copy`. `out` may be
  /// null.
  void (*round_count)(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                      bool stream, RoundCounts& counts);
  /// Adds to exponents[e] the number of values with biased exponent e, for e in 1..254. n <=
  /// kChunk. Returns false, with `exponents` untouched, if a value is not finite.
  bool (*survey)(const float* in, int64_t n, int64_t* exponents, Survey& survey);
  /// Adds to powers[p] the number of values whose magnitude as bits is in 2^p to 2^(p + 1), for p
  /// in 0..22 (the fp32 subnormals). n <= kChunk.
  void (*subnormals)(const float* in, int64_t n, int64_t* powers);
};

const Kernels& baseline_kernels() noexcept;
#if defined(__x86_64__)
const Kernels& avx2_kernels() noexcept;
const Kernels& avx512_kernels() noexcept;
#endif

}  // namespace halfscope::measure_detail
