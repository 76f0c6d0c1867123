// SPDX-License-Identifier: MIT
// MaxPool, AveragePool and their gradients. Ties go to the first element in row-major order, NaN
// wins over everything (the last NaN, as in PyTorch); overlapping windows add their gradients in
// row-major order of the outputs. Averages and their gradients sum under the node's accumulation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"

namespace halfscope {
namespace {

/// Calls f(place in the plane) for the elements of window (p, q), in row-major order.
template <class F>
void for_window(const PoolWindow& w, int64_t height, int64_t width, int64_t p, int64_t q,
                const F& f) {
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    const int64_t row = p * w.stride_h - w.pad_top + i * w.dilation_h;
    if (row < 0 || row >= height) continue;
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      const int64_t column = q * w.stride_w - w.pad_left + j * w.dilation_w;
      if (column >= 0 && column < width) f(row * width + column);
    }
  }
}

/// How many taps of window number `at` along one axis lie in [low, high).
int64_t taps_within(int64_t at, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                    int64_t low, int64_t high) {
  int64_t count = 0;
  for (int64_t i = 0; i < kernel; ++i) {
    const int64_t place = at * stride - pad + i * dilation;
    count += place >= low && place < high ? 1 : 0;
  }
  return count;
}

/// What the sum of window (p, q) is divided by.
int64_t divisor(const PoolWindow& w, int64_t height, int64_t width, int64_t p, int64_t q) {
  const int64_t top = w.counts_padding ? w.pad_top : 0, left = w.counts_padding ? w.pad_left : 0;
  const int64_t bottom = w.counts_padding ? w.pad_bottom : 0;
  const int64_t right = w.counts_padding ? w.pad_right : 0;
  return taps_within(p, w.kernel_h, w.stride_h, w.dilation_h, w.pad_top, -top, height + bottom) *
         taps_within(q, w.kernel_w, w.stride_w, w.dilation_w, w.pad_left, -left, width + right);
}

/// The common case: 2x2 windows side by side, no padding.
template <class T>
void pool_plane_2x2(const T* plane, int64_t width, int64_t out_h, int64_t out_w, T* y,
                    int32_t* index) {
  for (int64_t p = 0; p < out_h; ++p) {
    const T* top = plane + 2 * p * width;
    const T* bottom = top + width;
    const int32_t base = static_cast<int32_t>(2 * p * width);
    for (int64_t q = 0; q < out_w; ++q) {
      T best = top[2 * q];
      int32_t at = base + static_cast<int32_t>(2 * q);
      const auto take = [&](T candidate, int32_t where) {
        const bool wins = candidate > best || candidate != candidate;
        best = wins ? candidate : best;
        at = wins ? where : at;
      };
      take(top[2 * q + 1], base + static_cast<int32_t>(2 * q + 1));
      take(bottom[2 * q], base + static_cast<int32_t>(width + 2 * q));
      take(bottom[2 * q + 1], base + static_cast<int32_t>(width + 2 * q + 1));
      y[p * out_w + q] = best;
      index[p * out_w + q] = at;
    }
  }
}

template <class T>
void max_pool(KernelCall<T>& c) {
  const Shape& x = c.in_shape(0);
  const Shape& out = c.out_shape(0);
  const PoolWindow w = pool_window(*c.node);
  const int64_t height = x[2], width = x[3], out_h = out[2], out_w = out[3];
  const bool simple = w.kernel_h == 2 && w.kernel_w == 2 && w.stride_h == 2 && w.stride_w == 2 &&
                      w.dilation_h == 1 && w.dilation_w == 1 && w.pad_top == 0 && w.pad_left == 0 &&
                      2 * out_h <= height && 2 * out_w <= width;
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* in = c.in[0] + plane * height * width;
      T* y = c.out[0] + plane * out_h * out_w;
      int32_t* index = c.index_out[1] + plane * out_h * out_w;
      if (simple) {
        pool_plane_2x2(in, width, out_h, out_w, y, index);
        continue;
      }
      for (int64_t p = 0; p < out_h; ++p) {
        for (int64_t q = 0; q < out_w; ++q) {
          int64_t at = -1;
          for_window(w, height, width, p, q, [&](int64_t place) {
            if (at < 0 || in[place] > in[at] || std::isnan(in[place])) at = place;
          });
          y[p * out_w + q] = at < 0 ? -std::numeric_limits<T>::infinity() : in[at];
          index[p * out_w + q] = static_cast<int32_t>(at);
        }
      }
    }
  });
}

