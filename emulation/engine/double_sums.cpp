// SPDX-License-Identifier: MIT
#include "emulation/engine/double_sums.h"

#include <Eigen/Core>
#include <algorithm>
#include <memory>
#include <vector>

#include "emulation/engine/double_tile.h"
#include "emulation/isa.h"
#include "emulation/team.h"

namespace halfscope {
namespace {

using Map = Eigen::Map<Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

DoubleTile active_tile() {
  switch (active_isa()) {
#if defined(__x86_64__)
    case Isa::avx2:
      return avx2_double_tile();
    case Isa::avx512:
      return avx512_double_tile();
#endif
    default:
      return baseline_double_tile();
  }
}

/// X(i, j) = data[i * row_stride + j * column_stride].
struct DoubleView {
  const double* data;
  int64_t row_stride, column_stride;
};

constexpr int64_t kDepth = 256;    // elements of k that are packed at once
constexpr int64_t kBreadth = 256;  // columns: kDepth rows of them fit into the L2 cache

/// Stores lines [first, first + count) of X(line, k) for k in [k0, k0 + depth) as to[k * width +
/// line]; the remaining lanes are zeros.
void pack(const double* data, int64_t line_stride, int64_t k_stride, int64_t first, int64_t count,
          int64_t k0, int64_t depth, int64_t width, double* to) {
  const double* const from = data + first * line_stride + k0 * k_stride;
  if (line_stride == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      std::copy_n(from + k * k_stride, count, to + k * width);
      std::fill(to + k * width + count, to + (k + 1) * width, 0.0);
    }
    return;
  }
  for (int64_t line = 0; line < width; ++line) {
    for (int64_t k = 0; k < depth; ++k) {
      to[k * width + line] = line < count ? from[line * line_stride + k * k_stride] : 0.0;
    }
  }
}

/// Returns memory for numbers that will all be written.
std::unique_ptr<double[]> unset(int64_t count) {
  return std::make_unique_for_overwrite<double[]>(static_cast<size_t>(count));
}

/// Computes c = [c +] a b; c is m x n, dense.
void product(int64_t m, int64_t n, int64_t k, const DoubleView& a, const DoubleView& b, double* c,
             bool accumulate) {
  if (k <= 0) {
    if (!accumulate) std::fill_n(c, m * n, 0.0);
    return;
  }
  const DoubleTile tile = active_tile();
  const int64_t row_tiles = (m + tile.rows - 1) / tile.rows;
  const int64_t panels = (n + tile.columns - 1) / tile.columns;
  const int64_t together = std::max<int64_t>(kBreadth / tile.columns, 1);
  constexpr int64_t kWorthThreads = 1 << 16;
  const int64_t deepest = std::min(kDepth, k);
  // Threads share the tiles; every element is one chain, whichever thread computes it.
  on_threads(m * n * k >= kWorthThreads ? omp_get_max_threads() : 1, [&](const Team& team) {
    const auto packed_a = unset(deepest * tile.rows);
    const auto packed_b = unset(deepest * tile.columns * std::min(together, panels));
    double edge[kMostDoubleRows * kMostDoubleColumns];
    // Each thread owns a contiguous part of the longer side.
    const bool by_rows = row_tiles >= panels;
    const int64_t all = by_rows ? row_tiles : panels;
    const int64_t begin = all * team.self / team.size, end = all * (team.self + 1) / team.size;
    const int64_t row_begin = by_rows ? begin : 0, row_end = by_rows ? end : row_tiles;
    const int64_t panel_begin = by_rows ? 0 : begin, panel_end = by_rows ? panels : end;
    for (int64_t q0 = panel_begin; q0 < panel_end; q0 += together) {
      const int64_t q_end = std::min(q0 + together, panel_end);
      for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
        const int64_t depth = std::min(kDepth, k - k0);
        for (int64_t q = q0; q < q_end; ++q) {
          const int64_t j = q * tile.columns, columns = std::min<int64_t>(tile.columns, n - j);
          pack(b.data, b.column_stride, b.row_stride, j, columns, k0, depth, tile.columns,
               packed_b.get() + (q - q0) * deepest * tile.columns);
        }
        for (int64_t t = row_begin; t < row_end; ++t) {
          const int64_t i = t * tile.rows, rows = std::min<int64_t>(tile.rows, m - i);
          pack(a.data, a.row_stride, a.column_stride, i, rows, k0, depth, tile.rows,
               packed_a.get());
          for (int64_t q = q0; q < q_end; ++q) {
            const int64_t j = q * tile.columns, columns = std::min<int64_t>(tile.columns, n - j);
            const double* const panel = packed_b.get() + (q - q0) * deepest * tile.columns;
            const bool goes_on = accumulate || k0 > 0;
            double* const to = c + i * n + j;
            if (rows == tile.rows && columns == tile.columns) {
              tile.run(depth, packed_a.get(), panel, to, n, goes_on);
              continue;
            }
            for (int64_t row = 0; goes_on && row < rows; ++row) {
              std::copy_n(to + row * n, columns, edge + row * tile.columns);
            }
            tile.run(depth, packed_a.get(), panel, edge, tile.columns, goes_on);
            for (int64_t row = 0; row < rows; ++row) {
              std::copy_n(edge + row * tile.columns, columns, to + row * n);
            }
          }
        }
      }
    }
  });
}

