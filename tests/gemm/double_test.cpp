// SPDX-License-Identifier: MIT
// The reference backend's products in double: one chain per result, bit for bit, under every
// instruction set and number of threads.
#include <array>
#include <string>
#include <vector>

#include "emulation/engine/double_sums.h"
#include "tests/gemm/oracles.h"

namespace halfscope::testing {
namespace {

/// Numbers that use all bits of a double, so that the order of sums, or a fused product, matters.
std::vector<double> doubles(int64_t count, uint32_t seed) {
  Values values(seed, false);
  const std::vector<float> high = values(count), low = values(count);
  std::vector<double> result;
  for (size_t i = 0; i < high.size(); ++i) {
    result.push_back(static_cast<double>(high[i]) + 0x1p-25 * static_cast<double>(low[i]));
  }
  return result;
}

TEST(DoubleProducts, OfMatricesAreChains) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                {3, 50, 7},
                                {70, 9, 300},
                                {17, 33, 513},
                                {64, 600, 64},
                                {5, 4, 0}}) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        const std::vector<double> a = doubles(m * k, 1), b = doubles(k * n, 2),
                                  bias = doubles(n, 3);
        std::vector<double> expected;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; ++l) {
              const size_t left = static_cast<size_t>(trans_a ? l * m + i : i * k + l);
              const size_t right = static_cast<size_t>(trans_b ? j * k + l : l * n + j);
              sum += a[left] * b[right];
            }
            expected.push_back(sum + bias[static_cast<size_t>(j)]);
          }
        }
        everywhere([&](const std::string& where) {
          std::vector<double> c(expected.size(), -1.0);
          gemm_double(m, n, k, a.data(), trans_a, b.data(), trans_b, bias.data(), c.data());
          EXPECT_EQ(c, expected) << where << " " << m << "x" << n << "x" << k;
        });
      }
    }
  }
}

const ConvShape kShapes[] = {
    {.batch = 3, .in = 5, .height = 9, .width = 8, .out = 11},  // the image is its own columns
    {.batch = 2,
     .in = 3,
     .height = 10,
     .width = 9,
     .out = 20,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride_h = 2,
     .dilation_h = 2,
     .pad_top = 1,
     .pad_left = 1,
     .pad_bottom = 2},
    {.batch = 2,
     .group = 3,
     .in = 2,
     .height = 6,
     .width = 40,
     .out = 4,
     .kernel_h = 3,
     .kernel_w = 3,
     .pad_top = 1,
     .pad_left = 1,
     .pad_bottom = 1,
     .pad_right = 1},
};

/// Calls f(index into y, into x or -1 on the padding, into w), a tap of an output pixel at a time
/// in row-major order of y, then of w.
template <class F>
void for_products(const ConvShape& s, const F& f) {
  const int64_t oh = s.out_height(), ow = s.out_width();
  for (int64_t n = 0; n < s.batch * s.group * s.out; ++n) {
    const int64_t image_group = n / s.out, w = n % (s.group * s.out);
    for (int64_t pixel = 0; pixel < oh * ow; ++pixel) {
      for (int64_t tap = 0; tap < s.in * s.kernel_h * s.kernel_w; ++tap) {
        const int64_t c = tap / (s.kernel_h * s.kernel_w);
        const int64_t h =
            pixel / ow * s.stride_h - s.pad_top + tap / s.kernel_w % s.kernel_h * s.dilation_h;
        const int64_t v = pixel % ow * s.stride_w - s.pad_left + tap % s.kernel_w * s.dilation_w;
        const bool inside = h >= 0 && h < s.height && v >= 0 && v < s.width;
        f(n * oh * ow + pixel,
          inside ? ((image_group * s.in + c) * s.height + h) * s.width + v : int64_t{-1},
          w * s.in * s.kernel_h * s.kernel_w + tap);
      }
    }
  }
}

TEST(DoubleProducts, OfConvolutionsAreChains) {
  for (const ConvShape& s : kShapes) {
    const std::vector<double> x = doubles(s.batch * s.x_image(), 1);
    const std::vector<double> w = doubles(s.group * s.weights(), 2);
    const std::vector<double> dy = doubles(s.batch * s.y_image(), 3);
    std::vector<double> y(dy.size(), 0.0), dw(w.size(), 0.0);
    for_products(s, [&](int64_t to, int64_t from, int64_t tap) {
      if (from < 0) return;  // adds nothing to a sum
      const auto at = [](int64_t i) { return static_cast<size_t>(i); };
      y[at(to)] += x[at(from)] * w[at(tap)];
    });
    // The gradient of the weights, pixel after pixel: y is walked image by image, and pixel by
    // pixel in each.
    for_products(s, [&](int64_t to, int64_t from, int64_t tap) {
      const auto at = [](int64_t i) { return static_cast<size_t>(i); };
      if (from >= 0) dw[at(tap)] += x[at(from)] * dy[at(to)];
    });
    // The gradient of the image: the channels of y first, then the taps.
    std::vector<double> dx(x.size(), 0.0);
    const int64_t pixels = s.out_height() * s.out_width();
    const int64_t taps = s.in * s.kernel_h * s.kernel_w;
    std::vector<double> columns(static_cast<size_t>(s.batch * s.group * taps * pixels), 0.0);
    std::vector<int64_t> target(columns.size(), -1);
    for_products(s, [&](int64_t to, int64_t from, int64_t tap) {
      const int64_t part = to / pixels / s.out;
      const auto at = static_cast<size_t>((part * taps + tap % taps) * pixels + to % pixels);
      columns[at] += w[static_cast<size_t>(tap)] * dy[static_cast<size_t>(to)];
      target[at] = from;
    });
    for (size_t i = 0; i < columns.size(); ++i) {
      if (target[i] >= 0) dx[static_cast<size_t>(target[i])] += columns[i];
    }
    everywhere([&](const std::string& where) {
      std::vector<double> result(y.size(), -1.0);
      conv_forward_double(s, x.data(), w.data(), nullptr, result.data());
      EXPECT_EQ(result, y) << where;
      result.assign(dw.size(), -1.0);
      conv_grad_weight_double(s, x.data(), dy.data(), result.data());
      EXPECT_EQ(result, dw) << where;
      result.assign(dx.size(), -1.0);
      conv_grad_input_double(s, dy.data(), w.data(), result.data());
      EXPECT_EQ(result, dx) << where;
    });
  }
}

}  // namespace
}  // namespace halfscope::testing