template <class T>
void max_pool_grad(KernelCall<T>& c) {
  const Shape& x = c.out_shape(0);
  const Shape& dy = c.in_shape(0);
  const int64_t in_plane = x[2] * x[3], out_plane = dy[2] * dy[3];
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      T* dx = c.out[0] + plane * in_plane;
      std::fill_n(dx, in_plane, T{0});
      const T* gradient = c.in[0] + plane * out_plane;
      const int32_t* index = c.index_in[1] + plane * out_plane;
      for (int64_t i = 0; i < out_plane; ++i) {
        if (index[i] >= 0) dx[index[i]] += gradient[i];
      }
    }
  });
}

/// The sum of a window's elements, or of an element's shares, not delivered yet.
double sum_of_window(const SumSpec& spec, const std::vector<float>& values, int64_t element) {
  if (spec.accumulation == Accumulation::fp32) {
    float sum = 0.0f;
    for (const float value : values) sum += value;
    return static_cast<double>(sum);
  }
  return sum_of_values(sums_of_row(spec, element), values);
}
double sum_of_window(const SumSpec&, const std::vector<double>& values, int64_t) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}

template <class T>
void average_pool(KernelCall<T>& c) {
  const Shape& x = c.in_shape(0);
  const Shape& out = c.out_shape(0);
  const PoolWindow w = pool_window(*c.node);
  const SumSpec spec = c.sum_spec();
  const int64_t height = x[2], width = x[3];
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    std::vector<T> values;
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* const in = c.in[0] + plane * height * width;
      for (int64_t p = 0; p < out[2]; ++p) {
        for (int64_t q = 0; q < out[3]; ++q) {
          values.clear();
          for_window(w, height, width, p, q, [&](int64_t at) { values.push_back(in[at]); });
          const int64_t element = (plane * out[2] + p) * out[3] + q;
          const double count = static_cast<double>(divisor(w, height, width, p, q));
          c.out[0][element] = delivered<T>(sum_of_window(spec, values, element) / count, spec);
        }
      }
    }
  });
}

template <class T>
void average_pool_grad(KernelCall<T>& c) {  // dy -> dx, with x's shape
  const Shape& x = c.out_shape(0);
  const Shape& out = c.in_shape(0);
  const PoolWindow w = pool_window(*c.node);
  const SumSpec spec = c.sum_spec();
  const int64_t height = x[2], width = x[3], pixels = height * width;
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    std::vector<std::vector<T>> shares(static_cast<size_t>(pixels));
    for (int64_t plane = begin; plane < end; ++plane) {
      for (std::vector<T>& each : shares) each.clear();
      const T* dy = c.in[0] + plane * out[2] * out[3];
      for (int64_t p = 0; p < out[2]; ++p) {
        for (int64_t q = 0; q < out[3]; ++q) {
          const T share = *dy++ / static_cast<T>(divisor(w, height, width, p, q));
          for_window(w, height, width, p, q,
                     [&](int64_t at) { shares[static_cast<size_t>(at)].push_back(share); });
        }
      }
      for (int64_t at = 0; at < pixels; ++at) {
        const int64_t element = plane * pixels + at;
        c.out[0][element] =
            delivered<T>(sum_of_window(spec, shares[static_cast<size_t>(at)], element), spec);
      }
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> pooling_kernels() {
  static constexpr KernelEntry<T> kernels[] = {
      {"MaxPool", max_pool<T>},
      {"MaxPoolGrad", max_pool_grad<T>},
      {"AveragePool", average_pool<T>},
      {"AveragePoolGrad", average_pool_grad<T>},
  };
  return kernels;
}

template std::span<const KernelEntry<float>> pooling_kernels();
template std::span<const KernelEntry<double>> pooling_kernels();

}  // namespace halfscope
