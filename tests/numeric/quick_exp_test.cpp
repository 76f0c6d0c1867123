// SPDX-License-Identifier: MIT
// quick_exp() beside the C library's exp in extended precision, and the interval around a result.
#include "core/numeric/elementary/quick_exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

namespace halfscope::elementary {
namespace {

/// Returns the relative error of quick_exp(x).
double error_at(double x) {
  const long double exact = std::exp(static_cast<long double>(x));
  return static_cast<double>(std::fabs(static_cast<long double>(quick_exp(x)) - exact) / exact);
}

TEST(QuickExp, IsWithinItsError) {
  double worst = 0.0;
  // Every 499th float from 0 to the limit.
  for (uint32_t bits = 0x80000000u; std::bit_cast<float>(bits) > -707.0f; bits += 499) {
    worst = std::max(worst, error_at(static_cast<double>(std::bit_cast<float>(bits))));
  }
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> any(kQuickLeast, 0.0);
  for (int i = 0; i < 1'000'000; ++i) worst = std::max(worst, error_at(any(random)));
  EXPECT_LT(worst, kQuickError);
  EXPECT_GT(worst, kQuickError / 8.0) << "the stated error is too large";
}

TEST(QuickExp, OfTheLargestIsOne) { EXPECT_NEAR(quick_exp(0.0), 1.0, kQuickError); }

TEST(QuickExp, OfWhatIsTooSmallIsTiny) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double x : {kQuickLeast, -708.0, -1e9, -kInf, std::nan("")}) {
    EXPECT_GT(quick_exp(x), 0.0) << x;
    EXPECT_LE(quick_exp(x), 0x1p-1019) << x;
  }
}

TEST(QuickExp, RoundsSurelyWhatIsFarFromAMidpoint) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(-140.0, 128.5);
  int64_t sure = 0;
  for (int i = 0; i < 400'000; ++i) {
    double x = std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0 : -1.0);
    const uint32_t margin = 1u << (i % 24);
    if (i % 3 == 0) {  // close to a midpoint
      const uint64_t near = (bits_of(x) & ~0x1fffffffull) + 0x10000000u;
      x = from_bits(near + (random() % 64) * margin / 16 - 2ull * margin);
    }
    if (!rounds_surely(x, margin)) continue;
    ++sure;
    const float rounded = static_cast<float>(x);
    ASSERT_EQ(rounded, static_cast<float>(from_bits(bits_of(x) - margin))) << x << " " << margin;
    ASSERT_EQ(rounded, static_cast<float>(from_bits(bits_of(x) + margin))) << x << " " << margin;
    ASSERT_TRUE(std::isnormal(rounded));
  }
  EXPECT_GT(sure, 200'000);
  for (const double x : {0.0, 0x1p-127, 0x1p128, 1e300, static_cast<double>(INFINITY), std::nan(""),
                         1.0 + 0x1p-24}) {
    EXPECT_FALSE(rounds_surely(x, 1)) << x;
  }
  EXPECT_TRUE(rounds_surely(1.0, 1));
}

TEST(QuickExp, IntervalsContainTheError) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-99.0, 99.0), part(-1.0, 1.0);
  for (int i = 0; i < 200'000; ++i) {
    const double size = std::exp2(exponent(random)), value = i % 2 == 0 ? size : -size;
    const double error = size * std::exp2(-24.01 - (i % 30));
    const Interval near = narrow_interval(value, error);
    ASSERT_LE(static_cast<double>(near.low), value - error);
    ASSERT_GE(static_cast<double>(near.high), value + error);
    ASSERT_LT(static_cast<double>(near.high) - static_cast<double>(near.low), size * 0x1p-20);
  }
}

TEST(QuickExp, NoIntervalIsNan) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::pair<double, double> cases[] = {{1.0, 0x1p-23}, {0x1p-110, 0x1p-200}, {0.0, 0.0},
                                             {kInf, 0.0},    {kInf, kInf},         {1e300, 1e200},
                                             {1.0, kInf}};
  for (const auto& [value, error] : cases) {
    const Interval near = narrow_interval(value, error);
    EXPECT_TRUE(std::isnan(near.low)) << value << " " << error;
  }
  EXPECT_TRUE(std::isnan(narrow_interval(std::nan(""), 0.0).low));
  EXPECT_TRUE(std::isnan(narrow_interval(1.0, std::nan("")).low));
}

}  // namespace
}  // namespace halfscope::elementary
