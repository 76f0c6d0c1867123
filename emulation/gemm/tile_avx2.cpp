// SPDX-License-Identifier: MIT
// Register tiles for AVX2 and FMA: 6 x 16 floats or 6 x 8 doubles in the 16 vector registers.
#include <immintrin.h>

#include "emulation/gemm/tile_body.h"
#include "emulation/gemm/transpose_avx.h"

namespace halfscope::gemm_detail {
namespace {

struct FloatVector {
  using Scalar = float;
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  // For tiles that collect diagnostics.
  using Count = __m256i;
  static Count count_none() { return _mm256_setzero_si256(); }
  /// Counts the lanes where a == b.
  static Count count_same(Count n, Reg a, Reg b) {
    return _mm256_sub_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }
  static int64_t total(Count n) {
    int32_t lane[kLanes];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lane), n);
    int64_t sum = 0;
    for (const int32_t x : lane) sum += x;
    return sum;
  }
  static Reg larger(Reg size, Reg x) {
    return _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), size);
  }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load_some(const float* p, int n) {
    return n == kLanes ? load(p) : _mm256_maskload_ps(p, mask(n));
  }
  static void store(float* p, Reg x) { _mm256_storeu_ps(p, x); }
  static void store_some(float* p, int n, Reg x) {
    if (n == kLanes) {
      store(p, x);
    } else {
      _mm256_maskstore_ps(p, mask(n), x);
    }
  }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg fms(Reg a, Reg b, Reg c) { return _mm256_fmsub_ps(a, b, c); }
  static Reg finite_or_zero(Reg x) {
    const Reg size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return _mm256_and_ps(x, _mm256_cmp_ps(size, _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ));
  }
  static Reg one() { return _mm256_set1_ps(1.0f); }
  /// Returns the neighbour of the exact value that has an odd last bit. If the value is a float,
  /// both neighbours are equal to it, except for +0 and -0: `up` is the result of round to nearest.
  /// Runs in `directed` only: the processor rounds down, and -(-a * b - c) is rounded up.
  static Reg odd_fma(Reg a, Reg b, Reg c) {
    const Reg down = _mm256_fmadd_ps(a, b, c);
    Reg minus_up = _mm256_fnmsub_ps(a, b, c);
    asm("" : "+x"(minus_up));  // the compiler must not cancel the two signs
    const Reg up = _mm256_xor_ps(minus_up, _mm256_set1_ps(-0.0f));
    const __m256i odd = _mm256_slli_epi32(_mm256_castps_si256(down), 31);
    return _mm256_blendv_ps(up, down, _mm256_castsi256_ps(odd));
  }
  /// Rounds down while the tile runs. The call goes through a pointer that the compiler cannot see
  /// through, so that nothing moves in or out.
  template <void (*kRun)(const Tile<float>&)>
  static void directed(const Tile<float>& t) {
    void (*run)(const Tile<float>&) = kRun;
    asm("" : "+r"(run));
    const unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~_MM_ROUND_MASK) | _MM_ROUND_DOWN);
    run(t);
    _mm_setcsr(before);
  }
  static Reg through_fp16(Reg x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static Reg bf16_of_number(Reg x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i moved = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even);
    return _mm256_castsi256_ps(_mm256_and_si256(moved, _mm256_set1_epi32(-0x10000)));
  }
  static Reg through_bf16(Reg x) {
    return _mm256_blendv_ps(bf16_of_number(x), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static Reg quiet(Reg x) {
    return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static void deliver(float* to, int n, Reg x, bool) { store_some(to, n, quiet(x)); }
  static void copy(const float* from, float* to, int n) {
    for (; n >= 8; n -= 8, from += 8, to += 8) store(to, load(from));
    if (n & 4) {
      _mm_storeu_ps(to, _mm_loadu_ps(from));
      from += 4;
      to += 4;
    }
    for (n &= 3; n > 0; --n) *to++ = *from++;
  }
};

struct DoubleVector {
  using Scalar = double;
  using Reg = __m256d;
  static constexpr int kLanes = 4;
  static __m256i mask(int n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Reg sign() { return _mm256_set1_pd(-0.0); }
  // For tiles that collect diagnostics.
  using Count = __m256i;
  static Count count_none() { return _mm256_setzero_si256(); }
  /// Counts the lanes where a == b.
  static Count count_same(Count n, Reg a, Reg b) {
    return _mm256_sub_epi64(n, _mm256_castpd_si256(_mm256_cmp_pd(a, b, _CMP_EQ_OQ)));
  }
  static int64_t total(Count n) {
    int64_t lane[kLanes];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lane), n);
    int64_t sum = 0;
    for (const int64_t x : lane) sum += x;
    return sum;
  }
  static Reg larger(Reg size, Reg x) {
    return _mm256_max_pd(_mm256_andnot_pd(_mm256_set1_pd(-0.0), x), size);
  }
  static Reg zero() { return _mm256_setzero_pd(); }
  static Reg broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Reg load(const double* p) { return _mm256_loadu_pd(p); }
  static Reg load_some(const double* p, int n) {
    return n == kLanes ? load(p) : _mm256_maskload_pd(p, mask(n));
  }
  static void store(double* p, Reg x) { _mm256_storeu_pd(p, x); }
  static void store_some(double* p, int n, Reg x) {
    if (n == kLanes) {
      store(p, x);
    } else {
      _mm256_maskstore_pd(p, mask(n), x);
    }
  }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_pd(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_pd(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_pd(a, b); }
  static Reg min(Reg a, Reg b) { return _mm256_min_pd(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_pd(a, b); }
  static Reg quiet(Reg x) {
    return _mm256_blendv_pd(x, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000)),
                            _mm256_cmp_pd(x, x, _CMP_UNORD_Q));
  }
  static Reg exponent(Reg x) {
    return _mm256_and_pd(x, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff0000000000000)));
  }
  static Reg or_sign(Reg x, Reg from) { return _mm256_or_pd(x, _mm256_and_pd(from, sign())); }
  static Reg select_above(Reg x, Reg limit, Reg otherwise) {
    const Reg above = _mm256_cmp_pd(_mm256_andnot_pd(sign(), x), limit, _CMP_GT_OQ);
    return _mm256_blendv_pd(x, otherwise, above);
  }
  /// If s is inexact and even, its neighbour on the side of the error is the odd one.
  static Reg to_odd(Reg s, Reg error) {
    const __m256i bits = _mm256_castpd_si256(s);
    const __m256i one = _mm256_set1_epi64x(1);
    const __m256i inexact =
        _mm256_castpd_si256(_mm256_cmp_pd(error, _mm256_setzero_pd(), _CMP_NEQ_OQ));
    const __m256i odd = _mm256_and_si256(bits, one);
    const __m256i even = _mm256_cmpeq_epi64(odd, _mm256_setzero_si256());
    const __m256i away = _mm256_xor_si256(bits, _mm256_castpd_si256(error));  // sign set: towards 0
    const __m256i move = _mm256_sub_epi64(one, _mm256_slli_epi64(_mm256_srli_epi64(away, 63), 1));
    const __m256i moved = _mm256_and_si256(_mm256_and_si256(inexact, even), move);
    return _mm256_castsi256_pd(_mm256_add_epi64(bits, moved));
  }
  /// Returns the low half of every lane of a comparison.
  static __m128i narrow(Reg comparison) {
    const __m128 low = _mm_castpd_ps(_mm256_castpd256_pd128(comparison));
    const __m128 high = _mm_castpd_ps(_mm256_extractf128_pd(comparison, 1));
    return _mm_castps_si128(_mm_shuffle_ps(low, high, 0x88));
  }
  /// Converts to float. With `odd`: the nearest float or, if that is even and inexact, its
  /// neighbour on the other side; the next float is one integer away. Neither zero nor infinity is
  /// odd.
  static void deliver(float* to, int n, Reg x, bool odd) {
    const __m128 nearest = _mm256_cvtpd_ps(x);
    __m128i bits = _mm_castps_si128(nearest);
    if (odd) {
      const Reg magnitude = _mm256_andnot_pd(sign(), x);
      const Reg back = _mm256_andnot_pd(sign(), _mm256_cvtps_pd(nearest));
      const __m128i up = narrow(_mm256_cmp_pd(magnitude, back, _CMP_GT_OQ));  // -1 where true
      const __m128i down = narrow(_mm256_cmp_pd(magnitude, back, _CMP_LT_OQ));
      const __m128i even =
          _mm_cmpeq_epi32(_mm_and_si128(bits, _mm_set1_epi32(1)), _mm_setzero_si128());
      bits = _mm_add_epi32(bits, _mm_and_si128(even, _mm_sub_epi32(down, up)));
    }
    const __m128 results =
        _mm_blendv_ps(_mm_castsi128_ps(bits), _mm_castsi128_ps(_mm_set1_epi32(0x7fc00000)),
                      _mm_castsi128_ps(narrow(_mm256_cmp_pd(x, x, _CMP_UNORD_Q))));
    if (n == kLanes) {
      _mm_storeu_ps(to, results);
    } else {
      const __m128i exists = _mm_cmpgt_epi32(_mm_set1_epi32(n), _mm_setr_epi32(0, 1, 2, 3));
      _mm_maskstore_ps(to, exists, results);
    }
  }
  static void copy(const double* from, double* to, int n) {
    for (; n >= 4; n -= 4, from += 4, to += 4) store(to, load(from));
    for (; n > 0; --n) *to++ = *from++;
  }
};

}  // namespace

