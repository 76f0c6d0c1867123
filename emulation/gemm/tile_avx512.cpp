// SPDX-License-Identifier: MIT
// Register tiles for AVX-512: 14 x 32 floats or 14 x 16 doubles in the 32 vector registers.

// Some intrinsics of GCC 12 start from a deliberately undefined register (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "emulation/gemm/tile_body.h"
#include "emulation/gemm/transpose_avx.h"

namespace halfscope::gemm_detail {
namespace {

/// Returns the lanes of a mask as bits. It does not use a conversion: when GCC 12 runs out of
/// registers, it stores the mask's 8 or 16 bits on the stack and reads 32 bits back.
uint32_t lanes_of(__mmask8 mask) {
  uint32_t lanes;
  asm("kmovb %1, %0" : "=r"(lanes) : "k"(mask));
  return lanes;
}
uint32_t lanes_of(__mmask16 mask) {
  uint32_t lanes;
  asm("kmovw %1, %0" : "=r"(lanes) : "k"(mask));
  return lanes;
}

struct FloatVector {
  using Scalar = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  // For tiles that collect diagnostics.
  using Count = int64_t;
  static Count count_none() { return 0; }
  /// Counts the lanes where a == b.
  static Count count_same(Count n, Reg a, Reg b) {
    return n + __builtin_popcount(lanes_of(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)));
  }
  static int64_t total(Count n) { return n; }
  static Reg larger(Reg size, Reg x) {
    constexpr int kLargerMagnitude = 0x0b;
    return _mm512_range_ps(size, x, kLargerMagnitude);
  }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load_some(const float* p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store(float* p, Reg x) { _mm512_storeu_ps(p, x); }
  static void store_some(float* p, int n, Reg x) { _mm512_mask_storeu_ps(p, mask(n), x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg fms(Reg a, Reg b, Reg c) { return _mm512_fmsub_ps(a, b, c); }
  static Reg finite_or_zero(Reg x) {
    constexpr int kNanOrInfinity = 0x99;
    return _mm512_mask_mov_ps(x, _mm512_fpclass_ps_mask(x, kNanOrInfinity), zero());
  }
  static Reg one() { return _mm512_set1_ps(1.0f); }
  /// Returns the neighbour of the exact value that has an odd last bit. If the value is a float,
  /// both neighbours are equal to it, except for +0 and -0: `up` is the result of round to nearest.
  static Reg odd_fma(Reg a, Reg b, Reg c) {
    const Reg down = _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const Reg up = _mm512_fmadd_round_ps(a, b, c, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    const __mmask16 odd = _mm512_test_epi32_mask(_mm512_castps_si512(down), _mm512_set1_epi32(1));
    return _mm512_mask_mov_ps(up, odd, down);
  }
  template <void (*kRun)(const Tile<float>&)>
  static void directed(const Tile<float>& t) {
    kRun(t);
  }
  static Reg through_fp16(Reg x) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static Reg bf16_of_number(Reg x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i moved = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), even);
    return _mm512_castsi512_ps(_mm512_and_si512(moved, _mm512_set1_epi32(-0x10000)));
  }
  static Reg through_bf16(Reg x) {
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), bf16_of_number(x));
  }
  static Reg quiet(Reg x) {
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                              _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
  }
  static void deliver(float* to, int n, Reg x, bool) { store_some(to, n, quiet(x)); }
  static void copy(const float* from, float* to, int n) {
    for (; n > kLanes; n -= kLanes, from += kLanes, to += kLanes) store(to, load(from));
    store_some(to, n, load_some(from, n));
  }
};

struct DoubleVector {
  using Scalar = double;
  using Reg = __m512d;
  static constexpr int kLanes = 8;
  static __mmask8 mask(int n) { return static_cast<__mmask8>((1u << n) - 1); }
  static Reg sign() { return _mm512_set1_pd(-0.0); }
  // For tiles that collect diagnostics.
  using Count = int64_t;
  static Count count_none() { return 0; }
  /// Counts the lanes where a == b.
  static Count count_same(Count n, Reg a, Reg b) {
    return n + __builtin_popcount(lanes_of(_mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ)));
  }
  static int64_t total(Count n) { return n; }
  static Reg larger(Reg size, Reg x) {
    constexpr int kLargerMagnitude = 0x0b;
    return _mm512_range_pd(size, x, kLargerMagnitude);
  }
  static Reg zero() { return _mm512_setzero_pd(); }
  static Reg broadcast(const double* p) { return _mm512_set1_pd(*p); }
  static Reg load(const double* p) { return _mm512_loadu_pd(p); }
  static Reg load_some(const double* p, int n) { return _mm512_maskz_loadu_pd(mask(n), p); }
  static void store(double* p, Reg x) { _mm512_storeu_pd(p, x); }
  static void store_some(double* p, int n, Reg x) { _mm512_mask_storeu_pd(p, mask(n), x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_pd(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_pd(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_pd(a, b); }
  static Reg min(Reg a, Reg b) { return _mm512_min_pd(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_pd(a, b); }
  static Reg quiet(Reg x) {
    return _mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q),
                              _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000)));
  }
  static Reg exponent(Reg x) {
    return _mm512_and_pd(x, _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff0000000000000)));
  }
  static Reg or_sign(Reg x, Reg from) {
    // 0xf8 = x | (from & sign)
    return _mm512_castsi512_pd(_mm512_ternarylogic_epi64(
        _mm512_castpd_si512(x), _mm512_castpd_si512(from), _mm512_castpd_si512(sign()), 0xf8));
  }
  static Reg select_above(Reg x, Reg limit, Reg otherwise) {
    return _mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(_mm512_abs_pd(x), limit, _CMP_GT_OQ),
                              otherwise);
  }
  /// If s is inexact and even, its neighbour on the side of the error is the odd one.
  static Reg to_odd(Reg s, Reg error) {
    const __m512i bits = _mm512_castpd_si512(s);
    const __m512i one = _mm512_set1_epi64(1);
    const __mmask8 inexact = _mm512_cmp_pd_mask(error, _mm512_setzero_pd(), _CMP_NEQ_OQ);
    const __mmask8 both = _mm512_mask_testn_epi64_mask(inexact, bits, one);
    const __m512i away = _mm512_xor_si512(bits, _mm512_castpd_si512(error));  // sign: towards 0
    const __m512i move = _mm512_or_si512(_mm512_srai_epi64(away, 63), one);
    return _mm512_castsi512_pd(_mm512_mask_add_epi64(bits, both, bits, move));
  }
  /// Converts to float. With `odd`: the nearest float or, if that is even and inexact, its
  /// neighbour on the other side; the next float is one integer away. Neither zero nor infinity is
  /// odd.
  static void deliver(float* to, int n, Reg x, bool odd) {
    const __m256 nearest = _mm512_cvtpd_ps(x);
    __m256i bits = _mm256_castps_si256(nearest);
    if (odd) {
      const __m256i one = _mm256_set1_epi32(1);
      const Reg magnitude = _mm512_abs_pd(x), back = _mm512_abs_pd(_mm512_cvtps_pd(nearest));
      const __mmask8 even = _mm256_testn_epi32_mask(bits, one);
      const __mmask8 up = _mm512_mask_cmp_pd_mask(even, magnitude, back, _CMP_GT_OQ);
      const __mmask8 down = _mm512_mask_cmp_pd_mask(even, magnitude, back, _CMP_LT_OQ);
      bits = _mm256_mask_add_epi32(bits, up, bits, one);
      bits = _mm256_mask_sub_epi32(bits, down, bits, one);
    }
    bits = _mm256_mask_mov_epi32(bits, _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q),
                                 _mm256_set1_epi32(0x7fc00000));
    _mm256_mask_storeu_epi32(to, mask(n), bits);
  }
  static void copy(const double* from, double* to, int n) {
    for (; n > kLanes; n -= kLanes, from += kLanes, to += kLanes) store(to, load(from));
    store_some(to, n, load_some(from, n));
  }
};

}  // namespace

