// SPDX-License-Identifier: MIT
// MaxPool and its gradient. Ties go to the first element in row-major order, the last NaN wins over
// everything; overlapping windows add their gradients in row-major order of the outputs.
#pragma once

#include <cstdint>

#include "gpu/bodies/work.h"

namespace halfscope::gpu {

struct PoolGeometry {
  int64_t height = 1, width = 1, out_height = 1, out_width = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
};

/// Item: an output.
template <class T>
struct MaxPool {
  const T* x;
  T* y;
  int32_t* index;
  PoolGeometry s;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / (s.out_height * s.out_width);
    const int64_t pixel = item % (s.out_height * s.out_width);
    const T* const in = x + plane * s.height * s.width;
    const int64_t top = pixel / s.out_width * s.stride_h - s.pad_top;
    const int64_t left = pixel % s.out_width * s.stride_w - s.pad_left;
    int64_t at = -1;
    for (int64_t r = larger(top, 0); r < smaller(top + s.kernel_h, s.height); ++r) {
      for (int64_t q = larger(left, 0); q < smaller(left + s.kernel_w, s.width); ++q) {
        const T value = in[r * s.width + q];
        if (at < 0 || value > in[at] || is_nan(value)) at = r * s.width + q;
      }
    }
    y[item] = in[at];
    index[item] = static_cast<int32_t>(at);
  }
};

/// Item: an element of dx, which adds up the windows that chose it.
template <class T>
struct MaxPoolGrad {
  const T* dy;
  const int32_t* index;
  T* dx;
  PoolGeometry s;
  bool any_window;  ///< the windows are not known: all outputs of the plane may have chosen it

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / (s.height * s.width), pixel = item % (s.height * s.width);
    const int64_t h = pixel / s.width, w = pixel % s.width;
    const Range rows = reached(h + s.pad_top, s.kernel_h, s.stride_h, s.out_height);
    const Range columns = reached(w + s.pad_left, s.kernel_w, s.stride_w, s.out_width);
    T sum = 0;
    for (int64_t p = rows.first; p <= rows.last; ++p) {
      for (int64_t q = columns.first; q <= columns.last; ++q) {
        const int64_t at = (plane * s.out_height + p) * s.out_width + q;
        if (index[at] == pixel) sum += dy[at];
      }
    }
    dx[item] = sum;
  }

 private:
  struct Range {
    int64_t first, last;
  };
  /// Windows that hold `at`, a position in the padded plane.
  HS_HD Range reached(int64_t at, int64_t kernel, int64_t stride, int64_t count) const {
    if (any_window) return {0, count - 1};
    const int64_t before = larger(at - kernel + 1, 0);
    return {ceil_div(before, stride), smaller(at / stride, count - 1)};
  }
};

}  // namespace halfscope::gpu
