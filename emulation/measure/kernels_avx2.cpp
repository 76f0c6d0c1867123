// SPDX-License-Identifier: MIT
// Measuring kernels for AVX2, FMA and F16C: 32 bytes per vector.
#include <immintrin.h>

#include "emulation/measure/kernel_body.h"

namespace halfscope::measure_detail {
namespace {

struct Avx2 {
  using I = __m256i;
  using F = __m256;
  using D = __m256d;
  using M = __m256i;  ///< all ones in the lanes where it is true
  static constexpr int kBytes = 32;
  static constexpr int kDoubles = 4;
  static constexpr bool kRoundsAnyWay = false;

  static I load(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
  static void store(void* p, I x) { _mm256_storeu_si256(static_cast<I*>(p), x); }
  static void stream(void* p, I x) { _mm256_stream_si256(static_cast<I*>(p), x); }
  static I zero() { return _mm256_setzero_si256(); }
  static I set32(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  static I set8(uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static F set_float(float x) { return _mm256_set1_ps(x); }
  static F as_float(I x) { return _mm256_castsi256_ps(x); }
  static I as_int(F x) { return _mm256_castps_si256(x); }

  static I and_(I a, I b) { return _mm256_and_si256(a, b); }
  static I or_(I a, I b) { return _mm256_or_si256(a, b); }
  static I xor_(I a, I b) { return _mm256_xor_si256(a, b); }
  static I add32(I a, I b) { return _mm256_add_epi32(a, b); }
  static I max32(I a, I b) { return _mm256_max_epu32(a, b); }
  static I min32(I a, I b) { return _mm256_min_epu32(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }

  // For general_round.h; comparisons are signed.
  static I and_not(I a, I b) { return _mm256_andnot_si256(b, a); }
  static I sub32(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I max_signed(I a, I b) { return _mm256_max_epi32(a, b); }
  static I min_signed(I a, I b) { return _mm256_min_epi32(a, b); }
  static I left(I x, I count) { return _mm256_sllv_epi32(x, count); }
  static I right(I x, I count) { return _mm256_srlv_epi32(x, count); }
  template <int kShift>
  static I left32(I x) {
    return _mm256_slli_epi32(x, kShift);
  }
  template <int kShift>
  static I right32(I x) {
    return _mm256_srli_epi32(x, kShift);
  }
  static I exponent_field(I x) { return right32<23>(x); }
  static I from_integer(I x) { return as_int(_mm256_cvtepi32_ps(x)); }
  static I set_bits(float x) { return as_int(set_float(x)); }
  static I sign_mask(I x) { return _mm256_srai_epi32(x, 31); }
  static M less(I a, I b) { return _mm256_cmpgt_epi32(b, a); }
  static M both(M a, M b) { return and_(a, b); }
  static M either(M a, M b) { return or_(a, b); }
  static I keep_if(M m, I a) { return and_(m, a); }
  static I choose(M m, I a, I b) { return _mm256_blendv_epi8(b, a, m); }
  static I choose_by_sign(I x, I negative, I positive) {
    return as_int(_mm256_blendv_ps(as_float(positive), as_float(negative), as_float(x)));
  }
  static I subtract_if(I a, M m, I b) { return sub32(a, and_(m, b)); }
  static I count(I counter, M m) { return sub32(counter, m); }
  /// True where a > b as unsigned numbers.
  static M above(I a, I b) { return xor_(_mm256_cmpeq_epi32(max32(a, b), b), set8(0xff)); }

  // In addition for magic_round.h. Only one rounding direction is available.
  static F fma_up(F a, F b, F c) { return fma(a, b, c); }
  static F fma_truncate(F a, F b, F c) { return fma(a, b, c); }
  // Comparisons with NaN are false, except in the last one.
  static I count_down(I counter, M m) { return add32(counter, m); }
  static I or_if(I a, M m, I bits) { return or_masked(a, m, bits); }
  static M equal(I a, I b) { return _mm256_cmpeq_epi32(a, b); }
  static M equal_float(F a, F b) { return as_int(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
  static M differ_float(F a, F b) { return as_int(_mm256_cmp_ps(a, b, _CMP_NEQ_OQ)); }
  static M less_float(F a, F b) { return as_int(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  static M not_up_to(I a, F b) { return as_int(_mm256_cmp_ps(as_float(a), b, _CMP_NLE_UQ)); }
  static F multiply(F a, F b) { return _mm256_mul_ps(a, b); }
  static F subtract(F a, F b) { return _mm256_sub_ps(a, b); }
  /// Returns the larger of x and zero; zero if x is NaN.
  static F or_zero(F x) { return _mm256_max_ps(x, _mm256_setzero_ps()); }
  /// Rounds a number below 2^32 down. The conversion is signed, so the upper half is split off
  /// first.
  static I to_unsigned(F x) {
    const F half = set_float(0x1p31f);
    const F upper = _mm256_cmp_ps(x, half, _CMP_GE_OQ);
    const I rest = _mm256_cvttps_epi32(_mm256_sub_ps(x, _mm256_and_ps(upper, half)));
    return xor_(rest, _mm256_slli_epi32(as_int(upper), 31));
  }
  static int64_t sum_lanes(I x) {
    alignas(32) uint32_t lane[8];
    store(lane, x);
    int64_t sum = 0;
    for (uint32_t each : lane) sum += each;
    return sum;
  }

  // 64-bit lanes, for random numbers.
  static I set64(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }
  static I draw_states(uint64_t start) {
    const auto at = [start](uint64_t i) { return static_cast<int64_t>(start + i * kDrawStep); };
    return _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
  }
  static I add64(I a, I b) { return _mm256_add_epi64(a, b); }
  template <int kShift>
  static I left64(I x) {
    return _mm256_slli_epi64(x, kShift);
  }
  template <int kShift>
  static I right64(I x) {
    return _mm256_srli_epi64(x, kShift);
  }
  static I multiply64(I a, uint64_t b) {
    const I low = _mm256_mul_epu32(a, set64(b & 0xffffffffu));
    // Both cross products at once: each half of a times the other half of b.
    const I cross = _mm256_mullo_epi32(a, set64(b << 32 | b >> 32));
    return add64(low, left64<32>(add64(cross, right64<32>(cross))));
  }
  /// Finishes splitmix64 of core/numeric/formats/rng.h, after its first addition; the bits are
  /// inverted where the mask has ones, and ones elsewhere.
  static I draw_limits(I z, I mask) {
    z = multiply64(xor_(z, right64<30>(z)), 0xBF58476D1CE4E5B9u);
    z = multiply64(xor_(z, right64<27>(z)), 0x94D049BB133111EBu);
    return xor_(and_(xor_(z, right64<31>(z)), mask), set8(0xff));
  }

  static I nan_mask(I x) { return as_int(_mm256_cmp_ps(as_float(x), as_float(x), _CMP_UNORD_Q)); }
  /// Returns a, or a | bits where x is NaN.
  static I or_if_nan(I a, I x, I bits) { return or_masked(a, nan_mask(x), bits); }
  /// Returns a, or x | bits where x is NaN.
  static I replace_if_nan(I a, I x, I bits) {
    return _mm256_blendv_epi8(a, or_(x, bits), nan_mask(x));
  }
  /// Returns a, plus 1 where x has the single bit of `bits`.
  static I add_one_if(I a, I x, I bits) {
    return _mm256_sub_epi32(a, _mm256_cmpeq_epi32(and_(x, bits), bits));
  }
  /// Returns a, or b where a as a float is above the limit.
  static I replace_if_above(I a, F limit, I b) {
    return _mm256_blendv_epi8(a, b, as_int(_mm256_cmp_ps(as_float(a), limit, _CMP_GT_OQ)));
  }
  /// Returns a | (x & mask).
  static I or_masked(I a, I x, I mask) { return or_(a, and_(x, mask)); }
  /// Returns the bits of a where the mask has ones, otherwise those of b.
  static I select(I mask, I a, I b) { return or_(and_(mask, a), _mm256_andnot_si256(mask, b)); }
  static I through_half(I x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
    return as_int(_mm256_cvtph_ps(_mm256_cvtps_ph(as_float(x), kNearest)));
  }
  /// Returns the biased exponents of four vectors of floats, in some order.
  static I exponent_bytes(I a, I b, I c, I d) {
    const I ab = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
    const I cd = _mm256_blend_epi16(_mm256_srli_epi32(c, 16), d, 0xaa);
    return select(_mm256_set1_epi16(0x00ff), right16<7>(ab), left16<1>(cd));
  }

  static I min8(I a, I b) { return _mm256_min_epu8(a, b); }
  static I sub8(I a, I b) { return _mm256_sub_epi8(a, b); }
  static I add8_saturating(I a, I b) { return _mm256_adds_epu8(a, b); }
  static I shuffle(I table, I index) { return _mm256_shuffle_epi8(table, index); }
  static I table(uint64_t low, uint64_t high) {
    const __m128i lane = _mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low));
    return _mm256_broadcastsi128_si256(lane);
  }
  template <int kShift>
  static I left16(I x) {
    return _mm256_slli_epi16(x, kShift);
  }
  template <int kShift>
  static I right16(I x) {
    return _mm256_srli_epi16(x, kShift);
  }
  /// Sets sum to the sum bit of sum + a + b; returns the carry bit.
  static I full_add(I& sum, I a, I b) {
    const I either = xor_(a, b);
    const I carry = or_(and_(a, b), and_(sum, either));
    sum = xor_(sum, either);
    return carry;
  }
  static I count_equal(I counter, I a, I b) {
    return _mm256_sub_epi8(counter, _mm256_cmpeq_epi8(a, b));
  }
  static I count_at_least(I counter, I a, I b) {
    return count_equal(counter, _mm256_max_epu8(a, b), a);
  }
  static int64_t sum_of_quads(I x) {
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1);
  }
  static int64_t sum_bytes(I x) { return sum_of_quads(_mm256_sad_epu8(x, zero())); }
  /// Returns the byte sums of four vectors, 16 bits each.
  static uint64_t sum_bytes_of_four(I a, I b, I c, I d) {
    const I ab = or_(_mm256_sad_epu8(a, zero()), _mm256_slli_epi64(_mm256_sad_epu8(b, zero()), 16));
    const I cd = or_(_mm256_sad_epu8(c, zero()), _mm256_slli_epi64(_mm256_sad_epu8(d, zero()), 16));
    return static_cast<uint64_t>(sum_of_quads(or_(ab, _mm256_slli_epi64(cd, 32))));
  }
  static uint32_t max_of_lanes(I x) {
    alignas(32) uint32_t lane[8];
    store(lane, x);
    uint32_t result = 0;
    for (uint32_t each : lane) result = each > result ? each : result;
    return result;
  }
  static uint32_t min_of_lanes(I x) { return ~max_of_lanes(xor_(x, set8(0xff))); }

  static D zero_double() { return _mm256_setzero_pd(); }
  static D load_double(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  static void store_double(double* p, D x) { _mm256_storeu_pd(p, x); }
  static D add_double(D a, D b) { return _mm256_add_pd(a, b); }
  static D fma_double(D a, D b, D c) { return _mm256_fmadd_pd(a, b, c); }
};

}  // namespace

const Kernels& avx2_kernels() noexcept {
  static constexpr Kernels kKernels = make_kernels<Avx2>();
  return kKernels;
}

}  // namespace halfscope::measure_detail