const KernelSet& avx512_kernels() noexcept {
  static const KernelSet set{make_kernels<FmaStep<FloatVector>, 14>(),
                             make_kernels<FmaStep<DoubleVector>, 14>(),
                             make_kernels<FormatStep<DoubleVector>, 6>(),
                             make_kernels<MulAddStep<DoubleVector>, 6>(),
                             make_kernels<ShortcutStep<DoubleVector>, 6>(),
                             make_kernels<KahanStep<FloatVector>, 6>(),
                             make_pairwise_kernels<FloatVector, 14>(),
                             make_narrow_kernels<FloatVector, ToFp16, 8>(),
                             make_narrow_kernels<FloatVector, ToBf16, 8>(),
                             make_narrow_kernels<FloatVector, ToBf16OfBf16, 8>()};
  return set;
}

const KernelSet& avx512_noting_kernels() noexcept {
  static const KernelSet set{make_kernels<FmaStep<FloatVector>, 12, true>(),
                             make_kernels<FmaStep<DoubleVector>, 12, true>(),
                             make_kernels<FormatStep<DoubleVector>, 6, true>(),
                             make_kernels<MulAddStep<DoubleVector>, 6, true>(),
                             make_kernels<ShortcutStep<DoubleVector>, 6, true>(),
                             {},
                             {},
                             make_narrow_kernels<FloatVector, ToFp16, 8, true>(),
                             make_narrow_kernels<FloatVector, ToBf16, 8, true>(),
                             make_narrow_kernels<FloatVector, ToBf16OfBf16, 8, true>()};
  return set;
}

}  // namespace halfscope::gemm_detail
