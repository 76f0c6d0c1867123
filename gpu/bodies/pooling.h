// SPDX-License-Identifier: MIT
// MaxPool, AveragePool and their gradients. Overlapping windows add their gradients in row-major
// order of the outputs.
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
    const int64_t h = pixel / s.width, w = pixel % s.width;
    const WindowRange rows =
        windows_at(h + s.pad_top, s.kernel_h, s.dilation_h, s.stride_h, s.out_height);
    const WindowRange columns =
        windows_at(w + s.pad_left, s.kernel_w, s.dilation_w, s.stride_w, s.out_width);
    T sum = 0;
    for (int64_t p = rows.first; p <= rows.last; ++p) {
      for (int64_t q = columns.first; q <= columns.last; ++q) {
        const int64_t at = (plane * s.out_height + p) * s.out_width + q;
        if (index[at] == pixel) sum += dy[at];
      }
    }
    dx[item] = sum;
  }
};

/// Item: an output.
template <class T>
struct AveragePool {
  In<T> x;
  Out<T> y;
  Windows s;
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / s.out_plane;
    const int64_t pixel = item % s.out_plane;
    const int64_t p = pixel / s.out_width, q = pixel % s.out_width;
    const Terms terms{x + plane * s.plane, s, p, q};
    const double mean = total(terms, item, T{0}) / static_cast<double>(s.divisor(p, q));
    y[item] = how.is_wide() ? delivered<T>(mean, how.write) : static_cast<T>(mean);
  }

 private:
  /// The elements of the window, without the padding.
  struct Terms {
    In<T> in;
    const Windows& s;
    int64_t p, q;
    HS_HD int64_t count() const {
      int64_t n = 0;
      for (int64_t i = 0; i < s.kernel_h * s.kernel_w; ++i) n += tap(i) >= 0 ? 1 : 0;
      return n;
    }
    /// Returns the position of tap i in the plane, or -1 on the padding.
    HS_HD int64_t tap(int64_t i) const {
      const int64_t row = s.row(p, i / s.kernel_w), column = s.column(q, i % s.kernel_w);
      const bool inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
      return inside ? row * s.width + column : -1;
    }
    HS_HD T value(int64_t k) const {
      int64_t i = 0;
      while (tap(i) < 0 || k-- > 0) ++i;
      return in[tap(i)];
    }
    HS_HD float left(int64_t k) const { return static_cast<float>(value(k)); }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };
  HS_HD double total(const Terms& terms, int64_t item, float) const {
    return sum_of_terms(chain_of_row(how, item), terms, terms.count(), 0);
  }
  HS_HD double total(const Terms& terms, int64_t, double) const {
    double sum = 0.0;
    for (int64_t i = 0; i < s.kernel_h * s.kernel_w; ++i) {
      if (terms.tap(i) >= 0) sum += terms.in[terms.tap(i)];
    }
    return sum;
  }
};

/// Item: an element of dx; sums the shares of its windows.
template <class T>
struct AveragePoolGrad {
  In<T> dy;
  Out<T> dx;
  Windows s;
  ChainSpec how;

  HS_HD void operator()(int64_t item) const {
    const int64_t plane = item / s.plane, pixel = item % s.plane;
    const int64_t h = pixel / s.width + s.pad_top, w = pixel % s.width + s.pad_left;
    const Terms terms{dy + plane * s.out_plane,
                      s,
                      h,
                      w,
                      windows_at(h, s.kernel_h, s.dilation_h, s.stride_h, s.out_height),
                      windows_at(w, s.kernel_w, s.dilation_w, s.stride_w, s.out_width)};
    const double sum = total(terms, item, T{0});
    dx[item] = how.is_wide() ? delivered<T>(sum, how.write) : static_cast<T>(sum);
  }

 private:
  struct Terms {
    In<T> dy;
    const Windows& s;
    int64_t h, w;  ///< position in the padded plane
    WindowRange rows, columns;
    HS_HD int64_t candidates() const { return rows.count() * columns.count(); }
    /// Returns whether that window has a tap here.
    HS_HD bool covers(int64_t i) const {
      const int64_t p = rows.first + i / columns.count(), q = columns.first + i % columns.count();
      return (h - p * s.stride_h) % s.dilation_h == 0 && (w - q * s.stride_w) % s.dilation_w == 0;
    }
    HS_HD T share(int64_t i) const {
      const int64_t p = rows.first + i / columns.count(), q = columns.first + i % columns.count();
      return dy[p * s.out_width + q] / static_cast<T>(s.divisor(p, q));
    }
    HS_HD int64_t count() const {
      int64_t n = 0;
      for (int64_t i = 0; i < candidates(); ++i) n += covers(i) ? 1 : 0;
      return n;
    }
    HS_HD float left(int64_t k) const {
      int64_t i = 0;
      while (!covers(i) || k-- > 0) ++i;
      return static_cast<float>(share(i));
    }
    HS_HD float right(int64_t) const { return 1.0f; }
    HS_HD bool present(int64_t) const { return true; }
  };
  HS_HD double total(const Terms& terms, int64_t item, float) const {
    return sum_of_terms(chain_of_row(how, item), terms, terms.count(), 0);
  }
  HS_HD double total(const Terms& terms, int64_t, double) const {
    double sum = 0.0;
    for (int64_t i = 0; i < terms.candidates(); ++i) {
      if (terms.covers(i)) sum += terms.share(i);
    }
    return sum;
  }
};

}  // namespace halfscope::gpu
