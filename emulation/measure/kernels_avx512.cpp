// SPDX-License-Identifier: MIT
// Measuring kernels for AVX-512 (F, BW, DQ, VL): 64 bytes per vector.

// GCC 12 believes that its own intrinsics read uninitialised vectors (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include "emulation/measure/kernel_body.h"

namespace halfscope::measure_detail {
namespace {

struct Avx512 {
  using I = __m512i;
  using F = __m512;
  using D = __m512d;
  using M = __mmask16;
  static constexpr int kBytes = 64;
  static constexpr int kDoubles = 8;
  static constexpr bool kRoundsAnyWay = true;

  static I load(const void* p) { return _mm512_loadu_si512(p); }
  static void store(void* p, I x) { _mm512_storeu_si512(p, x); }
  static void stream(void* p, I x) { _mm512_stream_si512(static_cast<I*>(p), x); }
  static I zero() { return _mm512_setzero_si512(); }
  static I set32(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static I set8(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static F set_float(float x) { return _mm512_set1_ps(x); }
  static F as_float(I x) { return _mm512_castsi512_ps(x); }
  static I as_int(F x) { return _mm512_castps_si512(x); }

  static I and_(I a, I b) { return _mm512_and_si512(a, b); }
  static I xor_(I a, I b) { return _mm512_xor_si512(a, b); }
  static I add32(I a, I b) { return _mm512_add_epi32(a, b); }
  static I max32(I a, I b) { return _mm512_max_epu32(a, b); }
  static I min32(I a, I b) { return _mm512_min_epu32(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }

  // For general_round.h; comparisons are signed.
  static I or_(I a, I b) { return _mm512_or_si512(a, b); }
  static I and_not(I a, I b) { return _mm512_andnot_si512(b, a); }
  static I sub32(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I max_signed(I a, I b) { return _mm512_max_epi32(a, b); }
  static I min_signed(I a, I b) { return _mm512_min_epi32(a, b); }
  static I left(I x, I count) { return _mm512_sllv_epi32(x, count); }
  static I right(I x, I count) { return _mm512_srlv_epi32(x, count); }
  template <int kShift>
  static I left32(I x) {
    return _mm512_slli_epi32(x, kShift);
  }
  template <int kShift>
  static I right32(I x) {
    return _mm512_srli_epi32(x, kShift);
  }
  static I exponent_field(I x) { return right32<23>(x); }
  static I from_integer(I x) { return as_int(_mm512_cvtepi32_ps(x)); }
  static I set_bits(float x) { return as_int(set_float(x)); }
  static I sign_mask(I x) { return _mm512_srai_epi32(x, 31); }
  static M less(I a, I b) { return _mm512_cmplt_epi32_mask(a, b); }
  static M both(M a, M b) { return a & b; }
  static M either(M a, M b) { return a | b; }
  static I keep_if(M m, I a) { return _mm512_maskz_mov_epi32(m, a); }
  static I choose(M m, I a, I b) { return _mm512_mask_mov_epi32(b, m, a); }
  static I choose_by_sign(I x, I negative, I positive) {
    return choose(_mm512_movepi32_mask(x), negative, positive);
  }
  static I subtract_if(I a, M m, I b) { return _mm512_mask_sub_epi32(a, m, a, b); }
  static I count(I counter, M m) {
    return _mm512_mask_add_epi32(counter, m, counter, _mm512_set1_epi32(1));
  }
  /// True where a > b as unsigned numbers.
  static M above(I a, I b) { return _mm512_cmpgt_epu32_mask(a, b); }

  // In addition for magic_round.h.
  static F fma_up(F a, F b, F c) {
    return _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  }
  static F fma_truncate(F a, F b, F c) {
    return _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  // Comparisons with NaN are false, except in the last one.
  static I count_down(I counter, M m) {
    return _mm512_mask_sub_epi32(counter, m, counter, _mm512_set1_epi32(1));
  }
  static I or_if(I a, M m, I bits) { return _mm512_mask_or_epi32(a, m, a, bits); }
  static M equal(I a, I b) { return _mm512_cmpeq_epi32_mask(a, b); }
  static M equal_float(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static M differ_float(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_OQ); }
  static M less_float(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M not_up_to(I a, F b) { return _mm512_cmp_ps_mask(as_float(a), b, _CMP_NLE_UQ); }
  static F multiply(F a, F b) { return _mm512_mul_ps(a, b); }
  static F subtract(F a, F b) { return _mm512_sub_ps(a, b); }
  /// Returns the larger of x and zero; zero if x is NaN.
  static F or_zero(F x) { return _mm512_max_ps(x, _mm512_setzero_ps()); }
  /// Rounds a number below 2^32 down.
  static I to_unsigned(F x) { return _mm512_cvttps_epu32(x); }
  static int64_t sum_lanes(I x) { return _mm512_reduce_add_epi32(x); }

  // 64-bit lanes, for random numbers.
  static I set64(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }
  static I draw_states(uint64_t start) {
    const auto at = [start](uint64_t i) { return static_cast<int64_t>(start + i * kDrawStep); };
    return _mm512_setr_epi64(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  }
  static I add64(I a, I b) { return _mm512_add_epi64(a, b); }
  template <int kShift>
  static I left64(I x) {
    return _mm512_slli_epi64(x, kShift);
  }
  template <int kShift>
  static I right64(I x) {
    return _mm512_srli_epi64(x, kShift);
  }
  /// Finishes splitmix64 of core/numeric/formats/rng.h, after its first addition; the bits are
  /// inverted where the mask has ones, and ones elsewhere.
  static I draw_limits(I z, I mask) {
    z = _mm512_mullo_epi64(xor_(z, right64<30>(z)), set64(0xBF58476D1CE4E5B9u));
    z = _mm512_mullo_epi64(xor_(z, right64<27>(z)), set64(0x94D049BB133111EBu));
    return _mm512_ternarylogic_epi64(z, right64<31>(z), mask, 0xd7);  // ~((a ^ b) & c)
  }

  static __mmask16 nan_mask(I x) {
    return _mm512_cmp_ps_mask(as_float(x), as_float(x), _CMP_UNORD_Q);
  }
  /// Returns a, or a | bits where x is NaN.
  static I or_if_nan(I a, I x, I bits) { return _mm512_mask_or_epi32(a, nan_mask(x), a, bits); }
  /// Returns a, or x | bits where x is NaN.
  static I replace_if_nan(I a, I x, I bits) {
    return _mm512_mask_or_epi32(a, nan_mask(x), x, bits);
  }
  /// Returns a, plus 1 where x has one of `bits`.
  static I add_one_if(I a, I x, I bits) {
    return _mm512_mask_add_epi32(a, _mm512_test_epi32_mask(x, bits), a, _mm512_set1_epi32(1));
  }
  /// Returns a, or b where a as a float is above the limit.
  static I replace_if_above(I a, F limit, I b) {
    return _mm512_mask_mov_epi32(a, _mm512_cmp_ps_mask(as_float(a), limit, _CMP_GT_OQ), b);
  }
  /// Returns a | (x & mask).
  static I or_masked(I a, I x, I mask) { return _mm512_ternarylogic_epi32(a, x, mask, 0xf8); }
  /// Returns the bits of a where the mask has ones, otherwise those of b.
  static I select(I mask, I a, I b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }
  static I through_half(I x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
    return as_int(_mm512_cvtph_ps(_mm512_cvtps_ph(as_float(x), kNearest | _MM_FROUND_NO_EXC)));
  }
  /// Returns the biased exponents of four vectors of floats, in some order.
  static I exponent_bytes(I a, I b, I c, I d) {
    const I upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const I ab = select(upper, b, _mm512_srli_epi32(a, 16));
    const I cd = select(upper, d, _mm512_srli_epi32(c, 16));
    return select(_mm512_set1_epi16(0x00ff), right16<7>(ab), left16<1>(cd));
  }

  static I min8(I a, I b) { return _mm512_min_epu8(a, b); }
  static I sub8(I a, I b) { return _mm512_sub_epi8(a, b); }
  static I add8_saturating(I a, I b) { return _mm512_adds_epu8(a, b); }
  static I shuffle(I table, I index) { return _mm512_shuffle_epi8(table, index); }
  static I table(uint64_t low, uint64_t high) {
    const __m128i lane = _mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low));
    return _mm512_broadcast_i32x4(lane);
  }
  template <int kShift>
  static I left16(I x) {
    return _mm512_slli_epi16(x, kShift);
  }
  template <int kShift>
  static I right16(I x) {
    return _mm512_srli_epi16(x, kShift);
  }
  /// Sets sum to the sum bit of sum + a + b; returns the carry bit.
  static I full_add(I& sum, I a, I b) {
    const I carry = _mm512_ternarylogic_epi32(sum, a, b, 0xe8);
    sum = _mm512_ternarylogic_epi32(sum, a, b, 0x96);
    return carry;
  }
  static I count_equal(I counter, I a, I b) {
    return _mm512_mask_add_epi8(counter, _mm512_cmpeq_epi8_mask(a, b), counter, set8(1));
  }
  static I count_at_least(I counter, I a, I b) {
    return _mm512_mask_add_epi8(counter, _mm512_cmpge_epu8_mask(a, b), counter, set8(1));
  }
  static int64_t sum_bytes(I x) { return _mm512_reduce_add_epi64(_mm512_sad_epu8(x, zero())); }
  /// Returns the byte sums of four vectors, 16 bits each.
  static uint64_t sum_bytes_of_four(I a, I b, I c, I d) {
    const I ab = _mm512_or_si512(_mm512_sad_epu8(a, zero()),
                                 _mm512_slli_epi64(_mm512_sad_epu8(b, zero()), 16));
    const I cd = _mm512_or_si512(_mm512_sad_epu8(c, zero()),
                                 _mm512_slli_epi64(_mm512_sad_epu8(d, zero()), 16));
    return static_cast<uint64_t>(
        _mm512_reduce_add_epi64(_mm512_or_si512(ab, _mm512_slli_epi64(cd, 32))));
  }
  static uint32_t max_of_lanes(I x) { return _mm512_reduce_max_epu32(x); }
  static uint32_t min_of_lanes(I x) { return _mm512_reduce_min_epu32(x); }

  static D zero_double() { return _mm512_setzero_pd(); }
  static D load_double(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
  static void store_double(double* p, D x) { _mm512_storeu_pd(p, x); }
  static D add_double(D a, D b) { return _mm512_add_pd(a, b); }
  static D fma_double(D a, D b, D c) { return _mm512_fmadd_pd(a, b, c); }
};

}  // namespace

const Kernels& avx512_kernels() noexcept {
  static constexpr Kernels kKernels = make_kernels<Avx512>();
  return kKernels;
}

}  // namespace halfscope::measure_detail
