// SPDX-License-Identifier: MIT
// Tensor-core tiles for AVX2 and F16C: panels of 32 columns. Integers are converted to floats in
// the processor's rounding mode, which is "towards zero" while a tile runs.
#include <immintrin.h>

#include "emulation/gemm/block_body.h"

namespace halfscope::gemm_detail {
namespace {

struct BlockVector {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kUnroll = 2;  ///< with more, GCC spills the sums
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static I load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static F broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static I broadcast(const uint32_t* p) { return _mm256_set1_epi32(static_cast<int>(*p)); }
  static I set(int x) { return _mm256_set1_epi32(x); }
  static I bits(F x) { return _mm256_castps_si256(x); }
  static F floats(I x) { return _mm256_castsi256_ps(x); }
  static F mul(F x, F y) { return _mm256_mul_ps(x, y); }
  static F add(F x, F y) { return _mm256_add_ps(x, y); }
  static F sub(F x, F y) { return _mm256_sub_ps(x, y); }
  static I truncate(F x) { return _mm256_cvttps_epi32(x); }
  static F to_float_towards_zero(I x) { return _mm256_cvtepi32_ps(x); }
  static F through_fp16(F x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  /// Counts zeros in bytes, which takes fewer operations than counting in integers; packing turns
  /// nothing else into a zero. At most 255 times; see counted().
  static I count_zeros(I n, I x0, I x1, I x2, I x3) {
    const I bytes = _mm256_packs_epi16(_mm256_packs_epi32(x0, x1), _mm256_packs_epi32(x2, x3));
    return _mm256_sub_epi8(n, _mm256_cmpeq_epi8(bytes, _mm256_setzero_si256()));
  }
  /// Returns the counts of vector v (x0 to x3): each group of four bytes belongs to one of them.
  static I counted(I n, int v) {
    const I first = _mm256_setr_epi32(-256, -255, -254, -253, -256, -255, -254, -253);
    return _mm256_shuffle_epi8(n, _mm256_add_epi32(first, _mm256_set1_epi32(4 * v)));
  }
  static I add(I x, I y) { return _mm256_add_epi32(x, y); }
  static I sub(I x, I y) { return _mm256_sub_epi32(x, y); }
  static I max(I x, I y) { return _mm256_max_epi32(x, y); }
  static I min(I x, I y) { return _mm256_min_epi32(x, y); }
  static I bit_and(I x, I y) { return _mm256_and_si256(x, y); }
  static I bit_and_not(I x, I y) { return _mm256_andnot_si256(x, y); }
  static I bit_or(I x, I y) { return _mm256_or_si256(x, y); }
  static I bit_xor(I x, I y) { return _mm256_xor_si256(x, y); }
  template <int kCount>
  static I shift_left(I x) {
    return _mm256_slli_epi32(x, kCount);
  }
  template <int kCount>
  static I shift_right(I x) {
    return _mm256_srli_epi32(x, kCount);
  }
  static I equal(I x, I y) { return _mm256_cmpeq_epi32(x, y); }
  static I greater(I x, I y) { return _mm256_cmpgt_epi32(x, y); }
  static I choose(I mask, I yes, I no) { return _mm256_blendv_epi8(no, yes, mask); }
  template <bool kWide>
  static I add_codes(I x, I y) {
    return kWide ? _mm256_add_epi16(x, y) : _mm256_add_epi8(x, y);
  }
  template <bool kWide>
  static I max_codes(I x, I y) {
    return kWide ? _mm256_max_epi16(x, y) : _mm256_max_epu8(x, y);
  }
  /// Hides from the compiler where a pointer comes from.
  template <class T>
  static void hide(const T*& p) {
    asm("" : "+r"(p));
  }
  /// See AVX-512. Here it would make GCC spill the sums, and with so few steps the order is right
  /// without it.
  static void pin(I&) {}
  /// Runs the tile through a pointer that the compiler cannot see through, so that nothing moves
  /// out of the part with the other rounding mode.
  template <void (*kRun)(const BlockTile&)>
  static void guarded(const BlockTile& t) {
    void (*run)(const BlockTile&) = kRun;
    asm("" : "+r"(run));
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_ROUND_TOWARD_ZERO);
    run(t);
    _mm_setcsr(before);
  }
};

}  // namespace

const BlockKernels& avx2_block_kernels() noexcept {
  static const BlockKernels kernels = make_block_kernels<BlockVector>();
  return kernels;
}

}  // namespace halfscope::gemm_detail
