// SPDX-License-Identifier: MIT
// Differences between the accumulations, in cases small enough to know the answer.
#include <limits>

#include "tests/gemm/oracles.h"
#include "tests/special_values.h"

namespace halfscope::testing {
namespace {

/// The dot product of two vectors, the same in every place of a matrix and on every machine.
float dot(const std::vector<float>& a, const std::vector<float>& b, const SumSpec& spec,
          const float* bias = nullptr) {
  const int64_t k = static_cast<int64_t>(a.size()), m = 9, n = 21;
  std::vector<float> rows, columns, biases;
  for (int64_t i = 0; i < m; ++i) rows.insert(rows.end(), a.begin(), a.end());
  for (int64_t j = 0; j < n; ++j) columns.insert(columns.end(), b.begin(), b.end());
  if (bias != nullptr) biases.assign(n, *bias);
  float first = 0;
  bool known = false;
  everywhere([&](const std::string& where) {
    std::vector<float> c(static_cast<size_t>(m * n));
    gemm(m, n, k, {rows.data(), k, 1}, {columns.data(), 1, k},
         bias != nullptr ? biases.data() : nullptr, c.data(), spec);
    if (!known) first = c[0];
    known = true;
    expect_same(std::vector<float>(c.size(), first), c, where);
  });
  return first;
}

const SumSpec kHalf{Accumulation::format, kFp16};
constexpr float kTiny = 0x1p-24f;  // smallest fp16

TEST(Accumulation, FormatRoundsOnceWhereFmaInFloatRoundsTwice) {
  // 2048 + (1 + tiny): just above the tie between 2048 and 2050. In fp32 tiny vanishes and the
  // tie goes to even.
  const std::vector<float> a{2048, 1 + 0x1p-10f}, b{1, 1 + 0x1p-10f};
  EXPECT_EQ(dot(a, b, kHalf), 2050);
  const float above_tie = 1 + 0x1p-8f;
  EXPECT_EQ(dot({2048, above_tie}, {1, 1}, kHalf), 2050);
  EXPECT_EQ(dot({2048, 1}, {1, 1}, kHalf), 2048);
  // 1 + 2^-11 is a tie; 2^-11 + 2^-46 = (2^-23 + 2^-58) * 2^12 is not, but it is one for fp32.
  const float p = 0x1p-11f + 0x1p-33f;  // exact in fp32
  EXPECT_EQ(std::fma(p, 1.0f, 1.0f), 1 + 0x1p-11f);
  EXPECT_EQ(dot({1, p}, {1, 1}, kHalf), 1 + 0x1p-10f);
}

TEST(Accumulation, FormatSeesWhatDoubleLoses) {
  // 2^-11 + 2^-58 as one product of floats: (2^-11) * (1 + 2^-23) * ... is too coarse, so use
  // bf16, 1 + 2^-8 + 2^-60: the last term is below the last bit of a double next to 1.
  const SumSpec bf16{Accumulation::format, kBf16};
  // acc = 1; then product 2^-8 * (1 + 2^-23)(1 - 2^-23) = 2^-8 - 2^-54: just below the tie.
  EXPECT_EQ(dot({1, 0x1p-8f * (1 + 0x1p-23f)}, {1, 1 - 0x1p-23f}, bf16), 1);
  // acc = 1 + 2^-7 (odd); a tie would go up to 1 + 2^-6, just below goes back.
  EXPECT_EQ(dot({1 + 0x1p-7f, 0x1p-8f * (1 + 0x1p-23f)}, {1, 1 - 0x1p-23f}, bf16), 1 + 0x1p-7f);
  EXPECT_EQ(dot({1 + 0x1p-7f, 0x1p-8f}, {1, 1}, bf16), 1 + 0x1p-6f);
}

TEST(Accumulation, FormatOverflowAndUnderflow) {
  EXPECT_EQ(dot({65504, 15.9f}, {1, 1}, kHalf), 65504);
  EXPECT_EQ(dot({65504, 16}, {1, 1}, kHalf), kInf);
  EXPECT_EQ(dot({-65504, -16}, {1, 1}, kHalf), -kInf);
  EXPECT_TRUE(std::isnan(dot({65504, 65504, -kInf}, {1, 1, 1}, kHalf)));
  EXPECT_EQ(dot({3e38f}, {3e38f}, kHalf), kInf);
  const SumSpec e4m3{Accumulation::format, kE4m3fn};
  EXPECT_EQ(dot({448, 16}, {1, 1}, e4m3), 448);
  EXPECT_TRUE(std::isnan(dot({448, 16.1f}, {1, 1}, e4m3)));
  EXPECT_TRUE(std::isnan(dot({448, 448, -448, -448}, {1, 1, 1, 1}, e4m3)));
  EXPECT_EQ(dot({kTiny, kTiny}, {1, 0.5f}, kHalf), 2 * kTiny);  // tie to even
  const float lost = dot({-kTiny}, {0.5f}, kHalf);
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(std::signbit(lost));
}

TEST(Accumulation, FormatAddsTheBiasRounded) {
  const float bias = 1.5f;
  EXPECT_EQ(dot({2048}, {1}, kHalf, &bias), 2050);
  const float tie = 1;
  EXPECT_EQ(dot({2048}, {1}, kHalf, &tie), 2048);
}

TEST(Accumulation, Fp64IsDeliveredRoundedOnce) {
  const SumSpec to_half{Accumulation::fp64, kFp16}, to_single{Accumulation::fp64, kFp32};
  // 1 + 2^-11 + 2^-40 is above the fp16 tie; the nearest fp32 number would be the tie itself.
  const std::vector<float> a{1, 0x1p-11f, 0x1p-40f}, one{1, 1, 1};
  EXPECT_EQ(round_to_format(dot(a, one, to_half), kFp16).value, 1 + 0x1p-10f);
  EXPECT_EQ(dot(a, one, to_single), 1 + 0x1p-11f);
  // Too small and too large for fp32.
  EXPECT_EQ(dot({0x1p-100f}, {0x1p-100f}, to_half), 0x1p-149f);
  EXPECT_EQ(dot({0x1p-100f}, {-0x1p-100f}, to_half), -0x1p-149f);
  EXPECT_EQ(dot({0x1p-100f}, {0x1p-100f}, to_single), 0);
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(dot({kMax}, {kMax}, to_half), kMax);
  EXPECT_EQ(dot({kMax}, {-kMax}, to_half), -kMax);
  EXPECT_EQ(dot({kMax}, {2}, to_single), std::numeric_limits<float>::infinity());
  EXPECT_EQ(dot({std::numeric_limits<float>::infinity()}, {1}, to_half),
            std::numeric_limits<float>::infinity());
  const float bias = 0x1p-40f;
  EXPECT_EQ(round_to_format(dot({1, 0x1p-11f}, {1, 1}, to_half, &bias), kFp16).value, 1 + 0x1p-10f);
}

TEST(Accumulation, Fp64MatchesLongDouble) {
  Values values(77);
  const int64_t k = 3000;
  const std::vector<float> a = values(k), b = values(k);
  long double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<long double>(a[i]) * b[i];
  const float result = dot(a, b, {Accumulation::fp64, kFp32});
  EXPECT_NEAR(result, static_cast<double>(sum), std::fabs(static_cast<double>(sum)) * 1e-7);
}

TEST(Accumulation, EveryFormatOnItsOwnValues) {
  for (const FloatFormat& format : {kFp16, kBf16, kTf32, kE4m3fn, kE5m2, FloatFormat{3, 2, 3},
                                    FloatFormat{8, 22, 127}, FloatFormat{2, 1, 1}}) {
    const SumSpec spec{Accumulation::format, format};
    Values values(13, true, format);
    const int64_t m = 11, n = 37, k = 100;
    const std::vector<float> a = values(m * k), b = values(k * n);
    const MatrixView av{a.data(), k, 1}, bv{b.data(), n, 1};
    const std::vector<float> expected = oracle_gemm(m, n, k, av, bv, nullptr, spec);
    everywhere([&](const std::string& where) {
      std::vector<float> c(m * n);
      gemm(m, n, k, av, bv, nullptr, c.data(), spec);
      expect_same(expected, c, where + ", " + spec_name(spec));
    });
  }
}

/// NaNs that a careless rounding to bf16 would make something else of, and infinities.
float special(int64_t i, bool in_bf16) {
  constexpr uint32_t kOfBf16[] = {0x7f810000, 0xff810000, 0x7fff0000, 0xffff0000, 0x7fc10000,
                                  0x7f800000, 0xff800000, 0xffc00000, 0x7fbf0000};
  constexpr uint32_t kAny[] = {0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fff8000,
                               0x7f80ffff, 0xffff8001, 0x7fc00001, 0x7f800000};
  return std::bit_cast<float>(in_bf16 ? kOfBf16[i % 9] : kAny[i % 9]);
}

TEST(Accumulation, NansOfAllKindsStayNans) {
  const int64_t m = 66, n = 67, k = 150;  // large enough for the operands to be scanned
  for (const FloatFormat& format : {kBf16, kFp16}) {
    for (const char* kind : {"format", "format-mul-add", "fma32-then-round"}) {
      for (const bool in_bf16 : {true, false}) {
        const SumSpec spec{*parse_accumulation(kind), format};
        Values values(29, false, format);
        std::vector<float> a = values(m * k), b = values(k * n), bias = values(n);
        for (int64_t i = 0; i < 9; ++i) {
          a[static_cast<size_t>(7 * i * k + 16 * i)] = special(i, in_bf16);
          b[static_cast<size_t>((149 - 16 * i) * n + 7 * i + 1)] = special(i, in_bf16);
          bias[static_cast<size_t>(7 * i + 3)] = special(i, false);
        }
        b[static_cast<size_t>(16 * 5 * n + 10)] = 0;  // times infinity
        const MatrixView av{a.data(), k, 1}, bv{b.data(), n, 1};
        const std::vector<float> expected = oracle_gemm(m, n, k, av, bv, bias.data(), spec);
        everywhere([&](const std::string& where) {
          std::vector<float> c(static_cast<size_t>(m * n)), noted(c.size());
          gemm(m, n, k, av, bv, bias.data(), c.data(), spec);
          expect_same(expected, c, where + ", " + spec_name(spec));
          Diagnostics seen;
          gemm(m, n, k, av, bv, bias.data(), noted.data(), spec, &seen);
          expect_same(expected, noted, where + " with diagnostics, " + spec_name(spec));
        });
      }
    }
  }
}

TEST(Accumulation, NansOfBf16InConvolutions) {
  const ConvShape s{.batch = 1,
                    .in = 16,
                    .height = 9,
                    .width = 9,
                    .out = 64,
                    .kernel_h = 3,
                    .kernel_w = 3,
                    .pad_top = 1,
                    .pad_left = 1,
                    .pad_bottom = 1,
                    .pad_right = 1};
  Values values(31, false, kBf16);
  const int64_t pixels = s.out_height() * s.out_width();
  std::vector<float> x = values(s.batch * s.in * s.height * s.width);
  std::vector<float> w = values(s.out * s.in * s.kernel_h * s.kernel_w),
                     dy = values(s.batch * s.out * pixels);
  std::vector<float> bias = values(s.out);
  for (int64_t i = 0; i < 9; ++i) {
    x[static_cast<size_t>(i * 140)] = special(i, true);
    w[static_cast<size_t>(i * 811)] = special(i, true);
    dy[static_cast<size_t>(i * 511)] = special(i, true);
    bias[static_cast<size_t>(i * 5)] = special(i, false);
  }
  for (const char* kind : {"format", "format-mul-add", "fma32-then-round"}) {
    const SumSpec spec{*parse_accumulation(kind), kBf16};
    const auto y = oracle_forward(s, x.data(), w.data(), bias.data(), spec);
    const auto dx = oracle_grad_input(s, dy.data(), w.data(), spec);
    const auto dw = oracle_grad_weight(s, x.data(), dy.data(), spec);
    everywhere([&](const std::string& where) {
      std::vector<float> y_seen(y.size()), dx_seen(dx.size()), dw_seen(dw.size());
      conv_forward(s, x.data(), w.data(), bias.data(), y_seen.data(), spec);
      conv_grad_input(s, dy.data(), w.data(), dx_seen.data(), spec);
      conv_grad_weight(s, x.data(), dy.data(), dw_seen.data(), spec);
      expect_same(y, y_seen, where + ", y, " + spec_name(spec));
      expect_same(dx, dx_seen, where + ", dx, " + spec_name(spec));
      expect_same(dw, dw_seen, where + ", dw, " + spec_name(spec));
    });
  }
}

}  // namespace
}  // namespace halfscope::testing
