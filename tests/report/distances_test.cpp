// SPDX-License-Identifier: MIT
// Distances in one unit: differences counted in ulps of any format against the differences
// themselves.
#include "analysis/distances.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/numeric/statistics/ulp.h"
#include "core/observe/comparator.h"
#include "tests/report/report_fixtures.h"
#include "tests/report/synthetic.h"

namespace halfscope {
namespace {

std::string bar_with(const std::vector<float>& x, const std::vector<float>& other,
                     const FloatFormat& format) {
  const SiteError error = compare_values(x, other, 1.0, format);
  std::string found;
  for (const DistanceBar& bar : distance_bars(error.ulps, format, 0)) {
    if (bar.count > 0) found += (found.empty() ? "" : " ") + std::string(bar.label);
  }
  return found;
}

TEST(Distances, OneDifferenceHasOneBarInAllFormats) {
  // 1 + 2^-9 is two ulps of fp16 from 1, 16,384 of fp32: a difference of 0.2%.
  EXPECT_EQ(bar_with({1.0f + 0x1p-9f}, {1.0f}, kFp16), bar_with({1.0f + 0x1p-9f}, {1.0f}, kFp32));
  EXPECT_EQ(bar_with({1.0f + 0x1p-9f}, {1.0f}, kFp16), "1e-2");
  EXPECT_EQ(bar_with({1.25f}, {1.0f}, kFp16), bar_with({1.25f}, {1.0f}, kBf16));
  EXPECT_EQ(bar_with({1.0f}, {1.0f}, kBf16), "equal");
  EXPECT_EQ(bar_with({1.0f + 0x1p-23f}, {1.0f}, kFp32), "1e-6");
}

TEST(Distances, ABarIsWithinAFactorOfTwoOfTheDifference) {
  for (const FloatFormat& format : {kFp32, kFp16, kBf16}) {
    for (double difference = 0.3; difference > 2e-6; difference /= 3.0) {
      const float x = round_to_format(static_cast<float>(1.0 + difference), format).value;
      const double real = static_cast<double>(x) - 1.0;
      if (real <= 0.0) continue;
      const std::string bar = bar_with({x}, {1.0f}, format);
      const double most = bar == "more" ? INFINITY : std::stod(bar);
      EXPECT_LE(real, 2.0 * most) << bar;
      EXPECT_GT(real, bar == "more" ? 0.05 : bar == "1e-6" ? 0.0 : most / 20.0) << bar;
    }
  }
}

TEST(Distances, WhatIsNotFiniteIsCountedApart) {
  const float inf = INFINITY, nan = std::nanf("");
  // The other lane's 1e5 would be infinite in fp16, too; that does not count as agreement.
  const SiteError error =
      compare_values(std::vector<float>{inf, nan, inf, 1.0f, nan},
                     std::vector<float>{1e5f, 2.0f, inf, 1.0f, nan}, 1.0, kFp16);
  EXPECT_EQ(error.differing, 2);
  EXPECT_EQ(error.ulps[0], 3) << "both infinite, 1, both NaN";
  EXPECT_EQ(error.ulps.back(), 2);
  const auto bars = distance_bars(error.ulps, kFp16, 2);
  EXPECT_EQ(bars.front().count, 3);
  EXPECT_EQ(bars.back().count, 2);
  EXPECT_EQ(bars.back().kind, DistanceBar::Kind::not_finite);
}

TEST(Distances, OfWideFormatsTheStatisticsTellNaNFromFar) {
  // fp32 values of opposite signs are more than 2^24 ulps apart, which is in the same bin as NaN.
  RunView run = test::make_run(test::healthy_spec());
  const int site = *run.find_site(0, "conv1.activation");
  SiteError error{.step = 0, .site = site, .other_lane = 1, .other_site = site};
  error.n = 4;
  error.ulps.back() = 4;
  EXPECT_EQ(not_finite_in_one(run, 0, error), 0) << "all recorded values are finite";
  const int narrow = *run.find_site(1, "conv1.activation");
  error.site = narrow;
  error.other_lane = 0;
  EXPECT_EQ(not_finite_in_one(run, 1, error), 4) << "fp16 has no values so far apart";
}

}  // namespace
}  // namespace halfscope
