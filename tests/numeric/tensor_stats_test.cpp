// SPDX-License-Identifier: MIT
// TensorStats: counts on data made by hand, merging, and the reference measure() against an
// independent recount.
#include "core/numeric/statistics/tensor_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/numeric/formats/round.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

TensorStats measure_copy(const std::vector<float>& exact, const FloatFormat& format) {
  std::vector<float> rounded(exact.size());
  return measure(exact, rounded, format);
}

int64_t bin(const TensorStats& stats, int exponent) {
  return stats.exponents[static_cast<size_t>(exponent - kMinExponentBin)];
}

std::vector<float> random_patterns(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(n);
  for (float& each : values) each = std::bit_cast<float>(static_cast<uint32_t>(generator()));
  return values;
}

TEST(TensorStatsTest, CountsByHand) {
  const std::vector<float> exact = {0.0f,  -0.0f, 1.0f,     -1.5f,    70000.0f,  -65520.0f, kInf,
                                    -kInf, kNan,  0x1p-25f, 0x1p-24f, -0x1p-20f, 0x1p-149f, 3.0f};
  std::vector<float> rounded(exact.size());
  const TensorStats stats = measure(exact, rounded, kFp16);
  EXPECT_EQ(stats.n, 14);
  EXPECT_EQ(stats.zero, 2);
  EXPECT_EQ(stats.pos_inf, 1);
  EXPECT_EQ(stats.neg_inf, 1);
  EXPECT_EQ(stats.nan, 1);
  EXPECT_EQ(stats.overflow, 2);
  EXPECT_EQ(stats.underflow, 2);
  EXPECT_EQ(stats.subnormal, 2);
  EXPECT_EQ(stats.lost, 0);
  EXPECT_EQ(stats.max_abs, 70000.0f);
  EXPECT_EQ(stats.min_abs, 0x1p-149f);
  EXPECT_EQ(bin(stats, 0), 2);
  EXPECT_EQ(bin(stats, 1), 1);
  EXPECT_EQ(bin(stats, 16), 1);
  EXPECT_EQ(bin(stats, 15), 1);
  EXPECT_EQ(bin(stats, -149), 1);
  EXPECT_EQ(rounded[4], kInf);
  EXPECT_EQ(rounded[5], -kInf);
  EXPECT_EQ(rounded[9], 0.0f);
  EXPECT_TRUE(std::signbit(rounded[1]));
}

TEST(TensorStatsTest, NothingIsMeasuredInAnEmptyTensor) {
  EXPECT_EQ(measure_copy({}, kFp16), TensorStats{});
}

TEST(TensorStatsTest, ResultMayReplaceTheInput) {
  std::vector<float> values = random_patterns(5000, 1);
  std::vector<float> rounded(values.size());
  const TensorStats apart = measure(values, rounded, kBf16);
  EXPECT_EQ(measure(values, values, kBf16), apart);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(rounded[i]));
  }
}

TEST(TensorStatsTest, EverythingAgreesWithARecount) {
  for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn, kFp32}) {
    const std::vector<float> exact = random_patterns(20000, 2);
    const TensorStats stats = measure_copy(exact, format);
    TensorStats want;
    long double sum = 0;
    for (const float x : exact) {
      ++want.n;
      want.nan += std::isnan(x);
      want.pos_inf += x == kInf;
      want.neg_inf += x == -kInf;
      want.zero += x == 0;
      if (!std::isfinite(x) || x == 0) continue;
      const float rounded = round_to_format(x, format).value;
      want.overflow += !std::isfinite(rounded);
      want.underflow += rounded == 0;
      want.subnormal +=
          rounded != 0 && static_cast<double>(std::fabs(rounded)) < format.min_normal();
      want.max_abs = std::fmax(want.max_abs, std::fabs(x));
      want.min_abs = std::fmin(want.min_abs, std::fabs(x));
      ++want.exponents[static_cast<size_t>(std::ilogb(x) - kMinExponentBin)];
      sum += static_cast<long double>(x);
    }
    EXPECT_NEAR(static_cast<double>(static_cast<long double>(stats.sum) - sum), 0.0, 1e25);
    want.sum = stats.sum;
    want.sum_sq = stats.sum_sq;
    EXPECT_EQ(stats, want) << format_name(format);
    int64_t in_bins = 0;
    for (const int64_t count : stats.exponents) in_bins += count;
    EXPECT_EQ(in_bins, stats.n - stats.zero - stats.non_finite());
  }
}

TEST(TensorStatsTest, SumsFollowTheDocumentedOrder) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  std::vector<float> exact(static_cast<size_t>(2 * kSumChunk + 21));
  for (float& each : exact) each = normal(generator) * 1e10f + 1e-10f;
  double sum = 0.0;
  for (size_t first = 0; first < exact.size(); first += static_cast<size_t>(kSumChunk)) {
    double p[16] = {};
    for (size_t i = 0; i < static_cast<size_t>(kSumChunk) && first + i < exact.size(); ++i) {
      p[i % 16] += static_cast<double>(exact[first + i]);
    }
    const double q[8] = {p[0] + p[8],  p[1] + p[9],  p[2] + p[10], p[3] + p[11],
                         p[4] + p[12], p[5] + p[13], p[6] + p[14], p[7] + p[15]};
    sum += ((q[0] + q[4]) + (q[2] + q[6])) + ((q[1] + q[5]) + (q[3] + q[7]));
  }
  EXPECT_EQ(measure_copy(exact, kFp16).sum, sum);
}

TEST(TensorStatsTest, MergingIsAssociativeAndCommutativeInAllButTheSums) {
  const auto without_sums = [](TensorStats stats) {
    stats.sum = stats.sum_sq = 0.0;
    return stats;
  };
  TensorStats a = without_sums(measure_copy(random_patterns(1000, 11), kFp16));
  TensorStats b = without_sums(measure_copy(random_patterns(77, 12), kFp16));
  const TensorStats c = without_sums(measure_copy({0.0f, 1.0f, kNan}, kFp16));
  b.lost = 5;

  TensorStats ab = a;
  ab.merge(b);
  TensorStats ba = b;
  ba.merge(a);
  EXPECT_EQ(ab, ba);

  TensorStats left = ab;
  left.merge(c);
  TensorStats bc = b;
  bc.merge(c);
  TensorStats right = a;
  right.merge(bc);
  EXPECT_EQ(left, right);
  EXPECT_EQ(left.n, 1080);
  EXPECT_EQ(left.lost, 5);

  TensorStats with_nothing = a;
  with_nothing.merge(TensorStats{});
  EXPECT_EQ(with_nothing, a);
}

TEST(TensorStatsTest, MergingPartsIsMeasuringTheWhole) {
  const std::vector<float> whole = random_patterns(static_cast<size_t>(3 * kSumChunk + 5), 13);
  TensorStats merged;
  for (size_t first = 0; first < whole.size(); first += static_cast<size_t>(kSumChunk)) {
    const size_t last = std::min(whole.size(), first + static_cast<size_t>(kSumChunk));
    merged.merge(measure_copy(
        {whole.begin() + static_cast<int64_t>(first), whole.begin() + static_cast<int64_t>(last)},
        kE5m2));
  }
  EXPECT_EQ(merged, measure_copy(whole, kE5m2));
}

}  // namespace
}  // namespace halfscope