const KernelSet& avx2_kernels() noexcept {
  static const KernelSet set{make_kernels<FmaStep<FloatVector>, 6>(),
                             make_kernels<FmaStep<DoubleVector>, 6>(),
                             make_kernels<FormatStep<DoubleVector>, 4>(),
                             make_kernels<MulAddStep<DoubleVector>, 4>(),
                             make_kernels<ShortcutStep<DoubleVector>, 4>(),
                             make_kernels<KahanStep<FloatVector>, 3>(),
                             make_pairwise_kernels<FloatVector, 6>(),
                             make_narrow_kernels<FloatVector, ToFp16, 5>(),
                             make_narrow_kernels<FloatVector, ToBf16, 5>(),
                             make_narrow_kernels<FloatVector, ToBf16OfBf16, 5>()};
  return set;
}

const KernelSet& avx2_noting_kernels() noexcept {
  static const KernelSet set{make_kernels<FmaStep<FloatVector>, 5, true>(),
                             make_kernels<FmaStep<DoubleVector>, 5, true>(),
                             make_kernels<FormatStep<DoubleVector>, 4, true>(),
                             make_kernels<MulAddStep<DoubleVector>, 4, true>(),
                             make_kernels<ShortcutStep<DoubleVector>, 4, true>(),
                             {},
                             {},
                             make_narrow_kernels<FloatVector, ToFp16, 4, true>(),
                             make_narrow_kernels<FloatVector, ToBf16, 4, true>(),
                             make_narrow_kernels<FloatVector, ToBf16OfBf16, 4, true>()};
  return set;
}

}  // namespace halfscope::gemm_detail
