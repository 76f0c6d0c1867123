// SPDX-License-Identifier: MIT
// gemm() and sum_except() against scalar chains, bit for bit.

#include "tests/gemm/oracles.h"
#include "tests/special_values.h"

namespace halfscope::testing {
namespace {

constexpr float kUntouched = -12345.0f;

struct Case {
  int64_t m, n, k;
};

/// Both operands with either stride 1, or none; with and without bias. `layouts` 1 is a short form.
void check_gemm(const Case& s, const SumSpec& spec, bool wide, int layouts = 3) {
  Values values(static_cast<uint32_t>(s.m * 31 + s.n * 7 + s.k), wide);
  const std::vector<float> a = values(s.m * s.k * 2 + 1), b = values(s.k * s.n * 2 + 1);
  const std::vector<float> bias = values(s.n);
  const MatrixView a_views[] = {{a.data(), s.k, 1}, {a.data(), 1, s.m}, {a.data(), 2 * s.k, 2}};
  const MatrixView b_views[] = {{b.data(), s.n, 1}, {b.data(), 1, s.k}, {b.data(), 2, 2 * s.k}};
  for (int layout = 0; layout < layouts; ++layout) {
    for (const bool biased : {false, true}) {
      if (layouts == 1 && !biased) continue;
      const MatrixView av = a_views[layout], bv = b_views[(layout + s.m) % 3];
      const float* bias_data = biased ? bias.data() : nullptr;
      const std::vector<float> expected = oracle_gemm(s.m, s.n, s.k, av, bv, bias_data, spec);
      everywhere([&](const std::string& where) {
        std::vector<float> c(static_cast<size_t>(s.m * s.n) + 1, kUntouched);
        gemm(s.m, s.n, s.k, av, bv, bias_data, c.data(), spec);
        EXPECT_EQ(c.back(), kUntouched);
        c.pop_back();
        expect_same(expected, c,
                    where + ", " + spec_name(spec) + " " + std::to_string(s.m) + "x" +
                        std::to_string(s.n) + "x" + std::to_string(s.k) + " layout " +
                        std::to_string(layout));
      });
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Gemm, OddShapesMatchScalarChains) {
  for (const Case& s : {Case{1, 1, 1}, Case{1, 1, 17}, Case{3, 5, 7}, Case{14, 32, 9},
                        Case{15, 33, 16}, Case{13, 47, 33}, Case{29, 10, 64}, Case{10, 97, 5},
                        Case{200, 3, 11}, Case{2, 190, 21}, Case{16, 16, 1}}) {
    for (const SumSpec& spec : all_specs()) check_gemm(s, spec, false);
  }
}

TEST(Gemm, WideExponentsMatchScalarChains) {
  for (const Case& s : {Case{17, 35, 50}, Case{5, 70, 129}}) {
    for (const SumSpec& spec : all_specs()) check_gemm(s, spec, true);
  }
}

TEST(Gemm, LongChainsAreCutWithoutChangingThem) {
  for (const SumSpec& spec : all_specs()) {
    check_gemm({2, 9, 5000}, spec, false, 1);
    check_gemm({3, 33, 513}, spec, false, 1);
  }
}

TEST(Gemm, ManyPanelsAndRowTiles) {
  check_gemm({61, 301, 40}, {Accumulation::fp32, kFp32}, false);
  check_gemm({150, 70, 100}, {Accumulation::fp32, kFp32}, false, 1);
  check_gemm({150, 70, 100}, {Accumulation::fp64, kFp16}, false, 1);
  check_gemm({6, 1800, 600}, {Accumulation::fp32, kFp32}, false, 1);
}

TEST(Gemm, EmptySizes) {
  const float a[4] = {1, 2, 3, 4}, bias[2] = {0.5f, -0.0f};
  for (const SumSpec& spec : all_specs()) {
    everywhere([&](const std::string& where) {
      float c[4] = {9, 9, 9, 9};
      gemm(0, 2, 2, {a, 2, 1}, {a, 2, 1}, nullptr, c, spec);
      gemm(2, 0, 2, {a, 2, 1}, {a, 2, 1}, nullptr, c, spec);
      EXPECT_EQ(c[0], 9) << where;
      gemm(2, 2, 0, {a, 2, 1}, {a, 2, 1}, nullptr, c, spec);
      expect_same({0, 0, 0, 0}, {c, c + 4}, where);
      gemm(2, 2, 0, {a, 2, 1}, {a, 2, 1}, bias, c, spec);
      expect_same({0.5f, 0, 0.5f, 0}, {c, c + 4}, where);
    });
  }
}

TEST(Gemm, NanAndInfinityFlow) {
  Values values(5);
  std::vector<float> a = values(20 * 30), b = values(30 * 40);
  a[3 * 30 + 4] = kInf;  // times a zero: NaN
  b[4 * 40 + 7] = 0;
  a[5 * 30 + 6] = -kNan;
  b[8 * 40 + 9] = -kInf;
  a[11 * 30 + 8] = 0;
  a[12 * 30 + 1] = kInf;  // inf - inf
  a[12 * 30 + 2] = kInf;
  b[1 * 40 + 3] = 1;
  b[2 * 40 + 3] = -1;
  for (const SumSpec& spec : all_specs()) {
    const MatrixView av{a.data(), 30, 1}, bv{b.data(), 40, 1};
    const std::vector<float> expected = oracle_gemm(20, 40, 30, av, bv, nullptr, spec);
    EXPECT_TRUE(std::isnan(expected[3 * 40 + 7]));
    EXPECT_TRUE(std::isnan(expected[11 * 40 + 9]));
    EXPECT_TRUE(std::isnan(expected[12 * 40 + 3]));
    everywhere([&](const std::string& where) {
      std::vector<float> c(20 * 40);
      gemm(20, 40, 30, av, bv, nullptr, c.data(), spec);
      expect_same(expected, c, where + ", " + spec_name(spec));
    });
  }
}

TEST(SumExcept, MatchesScalarChains) {
  struct Shape {
    int64_t outer, n, inner;
  };
  for (const Shape& s : {Shape{1, 1, 1}, Shape{128, 10, 1}, Shape{300, 37, 1}, Shape{3, 33, 25},
                         Shape{2, 16, 576}, Shape{5, 7, 300}, Shape{0, 4, 3}, Shape{1000, 1, 3}}) {
    Values values(11, s.n % 2 == 0);
    const std::vector<float> x = values(s.outer * s.n * s.inner);
    for (const SumSpec& spec : all_specs()) {
      const std::vector<float> expected = oracle_sum_except(s.outer, s.n, s.inner, x.data(), spec);
      everywhere([&](const std::string& where) {
        std::vector<float> out(static_cast<size_t>(s.n), kUntouched);
        sum_except(s.outer, s.n, s.inner, x.data(), out.data(), spec);
        expect_same(expected, out, where + ", " + spec_name(spec));
      });
    }
  }
}

}  // namespace
}  // namespace halfscope::testing
