// SPDX-License-Identifier: MIT
// The register tile of the reference backend's products in double: one implementation per
// instruction set, all with the same bits. Every element is one chain over ascending k; the product
// is rounded, then the sum is rounded. No instruction set fuses the two.
#pragma once

#include <cstdint>

namespace halfscope {

struct DoubleTile {
  int rows, columns;
  /// Computes c(i, j) = [c(i, j) +] sum over k of a[k * rows + i] * b[k * columns + j], with c(i,
  /// j) at c[i * c_stride + j].
  void (*run)(int64_t k, const double* a, const double* b, double* c, int64_t c_stride,
              bool accumulate);
};
inline constexpr int kMostDoubleRows = 8, kMostDoubleColumns = 24;

DoubleTile baseline_double_tile() noexcept;
#if defined(__x86_64__)
DoubleTile avx2_double_tile() noexcept;
DoubleTile avx512_double_tile() noexcept;
#endif

}  // namespace halfscope
