// SPDX-License-Identifier: MIT
// MaxPool, AveragePool and their gradients. Overlapping windows add their gradients in row-major
// order of the outputs. Averages and their gradients sum under the node's accumulation.
#include "core/bodies/pooling.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/numeric/sums/accumulate.h"
#include "core/ops/ops.h"
#include "emulation/engine/kernel.h"

namespace halfscope {
namespace {

/// The common case: adjacent 2x2 windows without padding.
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
  const PoolGeometry<int64_t> geometry = pool_geometry(*c.node, x, c.out_shape(0));
  const bool simple = geometry.kernel_h == 2 && geometry.kernel_w == 2 && geometry.stride_h == 2 &&
                      geometry.stride_w == 2 && geometry.dilation_h == 1 &&
                      geometry.dilation_w == 1 && geometry.pad_top == 0 && geometry.pad_left == 0 &&
                      2 * geometry.out_height <= geometry.height &&
                      2 * geometry.out_width <= geometry.width;
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    const PoolGeometry<int64_t> s = geometry;
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* in = c.in[0] + plane * s.plane;
      T* y = c.out[0] + plane * s.out_plane;
      int32_t* index = c.index_out[1] + plane * s.out_plane;
      if (simple) {
        pool_plane_2x2(in, s.width, s.out_height, s.out_width, y, index);
        continue;
      }
      for (int64_t p = 0; p < s.out_height; ++p) {
        for (int64_t q = 0; q < s.out_width; ++q) {
          const int64_t at = place_of_largest(in, s, p, q);
          *y++ = at < 0 ? -std::numeric_limits<T>::infinity() : in[at];
          *index++ = static_cast<int32_t>(at);
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

/// Sums a window's elements, or an element's shares; the sum is not yet delivered.
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
  const PoolGeometry<int64_t> s = pool_geometry(*c.node, x, c.out_shape(0));
  const SumSpec spec = c.sum_spec();
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    std::vector<T> values;
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* const in = c.in[0] + plane * s.plane;
      for (int64_t p = 0; p < s.out_height; ++p) {
        for (int64_t q = 0; q < s.out_width; ++q) {
          values.clear();
          s.for_window(p, q, [&](int64_t at) { values.push_back(in[at]); });
          const int64_t element = plane * s.out_plane + p * s.out_width + q;
          const double count = static_cast<double>(s.divisor(p, q));
          c.out[0][element] = delivered<T>(sum_of_window(spec, values, element) / count, spec);
        }
      }
    }
  });
}

template <class T>
void average_pool_grad(KernelCall<T>& c) {  // dy -> dx, with x's shape
  const Shape& x = c.out_shape(0);
  const PoolGeometry<int64_t> s = pool_geometry(*c.node, x, c.in_shape(0));
  const SumSpec spec = c.sum_spec();
  parallel_ranges(x[0] * x[1], 16, [&](int64_t begin, int64_t end) {
    std::vector<std::vector<T>> shares(static_cast<size_t>(s.plane));
    for (int64_t plane = begin; plane < end; ++plane) {
      for (std::vector<T>& each : shares) each.clear();
      const T* dy = c.in[0] + plane * s.out_plane;
      for (int64_t p = 0; p < s.out_height; ++p) {
        for (int64_t q = 0; q < s.out_width; ++q) {
          const T share = *dy++ / static_cast<T>(s.divisor(p, q));
          s.for_window(p, q, [&](int64_t at) { shares[static_cast<size_t>(at)].push_back(share); });
        }
      }
      for (int64_t at = 0; at < s.plane; ++at) {
        const int64_t element = plane * s.plane + at;
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