struct Columns {
  int64_t taps, pixels;  // rows and columns of the im2col matrix of one image
  explicit Columns(const ConvShape& s)
      : taps(s.in * s.kernel_h * s.kernel_w), pixels(s.out_height() * s.out_width()) {}
};

/// Calls f(tap, pixel, index into the image) for every tap inside the image.
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

/// Returns whether the image already is its own im2col matrix.
bool is_pointwise(const ConvShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 &&
         s.pad_top == 0 && s.pad_left == 0 && s.pad_bottom == 0 && s.pad_right == 0;
}

/// Returns the im2col matrix of an image; it is stored in `memory` unless the image itself serves.
const double* columns_of(const ConvShape& s, const double* image, std::vector<double>& memory) {
  if (is_pointwise(s)) return image;
  const Columns size(s);
  memory.assign(static_cast<size_t>(size.taps * size.pixels), 0.0);
  for_each_tap(s, [&](int64_t tap, int64_t pixel, int64_t at) {
    memory[static_cast<size_t>(tap * size.pixels + pixel)] = image[at];
  });
  return memory.data();
}

/// Calls f(part, memory) for all parts: on one thread each, unless there are too few parts.
template <class F>
void for_parts(int64_t parts, const F& f) {
  const int threads = omp_get_max_threads();
  on_threads(parts >= threads ? threads : 1, [&](const Team& team) {
    std::vector<double> memory;
    team.for_part(parts, [&](int64_t part) { f(part, memory); });
  });
}

}  // namespace

void gemm_double(int64_t m, int64_t n, int64_t k, const double* a, bool trans_a, const double* b,
                 bool trans_b, const double* bias, double* c) {
  if (m <= 0 || n <= 0) return;
  product(m, n, k, trans_a ? DoubleView{a, 1, m} : DoubleView{a, k, 1},
          trans_b ? DoubleView{b, 1, k} : DoubleView{b, n, 1}, c, false);
  if (bias != nullptr) Map(c, m, n).rowwise() += Eigen::Map<const Eigen::RowVectorXd>(bias, n);
}

// Images and groups share one index: part p is group p % group of image p / group.

void conv_forward_double(const ConvShape& s, const double* x, const double* w, const double* bias,
                         double* y) {
  const Columns size(s);
  for_parts(s.batch * s.group, [&](int64_t part, std::vector<double>& memory) {
    const int64_t group = part % s.group;
    double* const out = y + part * s.out * size.pixels;
    const double* const columns = columns_of(s, x + part * s.in * s.height * s.width, memory);
    product(s.out, size.pixels, size.taps, {w + group * s.weights(), size.taps, 1},
            {columns, size.pixels, 1}, out, false);
    if (bias == nullptr) return;
    Map(out, s.out, size.pixels).colwise() +=
        Eigen::Map<const Eigen::VectorXd>(bias + group * s.out, s.out);
  });
}

void conv_grad_input_double(const ConvShape& s, const double* dy, const double* w, double* dx) {
  const Columns size(s);
  const int64_t image_size = s.in * s.height * s.width;
  for_parts(s.batch * s.group, [&](int64_t part, std::vector<double>& memory) {
    double* const target = dx + part * image_size;
    double* columns = target;
    if (!is_pointwise(s)) {
      memory.resize(static_cast<size_t>(size.taps * size.pixels));
      columns = memory.data();
    }
    product(size.taps, size.pixels, s.out, {w + part % s.group * s.weights(), 1, size.taps},
            {dy + part * s.out * size.pixels, size.pixels, 1}, columns, false);
    if (columns == target) return;
    std::fill_n(target, image_size, 0.0);
    for_each_tap(s, [&](int64_t tap, int64_t pixel, int64_t at) {
      target[at] += columns[tap * size.pixels + pixel];
    });
  });
}

void conv_grad_weight_double(const ConvShape& s, const double* x, const double* dy, double* dw) {
  const Columns size(s);
  // Parallel over groups; each group sums its images in order.
  for_parts(s.group, [&](int64_t group, std::vector<double>& memory) {
    for (int64_t image = 0; image < s.batch; ++image) {
      const int64_t part = image * s.group + group;
      const double* const columns = columns_of(s, x + part * s.in * s.height * s.width, memory);
      product(s.out, size.taps, size.pixels, {dy + part * s.out * size.pixels, size.pixels, 1},
              {columns, 1, size.pixels}, dw + group * s.weights(), image > 0);
    }
    if (s.batch == 0) std::fill_n(dw + group * s.weights(), s.weights(), 0.0);
  });
}

}  // namespace halfscope
