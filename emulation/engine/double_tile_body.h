// SPDX-License-Identifier: MIT
// The body of double_tile.h, written once for vectors of any width. Included only by
// double_tile_<isa>.cpp. Everything has internal linkage, so that the linker cannot pick code with
// wide instructions for a processor that lacks them.
#pragma once

#include "emulation/engine/double_tile.h"

namespace halfscope {
namespace {

template <int kLanes, int kRows, int kVectors>
void run_double_tile(int64_t k, const double* a, const double* b, double* c, int64_t c_stride,
                     bool accumulate) {
  using Vector [[gnu::vector_size(kLanes * sizeof(double))]] = double;
  // Like Vector, but with no alignment requirement.
  using Loose [[gnu::vector_size(kLanes * sizeof(double)), gnu::aligned(8), gnu::may_alias]] =
      double;
  Vector acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      acc[i][v] = accumulate
                      ? Vector(*reinterpret_cast<const Loose*>(c + i * c_stride + v * kLanes))
                      : Vector{};
    }
  }
  for (; k > 0; --k, a += kRows, b += kVectors * kLanes) {
    Vector bk[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) bk[v] = *reinterpret_cast<const Loose*>(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[i][v] = acc[i][v] + bk[v] * a[i];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<Loose*>(c + i * c_stride + v * kLanes) = acc[i][v];
    }
  }
}

template <int kLanes, int kRows, int kVectors>
constexpr DoubleTile make_double_tile() noexcept {
  static_assert(kRows <= kMostDoubleRows && kLanes * kVectors <= kMostDoubleColumns);
  return {kRows, kLanes * kVectors, run_double_tile<kLanes, kRows, kVectors>};
}

}  // namespace
}  // namespace halfscope
