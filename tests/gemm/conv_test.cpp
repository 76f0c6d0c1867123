// SPDX-License-Identifier: MIT
// The three convolution products against scalar chains, bit for bit, and against the identity
// <dy, conv(x, w)> = <dx, x> = <dw, w> that gradients of a bilinear map obey.
#include <limits>

#include "tests/gemm/oracles.h"

namespace halfscope::testing {
namespace {

std::vector<ConvShape> shapes() {
  return {
      {},
      {.batch = 2, .in = 3, .height = 7, .width = 9, .out = 5, .kernel_h = 3, .kernel_w = 3},
      {.batch = 2, .in = 1, .height = 20, .width = 28, .out = 2, .kernel_h = 5, .kernel_w = 5},
      {.batch = 2, .in = 4, .height = 9, .width = 12, .out = 34, .kernel_h = 5, .kernel_w = 5},
      {.batch = 1,
       .in = 5,
       .height = 8,
       .width = 8,
       .out = 17,
       .kernel_h = 3,
       .kernel_w = 3,
       .pad_top = 1,
       .pad_left = 1,
       .pad_bottom = 1,
       .pad_right = 1},
      {.batch = 2,
       .in = 35,
       .height = 9,
       .width = 6,
       .out = 6,
       .kernel_h = 3,
       .kernel_w = 3,
       .stride_h = 2,
       .stride_w = 2,
       .pad_top = 1,
       .pad_left = 1,
       .pad_bottom = 1,
       .pad_right = 1},
      {.batch = 1,
       .in = 2,
       .height = 11,
       .width = 14,
       .out = 3,
       .kernel_h = 2,
       .kernel_w = 4,
       .stride_h = 3,
       .stride_w = 2,
       .dilation_h = 2,
       .dilation_w = 3,
       .pad_top = 2,
       .pad_left = 0,
       .pad_bottom = 1,
       .pad_right = 4},
      {.batch = 5, .in = 19, .height = 1, .width = 40, .out = 20, .kernel_h = 1, .kernel_w = 1},
      {.batch = 7,
       .in = 3,
       .height = 4,
       .width = 4,
       .out = 33,
       .kernel_h = 1,
       .kernel_w = 1,
       .stride_h = 2,
       .stride_w = 2},
      {.batch = 2,
       .in = 70,
       .height = 5,
       .width = 5,
       .out = 2,
       .kernel_h = 3,
       .kernel_w = 3,
       .pad_top = 1,
       .pad_left = 1,
       .pad_bottom = 1,
       .pad_right = 1},
      {.batch = 2,
       .in = 1,
       .height = 3,
       .width = 300,
       .out = 1,
       .kernel_h = 3,
       .kernel_w = 7,
       .dilation_w = 2,
       .pad_left = 5},
      {.batch = 2,
       .in = 2,
       .height = 2,
       .width = 2,
       .out = 3,
       .kernel_h = 5,
       .kernel_w = 5,
       .pad_top = 3,
       .pad_left = 3,
       .pad_bottom = 3,
       .pad_right = 3},
      {.batch = 1, .in = 2, .height = 30, .width = 30, .out = 2, .kernel_h = 3, .kernel_w = 3},
  };
}

struct Data {
  std::vector<float> x, w, bias, dy;
  int64_t dx_size, dw_size;
  Data(const ConvShape& s, uint32_t seed, bool wide) {
    Values values(seed, wide);
    x = values(s.batch * s.in * s.height * s.width);
    w = values(s.out * s.in * s.kernel_h * s.kernel_w);
    bias = values(s.out);
    dy = values(s.batch * s.out * s.out_height() * s.out_width());
  }
};

constexpr float kUntouched = 777.0f;

void check(const ConvShape& s, const Data& d, const SumSpec& spec, const std::string& name) {
  const std::vector<float> y = oracle_forward(s, d.x.data(), d.w.data(), nullptr, spec);
  const std::vector<float> biased = oracle_forward(s, d.x.data(), d.w.data(), d.bias.data(), spec);
  const std::vector<float> dx = oracle_grad_input(s, d.dy.data(), d.w.data(), spec);
  const std::vector<float> dw = oracle_grad_weight(s, d.x.data(), d.dy.data(), spec);
  everywhere([&](const std::string& where) {
    const std::string what = name + ", " + spec_name(spec) + ", " + where;
    std::vector<float> out(y.size(), kUntouched);
    conv_forward(s, d.x.data(), d.w.data(), nullptr, out.data(), spec);
    expect_same(y, out, "forward " + what);
    conv_forward(s, d.x.data(), d.w.data(), d.bias.data(), out.data(), spec);
    expect_same(biased, out, "forward with bias " + what);
    std::vector<float> out_dx(dx.size(), kUntouched);
    conv_grad_input(s, d.dy.data(), d.w.data(), out_dx.data(), spec);
    expect_same(dx, out_dx, "grad input " + what);
    std::vector<float> out_dw(dw.size(), kUntouched);
    conv_grad_weight(s, d.x.data(), d.dy.data(), out_dw.data(), spec);
    expect_same(dw, out_dw, "grad weight " + what);
  });
}

TEST(Conv, MatchesScalarChains) {
  int index = 0;
  for (const ConvShape& s : shapes()) {
    const Data data(s, 100 + index, index % 2 == 0);
    for (const SumSpec& spec : all_specs()) check(s, data, spec, "shape " + std::to_string(index));
    ++index;
  }
}

TEST(Conv, LongChains) {  // longer than any block of k, and work for several threads
  const ConvShape s{
      .batch = 3, .in = 61, .height = 12, .width = 14, .out = 15, .kernel_h = 3, .kernel_w = 3};
  const Data data(s, 7, false);
  check(s, data, {Accumulation::fp32, kFp32}, "long");
}

TEST(Conv, ThreadsShareTapsAndChannels) {
  const ConvShape few_taps{
      .batch = 20, .in = 1, .height = 14, .width = 14, .out = 40, .kernel_h = 3, .kernel_w = 1};
  const ConvShape strided{.batch = 4,
                          .in = 6,
                          .height = 17,
                          .width = 17,
                          .out = 40,
                          .kernel_h = 3,
                          .kernel_w = 3,
                          .stride_h = 2,
                          .stride_w = 2,
                          .pad_top = 1,
                          .pad_left = 1,
                          .pad_bottom = 1,
                          .pad_right = 1};
  for (const ConvShape& s : {few_taps, strided}) {
    const Data data(s, 8, false);
    check(s, data, {Accumulation::fp32, kFp32}, "threads");
    check(s, data, {Accumulation::fp64, kFp16}, "threads");
  }
}

TEST(Conv, NanAndInfinityFlowOnlyWhereTapsExist) {
  const ConvShape s{.batch = 2,
                    .in = 3,
                    .height = 6,
                    .width = 6,
                    .out = 4,
                    .kernel_h = 3,
                    .kernel_w = 3,
                    .pad_top = 1,
                    .pad_left = 1,
                    .pad_bottom = 1,
                    .pad_right = 1};
  Data d(s, 3, false);
  d.w[4] = std::numeric_limits<float>::infinity();
  d.w[40] = -std::numeric_limits<float>::quiet_NaN();
  d.x[10] = 0;
  d.dy[17] = 0;
  d.dy[30] = -std::numeric_limits<float>::infinity();
  for (const SumSpec& spec : all_specs()) check(s, d, spec, "specials");
}

TEST(Conv, EmptySizes) {
  const SumSpec spec;
  everywhere([&](const std::string& where) {
    std::vector<float> w(12, 1.0f), out(12, kUntouched);
    conv_grad_weight(
        {.batch = 0, .in = 3, .height = 4, .width = 4, .out = 1, .kernel_h = 2, .kernel_w = 2},
        nullptr, nullptr, out.data(), spec);
    expect_same(std::vector<float>(12, 0.0f), out, where);
    conv_forward({.batch = 0}, nullptr, w.data(), nullptr, nullptr, spec);
    const float bias = 2;
    float y[4] = {};
    conv_forward({.in = 0, .height = 2, .width = 2}, nullptr, nullptr, &bias, y, spec);
    expect_same({2, 2, 2, 2}, {y, y + 4}, where);
    conv_grad_input({.height = 2, .width = 2, .out = 0}, nullptr, nullptr, y, spec);
    expect_same({0, 0, 0, 0}, {y, y + 4}, where);
  });
}

/// One group of a tensor [images, groups, part].
std::vector<float> group_of(const std::vector<float>& all, int64_t images, int64_t groups,
                            int64_t group) {
  const int64_t part = static_cast<int64_t>(all.size()) / (images * groups);
  std::vector<float> result;
  for (int64_t n = 0; n < images; ++n) {
    const auto first = all.begin() + (n * groups + group) * part;
    result.insert(result.end(), first, first + part);
  }
  return result;
}

TEST(Conv, GroupsAreConvolutionsOfTheirOwn) {
  for (const ConvShape& s : shapes()) {
    if (s.in * s.out > 12 || s.width > 100) continue;
    ConvShape whole = s;
    whole.group = 3;
    Values values(11, true);
    const std::vector<float> x = values(whole.batch * whole.x_image());
    const std::vector<float> w = values(whole.group * whole.weights());
    const std::vector<float> bias = values(whole.group * whole.out);
    const std::vector<float> dy = values(whole.batch * whole.y_image());
    for (const SumSpec& spec : all_specs()) {
      std::vector<std::vector<float>> ys, dxs, dws;
      for (int64_t g = 0; g < whole.group; ++g) {
        const std::vector<float> own_x = group_of(x, s.batch, whole.group, g);
        const std::vector<float> own_w = group_of(w, 1, whole.group, g);
        const std::vector<float> own_dy = group_of(dy, s.batch, whole.group, g);
        std::vector<float>&y = ys.emplace_back(own_dy.size()), &dx = dxs.emplace_back(own_x.size()),
        &dw = dws.emplace_back(own_w.size());
        conv_forward(s, own_x.data(), own_w.data(), bias.data() + g * s.out, y.data(), spec);
        conv_grad_input(s, own_dy.data(), own_w.data(), dx.data(), spec);
        conv_grad_weight(s, own_x.data(), own_dy.data(), dw.data(), spec);
      }
      everywhere([&](const std::string& where) {
        std::vector<float> y(dy.size(), kUntouched), dx(x.size(), kUntouched);
        std::vector<float> dw(w.size(), kUntouched);
        conv_forward(whole, x.data(), w.data(), bias.data(), y.data(), spec);
        conv_grad_input(whole, dy.data(), w.data(), dx.data(), spec);
        conv_grad_weight(whole, x.data(), dy.data(), dw.data(), spec);
        for (int64_t g = 0; g < whole.group; ++g) {
          const size_t at = static_cast<size_t>(g);
          const std::string what = "group " + std::to_string(g) + ", " + spec_name(spec) + where;
          expect_same(ys[at], group_of(y, s.batch, whole.group, g), "forward " + what);
          expect_same(dxs[at], group_of(dx, s.batch, whole.group, g), "grad input " + what);
          expect_same(dws[at], group_of(dw, 1, whole.group, g), "grad weight " + what);
        }
      });
    }
  }
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(Conv, GradientsAreAdjoint) {
  const SumSpec spec{Accumulation::fp64, kFp32};
  for (const ConvShape& s : shapes()) {
    const Data d(s, 9, false);
    std::vector<float> y(d.dy.size()), dx(d.x.size()), dw(d.w.size());
    conv_forward(s, d.x.data(), d.w.data(), nullptr, y.data(), spec);
    conv_grad_input(s, d.dy.data(), d.w.data(), dx.data(), spec);
    conv_grad_weight(s, d.x.data(), d.dy.data(), dw.data(), spec);
    const double expected = dot(d.dy, y);
    // Every output has an error of at most half an ulp.
    const double tolerance = 1e-7 * std::sqrt(dot(y, y) * dot(d.dy, d.dy)) + 1e-7;
    EXPECT_NEAR(expected, dot(dx, d.x), 4 * tolerance);
    EXPECT_NEAR(expected, dot(dw, d.w), 4 * tolerance);
  }
}

}  // namespace
}  // namespace halfscope::testing
