// SPDX-License-Identifier: MIT
// MaxPool and its gradient. Ties go to the first element in row-major order, NaN wins over
// everything (the last NaN, as in PyTorch); overlapping windows add their gradients in row-major
// order of the outputs.
#include <algorithm>
#include <cmath>

#include "emulation/engine/kernel.h"

namespace halfscope {
namespace {

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
  const std::vector<int64_t> kernel = ints_attribute(*c.node, "kernel_shape");
  const std::vector<int64_t> strides = ints_attribute(*c.node, "strides", {1, 1});
  const std::vector<int64_t> pads = ints_attribute(*c.node, "pads", {0, 0, 0, 0});
  const int64_t height = x[2], width = x[3], out_h = out[2], out_w = out[3];
  const bool simple = kernel == std::vector<int64_t>{2, 2} &&
                      strides == std::vector<int64_t>{2, 2} &&
                      pads == std::vector<int64_t>{0, 0, 0, 0};
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
        const int64_t top = p * strides[0] - pads[0];
        for (int64_t q = 0; q < out_w; ++q) {
          const int64_t left = q * strides[1] - pads[1];
          int64_t at = -1;
          for (int64_t r = std::max<int64_t>(top, 0); r < std::min(top + kernel[0], height); ++r) {
            for (int64_t s = std::max<int64_t>(left, 0); s < std::min(left + kernel[1], width);
                 ++s) {
              const T value = in[r * width + s];
              if (at < 0 || value > in[at] || std::isnan(value)) at = r * width + s;
            }
          }
          y[p * out_w + q] = in[at];
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
      for (int64_t i = 0; i < out_plane; ++i) dx[index[i]] += gradient[i];
    }
  });
}

}  // namespace

template <class T>
std::span<const KernelEntry<T>> pooling_kernels() {
  static constexpr KernelEntry<T> kernels[] = {{"MaxPool", max_pool<T>},
                                               {"MaxPoolGrad", max_pool_grad<T>}};
  return kernels;
}

template std::span<const KernelEntry<float>> pooling_kernels();
template std::span<const KernelEntry<double>> pooling_kernels();

}  // namespace halfscope
