// SPDX-License-Identifier: MIT
// The input image as the convolution drivers read it: zero padding is stored, and columns are
// sorted by their phase modulo stride_w. So the pixels that one tap needs for an output row are
// adjacent under any stride. The element of tap (channel, kh, kw) for output pixel (oh, ow) is
//   image[tap_offset(channel, kh, kw) + pixel_offset(oh, ow)]
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "emulation/gemm/gemm.h"

namespace halfscope::gemm_detail {

struct ImageLayout {
  ConvShape shape;
  int64_t rows;         ///< padded height
  int64_t phase_width;  ///< columns of one phase
  int64_t pitch;        ///< elements of one row

  explicit ImageLayout(const ConvShape& s)
      : shape(s),
        rows(s.height + s.pad_top + s.pad_bottom),
        phase_width((s.width + s.pad_left + s.pad_right + s.stride_w - 1) / s.stride_w),
        pitch(phase_width * s.stride_w) {}

  /// Returns whether the tensor x already has this layout, so that nothing has to be copied.
  template <class T>
  bool is_plain() const {
    return std::is_same_v<T, float> && shape.stride_w == 1 && shape.pad_top == 0 &&
           shape.pad_left == 0 && shape.pad_bottom == 0 && shape.pad_right == 0;
  }
  int64_t channel_size() const { return rows * pitch; }
  int64_t tap_offset(int64_t channel, int64_t kh, int64_t kw) const {
    const int64_t column = kw * shape.dilation_w;
    return (channel * rows + kh * shape.dilation_h) * pitch +
           column % shape.stride_w * phase_width + column / shape.stride_w;
  }
  int64_t pixel_offset(int64_t oh, int64_t ow) const { return oh * shape.stride_h * pitch + ow; }

  /// Fills `image` with channels [first, last) of one image of x.
  template <class T>
  void fill(const float* x, int64_t first, int64_t last, T* image) const {
    std::fill(image, image + (last - first) * channel_size(), T{0});
    for (int64_t c = first; c < last; ++c) {
      for (int64_t h = 0; h < shape.height; ++h) {
        const float* from = x + (c * shape.height + h) * shape.width;
        T* to = image + ((c - first) * rows + h + shape.pad_top) * pitch;
        if (shape.stride_w == 1) {
          std::copy_n(from, shape.width, to + shape.pad_left);
          continue;
        }
        for (int64_t phase = 0; phase < shape.stride_w; ++phase) {
          // First column of x in this phase, and its destination.
          const int64_t padded = (phase - shape.pad_left) % shape.stride_w;
          const int64_t first_w = padded < 0 ? padded + shape.stride_w : padded;
          T* out = to + phase * phase_width + (first_w + shape.pad_left) / shape.stride_w;
          for (int64_t w = first_w; w < shape.width; w += shape.stride_w) *out++ = from[w];
        }
      }
    }
  }
};

/// Returns the output pixels of one image, or 0 if the kernel does not fit (out_height() requires
/// it).
inline int64_t output_pixels(const ConvShape& s) {
  const int64_t spare_h = s.height + s.pad_top + s.pad_bottom - s.dilation_h * (s.kernel_h - 1) - 1;
  const int64_t spare_w = s.width + s.pad_left + s.pad_right - s.dilation_w * (s.kernel_w - 1) - 1;
  return spare_h < 0 || spare_w < 0 ? 0 : s.out_height() * s.out_width();
}

/// Calls f(group, destination of its diagnostics) for all groups. With enough groups, each runs on
/// one thread (nested parallel regions are not split again).
template <class F>
void for_groups(const ConvShape& s, SumDiagnostics* diagnostics, const F& f) {
  if (s.group == 1) return f(int64_t{0}, diagnostics);
  std::vector<SumDiagnostics> seen(diagnostics != nullptr ? static_cast<size_t>(s.group) : 0);
  const int threads = omp_get_max_threads();
  for_each_on(s.group >= threads ? threads : 1, s.group, [&](int64_t group) {
    f(group, diagnostics != nullptr ? &seen[static_cast<size_t>(group)] : nullptr);
  });
  for (const SumDiagnostics& each : seen) diagnostics->merge(each);
}

/// Returns the steps of all chains of a convolution or of one of its gradients; padding counts.
inline int64_t steps_of(const ConvShape& s) {
  return s.batch * s.group * s.out * output_pixels(s) * s.in * s.kernel_h * s.kernel_w;
}

}  // namespace halfscope::gemm_detail
