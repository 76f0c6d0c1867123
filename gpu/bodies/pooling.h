// SPDX-License-Identifier: MIT
// MaxPool, AveragePool and their gradients. Overlapping windows add their gradients in row-major
// order of the outputs. Which elements a window has, and which windows an element, is computed
// directly: both are evenly spaced along each axis.
#pragma once

#include <cstdint>
#include <limits>

#include "core/bodies/pooling.h"
#include "gpu/bodies/gather.h"

namespace halfscope::gpu {

using Windows = PoolGeometry<Divisor>;

/// Windows from `first` to `last`, inclusive.
struct WindowRange {
  int64_t first, last;
  HS_HD int64_t count() const { return larger(last - first + 1, 0); }
};

/// Returns the windows along one axis whose span contains `at`, a position in the padded plane.
HS_HD inline WindowRange windows_at(int64_t at, int64_t kernel, int64_t dilation,
                                    const Divisor& stride, int64_t count) {
  const int64_t before = larger(at - dilation * (kernel - 1), 0);
  return {ceil_div(before, stride), smaller(at / stride, count - 1)};
}

/// Returns the sum of the gradients of the windows that chose a pixel of a plane, in row-major
/// order. place(p, q) is where window (p, q) has its gradient and its choice.
template <class T, class Place>
HS_HD T sum_of_choosers(const In<T>& dy, const int32_t* index, const Windows& s, int64_t pixel,
                        const Place& place) {
  const int64_t h = pixel / s.width, w = pixel % s.width;
  const WindowRange rows =
      windows_at(h + s.pad_top, s.kernel_h, s.dilation_h, s.stride_h, s.out_height);
  const WindowRange columns =
      windows_at(w + s.pad_left, s.kernel_w, s.dilation_w, s.stride_w, s.out_width);
  T sum = 0;
  for (int64_t p = rows.first; p <= rows.last; ++p) {
    for (int64_t q = columns.first; q <= columns.last; ++q) {
      const int64_t at = place(p, q);
      if (index[at] == pixel) sum += dy[at];
    }
  }
  return sum;
}

/// Item: an output.
template <class T>
struct MaxPool {
  In<T> x;
  Out<T> y;
  int32_t* index;
  Windows s;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / s.out_plane;
    const int64_t pixel = item % s.out_plane;
    const In<T> in = x + plane * s.plane;
    const int64_t at = place_of_largest(in, s, pixel / s.out_width, pixel % s.out_width);
    y[item] = at < 0 ? -std::numeric_limits<T>::infinity() : in[at];
    index[item] = static_cast<int32_t>(at);
  }
};

/// Item: an element of dx; sums the gradients of the windows that chose it.
template <class T>
struct MaxPoolGrad {
  In<T> dy;
  const int32_t* index;
  Out<T> dx;
  Windows s;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / s.plane, pixel = item % s.plane;
    dx[item] = sum_of_choosers<T>(dy, index, s, pixel, [&](int64_t p, int64_t q) {
      return (plane * s.out_height + p) * s.out_width + q;
    });
  }
};

/// Positions along one axis: first + i * step for 0 <= i < count.
struct EvenlySpaced {
  int64_t first, step, count;
  HS_HD int64_t operator[](int64_t i) const { return first + i * step; }
};

/// Returns the positions in [low, high) of a window that starts at `start`.
HS_HD inline EvenlySpaced taps_within(int64_t start, int64_t kernel, const Divisor& dilation,
                                      int64_t low, int64_t high) {
  const int64_t begin = start >= low ? 0 : ceil_div(low - start, dilation);
  const int64_t end = start >= high ? 0 : smaller(kernel, (high - 1 - start) / dilation + 1);
  return {start + begin * dilation, dilation, larger(end - begin, 0)};
}

/// Returns the windows along one axis that have a tap at `at`, a position in the padded plane.
/// Windows that are `every` apart have their taps at the same places modulo the dilation.
HS_HD inline EvenlySpaced windows_with_tap(int64_t at, int64_t kernel, const Divisor& dilation,
                                           const Divisor& stride, int64_t count,
                                           const Divisor& every) {
  const WindowRange range = windows_at(at, kernel, dilation, stride, count);
  for (int64_t p = range.first; p <= range.last && p < range.first + every; ++p) {
    if ((at - p * stride) % dilation == 0) return {p, every, (range.last - p) / every + 1};
  }
  return {range.first, every, 0};
}

