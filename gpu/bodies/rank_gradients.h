// SPDX-License-Identifier: MIT
// Gradients of data-parallel ranks that share one program: rows of a stack, and their reduction
// (formulas in core/ops/training.cpp).
#pragma once

#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/reduction.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

HS_HD inline float rounded_in(float x, const FloatFormat& format) noexcept {
  return format == format_of(Storage::fp32) ? x : rounded_to(x, format);
}
/// Doubles are neither sent nor stored in a narrower format.
HS_HD inline double rounded_in(double x, const FloatFormat&) noexcept { return x; }

/// Item i of a row. In place, it is stored into row *rank; otherwise the other rows are copied.
template <class T>
struct RankRow {
  In<T> stack, gradient, rank;
  Out<T> next;
  int64_t n, rows;
  bool in_place;

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const {
    const int64_t own = static_cast<int64_t>(*rank);
    if (in_place) {
      next[own * n + i] = gradient[i];
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      next[row * n + i] = row == own ? gradient[i] : stack[row * n + i];
    }
  }
};

/// Item: element i of the mean, as reduce_rows() computes it. `additions` belong to chunk 0; a
/// ring's other chunks move each rank on by the number of the chunk.
template <class T>
struct RankMean {
  In<T> stack, takes_part;
  T* rows;  ///< working memory, as large as the stack
  Out<T> y;
  const RankAddition* additions;
  int64_t n, ranks, chunk_length;
  bool after;        ///< divides after the additions
  bool stores_each;  ///< rounds every sum
  FloatFormat format;

  HS_HD int64_t items() const { return n; }
  HS_HD int64_t place(int32_t rank, int64_t chunk) const {
    const int64_t moved = rank + chunk;
    return moved < ranks ? moved : moved - ranks;
  }
  HS_HD void operator()(int64_t i) const {
    const T divisor = static_cast<T>(ranks);
    const int64_t chunk = i / chunk_length;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      T x = takes_part[rank] == T{0} ? T{0} : rounded_in(stack[rank * n + i], format);
      if (!after) x = rounded_in(x / divisor, format);
      rows[rank * n + i] = x;
    }
    int64_t last = 0;
    for (int64_t k = 0; k + 1 < ranks; ++k) {
      last = place(additions[k].to, chunk);
      const T sum = rows[last * n + i] + rows[place(additions[k].from, chunk) * n + i];
      const bool stored = stores_each && (after || k + 2 < ranks);
      rows[last * n + i] = stored ? rounded_in(sum, format) : sum;
    }
    const T sum = rows[last * n + i];
    y[i] = after ? sum / divisor : sum;
  }
};

}  // namespace halfscope::gpu
