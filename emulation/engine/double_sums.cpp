// SPDX-License-Identifier: MIT
#define EIGEN_DONT_PARALLELIZE  // see gemm_double
#include "emulation/engine/double_sums.h"

#include <Eigen/Core>
#include <algorithm>
#include <vector>

namespace halfscope {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;
using ConstMap = Eigen::Map<const Matrix>;

struct Columns {
  int64_t taps, pixels;  // rows and columns of the im2col matrix of one image
  explicit Columns(const ConvShape& s)
      : taps(s.in * s.kernel_h * s.kernel_w), pixels(s.out_height() * s.out_width()) {}
};

/// Calls f(tap, pixel, index into the image) for every tap that lies inside the image.
template <class F>
void for_each_tap(const ConvShape& s, const F& f) {
  const int64_t out_h = s.out_height(), out_w = s.out_width();
  int64_t tap = 0;
  for (int64_t c = 0; c < s.in; ++c) {
    for (int64_t r = 0; r < s.kernel_h; ++r) {
      for (int64_t q = 0; q < s.kernel_w; ++q, ++tap) {
        for (int64_t y = 0; y < out_h; ++y) {
          const int64_t row = y * s.stride_h - s.pad_top + r * s.dilation_h;
          if (row < 0 || row >= s.height) continue;
          for (int64_t x = 0; x < out_w; ++x) {
            const int64_t column = x * s.stride_w - s.pad_left + q * s.dilation_w;
            if (column < 0 || column >= s.width) continue;
            f(tap, y * out_w + x, (c * s.height + row) * s.width + column);
          }
        }
      }
    }
  }
}

Matrix columns_of(const ConvShape& s, const double* image) {
  const Columns size(s);
  Matrix columns = Matrix::Zero(size.taps, size.pixels);
  for_each_tap(s, [&](int64_t tap, int64_t pixel, int64_t at) { columns(tap, pixel) = image[at]; });
  return columns;
}

}  // namespace

void gemm_double(int64_t m, int64_t n, int64_t k, const double* a, bool trans_a, const double* b,
                 bool trans_b, const double* bias, double* c) {
  Map result(c, m, n);
  if (k == 0) result.setZero();
  // Threads share the rows in fixed pieces: Eigen's own threading would split sums by their number.
  constexpr int64_t kRows = 32;
  const int64_t pieces = k == 0 ? 0 : (m + kRows - 1) / kRows;
  const ConstMap ma(a, trans_a ? k : m, trans_a ? m : k), mb(b, trans_b ? n : k, trans_b ? k : n);
#pragma omp parallel for schedule(static)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t first = piece * kRows, rows = std::min(kRows, m - first);
    auto target = result.middleRows(first, rows);
    if (!trans_a && !trans_b) target.noalias() = ma.middleRows(first, rows) * mb;
    if (trans_a && !trans_b) target.noalias() = ma.middleCols(first, rows).transpose() * mb;
    if (!trans_a && trans_b) target.noalias() = ma.middleRows(first, rows) * mb.transpose();
    if (trans_a && trans_b)
      target.noalias() = ma.middleCols(first, rows).transpose() * mb.transpose();
  }
  if (bias != nullptr) result.rowwise() += Eigen::Map<const Eigen::RowVectorXd>(bias, n);
}

// Images and groups in turn: part p is group p % group of image p / group.

void conv_forward_double(const ConvShape& s, const double* x, const double* w, const double* bias,
                         double* y) {
  const Columns size(s);
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < s.batch * s.group; ++part) {
    const int64_t group = part % s.group;
    const ConstMap weight(w + group * s.weights(), s.out, size.taps);
    Map out(y + part * s.out * size.pixels, s.out, size.pixels);
    out.noalias() = weight * columns_of(s, x + part * s.in * s.height * s.width);
    if (bias == nullptr) continue;
    out.colwise() += Eigen::Map<const Eigen::VectorXd>(bias + group * s.out, s.out);
  }
}

void conv_grad_input_double(const ConvShape& s, const double* dy, const double* w, double* dx) {
  const Columns size(s);
  const int64_t image_size = s.in * s.height * s.width;
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < s.batch * s.group; ++part) {
    const ConstMap weight(w + part % s.group * s.weights(), s.out, size.taps);
    const ConstMap out(dy + part * s.out * size.pixels, s.out, size.pixels);
    const Matrix columns = weight.transpose() * out;
    double* target = dx + part * image_size;
    std::fill_n(target, image_size, 0.0);
    for_each_tap(
        s, [&](int64_t tap, int64_t pixel, int64_t at) { target[at] += columns(tap, pixel); });
  }
}

void conv_grad_weight_double(const ConvShape& s, const double* x, const double* dy, double* dw) {
  const Columns size(s);
  std::fill_n(dw, s.group * s.weights(), 0.0);
  for (int64_t part = 0; part < s.batch * s.group; ++part) {
    Map weight(dw + part % s.group * s.weights(), s.out, size.taps);
    const ConstMap out(dy + part * s.out * size.pixels, s.out, size.pixels);
    weight.noalias() += out * columns_of(s, x + part * s.in * s.height * s.width).transpose();
  }
}

}  // namespace halfscope
