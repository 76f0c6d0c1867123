// SPDX-License-Identifier: MIT
// The vector work under measure.h, one implementation per instruction set: plain structs and
// functions on raw memory, so that sources compiled for one instruction set need no library
// header. measure.cpp adds what is rare (non-finite and fp32-subnormal inputs) in portable code.
#pragma once

#include <cstdint>

namespace halfscope::measure_detail {

/// Most elements survey() and round_count() take: kSumChunk.
inline constexpr int64_t kChunk = 4096;

/// How a format is rounded to. The first four round to nearest even and know no
/// options.
enum class RoundKind : int {
  copy,       ///< fp32: only signalling NaNs change
  half,       ///< fp16: the processor's conversion, or as `magic`
  carry,      ///< fp32's exponents, fewer mantissa bits: integer add with carry into the exponent
  magic,      ///< fewer exponents, at most 21 mantissa bits: (x + M) - M in fp32
  magic_way,  ///< the same in any mode, with options: magic_round.h
  general,    ///< any format, mode and option: general_round.h
};

/// What `magic_way` and `general` do with the bits below the last one kept.
enum class RoundWay : int { nearest_even, nearest_away, truncate, directed, odd, stochastic };

/// Which exponents `general` has to handle: what is constant for all values makes it faster.
enum class RoundRange : int {
  fixed,    ///< fp32's, at least one mantissa bit: the place of the last bit is constant
  flushed,  ///< the same, and subnormal results become zero
  normal,   ///< smallest normal value is one in fp32
  any,      ///< smallest normal value may be subnormal in fp32; fnuz
};

/// What `magic_way` has to look after.
enum class RoundOptions : int {
  none,
  fnuz,  ///< and nothing else: no flushing, no saturation
  all,   ///< flushing, fnuz, or NaN becomes another number
};

/// Constants of one format and rounding; "bits" are those of an fp32 number.
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
  uint32_t overflow;       ///< bits of what a larger value becomes: infinity or NaN
  uint32_t overflow_from;  ///< bits of the smallest magnitude that overflows

  // The rest is for `magic_way` and `general`. To the second the lowest `drop` bits of a magnitude
  // a are cut off, where drop = clamp(drop_sum - (a >> 23), drop_min, drop_max), or without
  // drop_sum, where the normal range reaches into fp32's subnormals, (float(a) >> 23) - drop_bias
  // between these two.
  int32_t drop_sum, drop_min, drop_max, drop_bias;
  bool deep;                   ///< the second of the two
  uint32_t unit;               ///< bits of the smallest value there is
  uint32_t half_unit;          ///< magnitudes up to this become zero, to nearest
  uint32_t flush_limit;        ///< so do results up to this
  uint32_t over[2];            ///< what replaces larger results, of positive and negative values
  uint32_t infinity;           ///< what replaces infinity
  uint32_t nan_kept, nan_set;  ///< a NaN x becomes (x & nan_kept) | nan_set
  bool unsigned_zero;          ///< fnuz: zero and NaN have no sign
  uint32_t away_flip;          ///< directed: away from zero where x ^ away_flip is negative
  RoundOptions options;
  float half_step;       ///< half of the last place is half_step * 2^exponent
  uint32_t inverse;      ///< less the bits of 2^e: those of 2^32 over the last place
  uint64_t draw_start;   ///< stochastic: draw_start() of the key; of a random_draw() count the
  uint32_t random_mask;  ///< upper bits
};

/// What survey() finds in a chunk of finite values.
struct Survey {
  uint32_t max_bits;      ///< bits of the largest magnitude, NaN and infinity included
  uint32_t min_below;     ///< bits of the smallest non-zero magnitude, less 1; ~0 if none
  int64_t exponent_zero;  ///< values with biased exponent 0: zeros and fp32 subnormals
  double sum, sum_sq;
};

/// Classes of the rounded values.
struct RoundCounts {
  int64_t zero;
  int64_t below_normal;  ///< zero or subnormal in the format
  int64_t beyond;        ///< overflowed, and all infinities and NaNs of the input
};

struct Kernels {
  /// Rounds n values. `first` is the index of the first one: element i of a tensor draws
  /// random_draw() number i. With `stream`, stores bypass the caches where the instruction set can;
  /// the caller has to order them (end_streaming() in measure.cpp) before another thread reads.
  void (*round)(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                bool stream);
  /// The same for n <= kChunk and counts the results; any kind but `copy`. `out` may be null.
  void (*round_count)(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                      bool stream, RoundCounts& counts);
  /// n <= kChunk. Adds to exponents[e] the number of values with biased exponent e, for e in
  /// 1..254. False, with `exponents` untouched, if a value is not finite.
  bool (*survey)(const float* in, int64_t n, int64_t* exponents, Survey& survey);
  /// n <= kChunk. Adds to powers[p] the number of values with magnitude 2^p to 2^(p + 1) as bits,
  /// for p in 0..22, the fp32 subnormals.
  void (*subnormals)(const float* in, int64_t n, int64_t* powers);
};

const Kernels& baseline_kernels() noexcept;
#if defined(__x86_64__)
const Kernels& avx2_kernels() noexcept;
const Kernels& avx512_kernels() noexcept;
#endif

}  // namespace halfscope::measure_detail