/// Return the taps of windows in an output row or column that an average counts; their product is
/// the divisor.
HS_HD inline int64_t taps_of_row(const Windows& s, int64_t p) {
  const int64_t low = s.counts_padding ? -s.pad_top : 0;
  const int64_t high = s.height + (s.counts_padding ? s.pad_bottom : 0);
  return taps_within(s.row(p, 0), s.kernel_h, s.dilation_h, low, high).count;
}
HS_HD inline int64_t taps_of_column(const Windows& s, int64_t q) {
  const int64_t low = s.counts_padding ? -s.pad_left : 0;
  const int64_t high = s.width + (s.counts_padding ? s.pad_right : 0);
  return taps_within(s.column(q, 0), s.kernel_w, s.dilation_w, low, high).count;
}

/// Rows and columns of a plane, taken in row-major order as the terms of a sum: at(row, column).
template <class At>
struct GridTerms {
  EvenlySpaced rows, columns;
  At at;

  HS_HD int64_t count() const { return rows.count * columns.count; }
  HS_HD float left(int64_t k) const {
    const uint32_t wide = static_cast<uint32_t>(columns.count);
    const uint32_t row = static_cast<uint32_t>(k) / wide, column = static_cast<uint32_t>(k) % wide;
    return static_cast<float>(at(rows[row], columns[column]));
  }
  HS_HD float right(int64_t) const { return 1.0f; }
  HS_HD bool present(int64_t) const { return true; }
  /// Returns the single chain in T.
  template <class T>
  HS_HD T chain() const {
    T sum = 0;
    for (int64_t i = 0; i < rows.count; ++i) {
      for (int64_t j = 0; j < columns.count; ++j) sum += at(rows[i], columns[j]);
    }
    return sum;
  }
};

/// Returns the sum for element `item`, not delivered yet. In double it is always one chain.
template <class T, class Terms>
HS_HD double sum_of_grid(const ChainSpec& how, const Terms& terms, int64_t item) {
  if constexpr (kNamesSums<T>) {
    if (!how.is_fp32_chain()) {
      return sum_of_terms(chain_of_row(how, item), terms, terms.count(), 0);
    }
  }
  return static_cast<double>(terms.template chain<T>());
}

/// Item: an output.
template <class T>
struct AveragePool {
  In<T> x;
  Out<T> y;
  Windows s;
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / s.out_plane, pixel = item % s.out_plane;
    const int64_t p = pixel / s.out_width, q = pixel % s.out_width;
    const GridTerms<Element> terms{
        taps_within(s.row(p, 0), s.kernel_h, s.dilation_h, 0, s.height),
        taps_within(s.column(q, 0), s.kernel_w, s.dilation_w, 0, s.width),
        {x + plane * s.plane, s.width}};
    const double mean = sum_of_grid<T>(how, terms, item) /
                        static_cast<double>(taps_of_row(s, p) * taps_of_column(s, q));
    y[item] = how.is_wide() ? delivered<T>(mean, how.write) : static_cast<T>(mean);
  }

  struct Element {
    In<T> plane;
    int64_t width;
    HS_HD T operator()(int64_t row, int64_t column) const { return plane[row * width + column]; }
  };
};

/// Item: an element of dx; sums the shares of its windows.
template <class T>
struct AveragePoolGrad {
  In<T> dy;
  Out<T> dx;
  Windows s;
  Divisor every_h, every_w;  ///< dilation / gcd(stride, dilation)
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / s.plane, pixel = item % s.plane;
    const int64_t h = pixel / s.width + s.pad_top, w = pixel % s.width + s.pad_left;
    const GridTerms<Share> terms{
        windows_with_tap(h, s.kernel_h, s.dilation_h, s.stride_h, s.out_height, every_h),
        windows_with_tap(w, s.kernel_w, s.dilation_w, s.stride_w, s.out_width, every_w),
        {dy + plane * s.out_plane, s}};
    const double sum = sum_of_grid<T>(how, terms, item);
    dx[item] = how.is_wide() ? delivered<T>(sum, how.write) : static_cast<T>(sum);
  }

  struct Share {
    In<T> dy;
    const Windows& s;
    HS_HD T operator()(int64_t p, int64_t q) const {
      return dy[p * s.out_width + q] / static_cast<T>(taps_of_row(s, p) * taps_of_column(s, q));
    }
  };
};

}  // namespace halfscope::gpu
