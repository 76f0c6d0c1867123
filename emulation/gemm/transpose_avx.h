// SPDX-License-Identifier: MIT
// Blocked transpose in 8 x 8 register blocks, for the AVX2 and AVX-512 tiles. Included only by
// their sources; internal linkage, see tile_body.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace halfscope::gemm_detail {
namespace {

inline void store8(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
inline void store8(double* to, __m256 x) {
  _mm256_storeu_pd(to, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
  _mm256_storeu_pd(to + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
}

/// Loads lanes 0-3 from `low` and 4-7 from `high`.
inline __m256 load_halves(const float* low, const float* high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

/// Stores to[j * to_stride + i] = line[i][j] for 8 consecutive j and all i < 8.
template <class T>
void transpose8x8(const float* const* line, int64_t j, T* to, int64_t to_stride) {
  to += j * to_stride;
  for (int half = 0; half < 2; ++half, j += 4, to += 4 * to_stride) {
    const __m256 r0 = load_halves(line[0] + j, line[4] + j);
    const __m256 r1 = load_halves(line[1] + j, line[5] + j);
    const __m256 r2 = load_halves(line[2] + j, line[6] + j);
    const __m256 r3 = load_halves(line[3] + j, line[7] + j);
    const __m256 t0 = _mm256_unpacklo_ps(r0, r1), t1 = _mm256_unpackhi_ps(r0, r1);
    const __m256 t2 = _mm256_unpacklo_ps(r2, r3), t3 = _mm256_unpackhi_ps(r2, r3);
    store8(to, _mm256_shuffle_ps(t0, t2, 0x44));
    store8(to + to_stride, _mm256_shuffle_ps(t0, t2, 0xee));
    store8(to + 2 * to_stride, _mm256_shuffle_ps(t1, t3, 0x44));
    store8(to + 3 * to_stride, _mm256_shuffle_ps(t1, t3, 0xee));
  }
}

template <class T>
void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_stride, T* to,
               int64_t to_stride, bool pad) {
  const int64_t whole_columns = columns & ~int64_t{7};
  const int64_t block_rows = pad ? rows : rows & ~int64_t{7};
  for (int64_t i = 0; i < block_rows; i += 8) {
    const float* line[8];
    for (int64_t r = 0; r < 8; ++r) {
      line[r] = from + (i + r < rows ? i + r : rows - 1) * from_stride;
    }
    for (int64_t j = 0; j < whole_columns; j += 8) transpose8x8(line, j, to + i, to_stride);
  }
  const int64_t padded = pad ? (rows + 7) / 8 * 8 : rows;
  for (int64_t i = 0; i < padded; ++i) {
    const float* line = from + (i < rows ? i : rows - 1) * from_stride;
    for (int64_t j = i < block_rows ? whole_columns : 0; j < columns; ++j) {
      to[j * to_stride + i] = line[j];
    }
  }
}

}  // namespace
}  // namespace halfscope::gemm_detail
