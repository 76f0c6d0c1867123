// SPDX-License-Identifier: MIT
// Sums of products on the CPU: the matrix product and the three convolution products, each with a
// named accumulation (core/numeric/sums/accumulate.h; every kernel equals it bit for bit). K is
// never split between threads, so the bits do not depend on the number of threads or the
// instruction set. NaN and infinity propagate as in IEEE 754; a NaN result is always the quiet NaN
// 0x7fc00000.
#pragma once

#include <cstdint>
#include <optional>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/sum_diagnostics.h"

namespace halfscope {

/// A matrix X(i, j) = data[i * row_stride + j * column_stride].
struct MatrixView {
  const float* data;
  int64_t row_stride, column_stride;
};

/// Diagnostics of the sums of one product; empty if has_diagnostics() is false. Passing a null
/// pointer skips them; the product has the same bits either way.
using Diagnostics = std::optional<SumDiagnostics>;

/// Computes c[i * n + j] = sum over k of a(i, k) * b(k, j), plus bias[j] if bias is not null. a is
/// m x k, b is k x n, c is m x n, dense, and overlaps neither. c[0] is element `first` of the
/// tensor of sums.
void gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, const float* bias, float* c,
          const SumSpec& spec, Diagnostics* diagnostics = nullptr, int64_t first = 0);

/// Sizes of a 2-D convolution (ONNX Conv); `in` and `out` are the channels of one group. Layouts: x
/// [batch, group, in, height, width], w [group, out, in, kernel_h, kernel_w], y [batch, group, out,
/// out_height, out_width]. The dilated kernel must fit into the padded input; otherwise there is no
/// output pixel, and nothing is computed.
struct ConvShape {
  int64_t batch = 1, group = 1, in = 1, height = 1, width = 1, out = 1, kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;

  int64_t out_height() const noexcept {
    return (height + pad_top + pad_bottom - dilation_h * (kernel_h - 1) - 1) / stride_h + 1;
  }
  int64_t out_width() const noexcept {
    return (width + pad_left + pad_right - dilation_w * (kernel_w - 1) - 1) / stride_w + 1;
  }
  /// Returns the number of elements of one input image, all groups; y_image(), of one output image.
  int64_t x_image() const noexcept { return group * in * height * width; }
  int64_t y_image() const noexcept { return group * out * out_height() * out_width(); }
  /// Returns the number of elements of one group's weights.
  int64_t weights() const noexcept { return out * in * kernel_h * kernel_w; }
};

/// Computes y = conv(x, w) + bias. k runs over (in, kernel_h, kernel_w) in row-major order; taps on
/// the zero padding count as products with zero.
void conv_forward(const ConvShape& shape, const float* x, const float* w, const float* bias,
                  float* y, const SumSpec& spec, Diagnostics* diagnostics = nullptr);

/// Computes dx from dy. k runs over (kernel_h, kernel_w, out) in row-major order, over existing
/// taps only. For pairwise and kahan sums, tensor cores, promotion, split k and roundings other
/// than nearest even, missing taps count as products with zero, as in an implicit matrix product.
void conv_grad_input(const ConvShape& shape, const float* dy, const float* w, float* dx,
                     const SumSpec& spec, Diagnostics* diagnostics = nullptr);

/// Returns the diagnostics of conv_grad_input() without computing dx, in half the time.
Diagnostics diagnose_conv_grad_input(const ConvShape& shape, const float* dy, const float* w,
                                     const SumSpec& spec);

/// Computes dw from x and dy. k runs over (batch, out_height, out_width) in row-major order.
void conv_grad_weight(const ConvShape& shape, const float* x, const float* dy, float* dw,
                      const SumSpec& spec, Diagnostics* diagnostics = nullptr);

/// Computes out[j] = sum of x over its axes outer and inner, for x [outer, n, inner], as a sum of
/// plain values (accumulate.h). One chain per j, ascending (outer, inner). Used for the bias
/// gradients of Gemm (inner = 1) and Conv (inner = pixels).
void sum_except(int64_t outer, int64_t n, int64_t inner, const float* x, float* out,
                const SumSpec& spec);

}  // namespace halfscope
