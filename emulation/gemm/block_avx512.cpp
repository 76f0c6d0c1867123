// SPDX-License-Identifier: MIT
// Tensor-core tiles for AVX-512: panels of 64 columns. Conversions carry their rounding mode.

// Some intrinsics of GCC 12 start from a deliberately undefined register (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "emulation/gemm/block_body.h"

namespace halfscope::gemm_detail {
namespace {

struct BlockVector {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kUnroll = 16;
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static I load(const int32_t* p) { return _mm512_loadu_si512(p); }
  static I load(const uint32_t* p) { return _mm512_loadu_si512(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store(int32_t* p, I x) { _mm512_storeu_si512(p, x); }
  static void store(uint32_t* p, I x) { _mm512_storeu_si512(p, x); }
  static F broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static I broadcast(const uint32_t* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  static I set(int x) { return _mm512_set1_epi32(x); }
  static I bits(F x) { return _mm512_castps_si512(x); }
  static F floats(I x) { return _mm512_castsi512_ps(x); }
  static F mul(F x, F y) { return _mm512_mul_ps(x, y); }
  static F add(F x, F y) { return _mm512_add_ps(x, y); }
  static F sub(F x, F y) { return _mm512_sub_ps(x, y); }
  static I truncate(F x) { return _mm512_cvttps_epi32(x); }
  static F to_float_towards_zero(I x) {
    return _mm512_cvt_roundepi32_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  static F through_fp16(F x) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  /// See AVX2.
  static I count_zeros(I n, I x0, I x1, I x2, I x3) {
    const I bytes = _mm512_packs_epi16(_mm512_packs_epi32(x0, x1), _mm512_packs_epi32(x2, x3));
    return _mm512_mask_sub_epi8(n, _mm512_testn_epi8_mask(bytes, bytes), n, _mm512_set1_epi8(-1));
  }
  static I counted(I n, int v) {
    const I first = _mm512_set4_epi32(-253, -254, -255, -256);
    return _mm512_shuffle_epi8(n, _mm512_add_epi32(first, _mm512_set1_epi32(4 * v)));
  }
  static I add(I x, I y) { return _mm512_add_epi32(x, y); }
  static I sub(I x, I y) { return _mm512_sub_epi32(x, y); }
  static I max(I x, I y) { return _mm512_max_epi32(x, y); }
  static I min(I x, I y) { return _mm512_min_epi32(x, y); }
  static I bit_and(I x, I y) { return _mm512_and_si512(x, y); }
  static I bit_and_not(I x, I y) { return _mm512_andnot_si512(x, y); }
  static I bit_or(I x, I y) { return _mm512_or_si512(x, y); }
  static I bit_xor(I x, I y) { return _mm512_xor_si512(x, y); }
  template <int kCount>
  static I shift_left(I x) {
    return _mm512_slli_epi32(x, kCount);
  }
  template <int kCount>
  static I shift_right(I x) {
    return _mm512_srli_epi32(x, kCount);
  }
  static I equal(I x, I y) { return _mm512_movm_epi32(_mm512_cmpeq_epi32_mask(x, y)); }
  static I greater(I x, I y) { return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(x, y)); }
  static I choose(I mask, I yes, I no) { return _mm512_ternarylogic_epi32(mask, yes, no, 0xca); }
  template <bool kWide>
  static I add_codes(I x, I y) {
    return kWide ? _mm512_add_epi16(x, y) : _mm512_add_epi8(x, y);
  }
  template <bool kWide>
  static I max_codes(I x, I y) {
    return kWide ? _mm512_max_epi16(x, y) : _mm512_max_epu8(x, y);
  }
  /// Hides from the compiler where a pointer comes from.
  template <class T>
  static void hide(const T*& p) {
    asm("" : "+r"(p));
  }
  /// Keeps the compiler from choosing its own order of additions, which needs more registers.
  static void pin(I& x) { asm("" : "+v"(x)); }
  template <void (*kRun)(const BlockTile&)>
  static void guarded(const BlockTile& t) {
    kRun(t);
  }
};

}  // namespace

const BlockKernels& avx512_block_kernels() noexcept {
  static const BlockKernels kernels = make_block_kernels<BlockVector>();
  return kernels;
}

}  // namespace halfscope::gemm_detail
