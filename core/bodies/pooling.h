// SPDX-License-Identifier: MIT
// Pooling windows: their position, the divisor of an average, and the largest element. Ties go to
// the first element in row-major order, and the last NaN wins over everything, as in PyTorch.
#pragma once

#include <cstdint>

#include "core/bodies/elements.h"
#include "core/host_device.h"

namespace halfscope {

/// Shape and position of the windows of a pool on its input.
struct PoolWindow {
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  bool counts_padding = false;  ///< averages only
};

/// Windows on planes of one size. Size is int64_t, or a number type by which a backend divides
/// faster.
template <class Size>
struct PoolGeometry {
  int64_t height, out_height, kernel_h;
  Size width, out_width, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
  int64_t pad_top, pad_left, pad_bottom, pad_right;
  bool counts_padding;
  Size plane, out_plane;

  PoolGeometry(const PoolWindow& w, int64_t high, int64_t wide, int64_t out_high, int64_t out_wide)
      : height(high),
        out_height(out_high),
        kernel_h(w.kernel_h),
        width(wide),
        out_width(out_wide),
        kernel_w(w.kernel_w),
        stride_h(w.stride_h),
        stride_w(w.stride_w),
        dilation_h(w.dilation_h),
        dilation_w(w.dilation_w),
        pad_top(w.pad_top),
        pad_left(w.pad_left),
        pad_bottom(w.pad_bottom),
        pad_right(w.pad_right),
        counts_padding(w.counts_padding),
        plane(high * wide),
        out_plane(out_high * out_wide) {}

  /// Return the input row of line i of the windows in output row p, and the input column of element
  /// j of the windows in output column q. They can lie in the padding.
  HS_HD int64_t row(int64_t p, int64_t i) const { return p * stride_h - pad_top + i * dilation_h; }
  HS_HD int64_t column(int64_t q, int64_t j) const {
    return q * stride_w - pad_left + j * dilation_w;
  }

  /// Calls f(index in the plane) for the elements of window (p, q), in row-major order.
  template <class F>
  HS_HD void for_window(int64_t p, int64_t q, const F& f) const {
    for (int64_t i = 0; i < kernel_h; ++i) {
      const int64_t at = row(p, i);
      if (at < 0 || at >= height) continue;
      for (int64_t j = 0; j < kernel_w; ++j) {
        const int64_t beside = column(q, j);
        if (beside >= 0 && beside < width) f(at * width + beside);
      }
    }
  }

  /// Returns the number by which the sum of window (p, q) is divided.
  HS_HD int64_t divisor(int64_t p, int64_t q) const {
    const bool all = counts_padding;
    int64_t rows = 0, columns = 0;
    for (int64_t i = 0; i < kernel_h; ++i) {
      const int64_t at = row(p, i);
      rows += at >= (all ? -pad_top : 0) && at < height + (all ? pad_bottom : 0) ? 1 : 0;
    }
    for (int64_t j = 0; j < kernel_w; ++j) {
      const int64_t at = column(q, j);
      columns += at >= (all ? -pad_left : 0) && at < width + (all ? pad_right : 0) ? 1 : 0;
    }
    return rows * columns;
  }
};

/// Returns the index in the plane of the largest element of window (p, q), or -1 if the window is
/// empty.
template <class In, class Size>
HS_HD int64_t place_of_largest(In plane, const PoolGeometry<Size>& s, int64_t p, int64_t q) {
  int64_t best = -1;
  s.for_window(p, q, [&](int64_t at) {
    if (best < 0 || plane[at] > plane[best] || is_nan(plane[at])) best = at;
  });
  return best;
}

}  // namespace halfscope
