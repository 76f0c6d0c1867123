// SPDX-License-Identifier: MIT
// The choice of a scale against brute force, and the window against counting at every scale.
#include "analysis/rules/scale_interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "analysis/format_limits.h"
#include "analysis/rules/loss_scale_window.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

/// Smallest number of intervals whose removal leaves a common scale, by trying all subsets.
size_t fewest_by_force(const std::vector<ScaleInterval>& intervals) {
  size_t fewest = intervals.size();
  for (uint32_t kept = 0; kept < (1u << intervals.size()); ++kept) {
    ScaleInterval common;
    size_t removed = 0;
    for (size_t i = 0; i < intervals.size(); ++i) {
      if ((kept >> i) & 1u) {
        common.intersect(intervals[i]);
      } else {
        ++removed;
      }
    }
    if (!common.empty()) fewest = std::min(fewest, removed);
  }
  return fewest;
}

TEST(ScaleInterval, AgreesWithBruteForce) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::vector<ScaleInterval> intervals(1 + random() % 9);
    for (ScaleInterval& interval : intervals) {
      // Whole exponents make ends coincide often; some intervals are empty.
      const int low = static_cast<int>(random() % 30) - 10;
      interval = {std::ldexp(1.0, low), std::ldexp(1.0, low - 1 + static_cast<int>(random() % 12))};
    }
    const ScaleChoice choice = best_scale(intervals);
    EXPECT_EQ(choice.outside.size(), fewest_by_force(intervals));
    if (choice.outside.size() == intervals.size()) continue;
    // Not middle_scale(), which leaves a window without a power of two.
    const double scale = std::sqrt(std::max(choice.window.low, 0x1p-100)) *
                         std::sqrt(std::min(choice.window.high, 0x1p100));
    for (size_t i = 0, out = 0; i < intervals.size(); ++i) {
      const bool outside = out < choice.outside.size() && choice.outside[out] == i;
      if (outside) ++out;
      EXPECT_NE(intervals[i].contains(scale), outside);
    }
  }
}

TEST(ScaleInterval, MiddleIsAPowerOfTwoWhereOneFits) {
  EXPECT_EQ(middle_scale({1.0, 256.0}), 16.0);
  EXPECT_EQ(middle_scale({3.0, 5.0}), 4.0);
  EXPECT_EQ(middle_scale({3.0, 4.5}), 4.0);
  EXPECT_EQ(middle_scale({3.9, 15.9}), 8.0);
  // If none fits, the next lower one: a scale that is too low flushes a little, one that is too
  // high overflows.
  EXPECT_EQ(middle_scale({4.5, 7.5}), 4.0);
  EXPECT_EQ(middle_scale({300.0, 500.0}), 256.0);
  EXPECT_EQ(middle_scale({2.0, 4.0}), 2.0);
  EXPECT_EQ(middle_scale({0.3, 0.4}), 0.25);
  EXPECT_TRUE(std::isfinite(middle_scale(ScaleInterval{})));
}

TEST(ScaleInterval, ThresholdsAreWhereRoundingLeavesTheFormat) {
  EXPECT_EQ(overflow_threshold(kFp16), 65520.0);
  EXPECT_EQ(flush_threshold(kFp16), 0x1p-25);
  EXPECT_EQ(overflow_threshold(kE4m3fn), 464.0);
}

/// The window promises: at any scale inside nothing overflows and hardly anything is flushed.
TEST(LossScaleWindow, HoldsWhenTheRunIsRepeatedInsideIt) {
  RunSpec spec = healthy_spec();
  spec.lanes.erase(spec.lanes.begin());
  spec.lanes[0].loss_scale = 1024.0;
  spec.lanes[0].dynamic = false;
  const RunView run = make_run(spec);
  const auto window = loss_scale_window(LaneFacts(run, 0));
  ASSERT_TRUE(window);
  ASSERT_FALSE(window->comfortable.empty());
  for (double scale :
       {window->comfortable.low * 1.0001, window->scale, window->comfortable.high * 0.9999}) {
    spec.lanes[0].loss_scale = scale;
    const RunView again = make_run(spec);
    for (const SiteInfo& site : again.lane(0).sites) {
      if (site.phase != Phase::backward) continue;
      const TensorStats total = again.total(0, site.order);
      EXPECT_EQ(total.overflow, 0) << site.name() << " at " << scale;
      if (site.format == kFp16) {
        EXPECT_LE(static_cast<double>(total.underflow), 0.01 * static_cast<double>(total.n));
      }
    }
  }
  // Twice the ceiling does overflow: the bound is not slack.
  spec.lanes[0].loss_scale = window->comfortable.high * 1.01;
  const RunView over = make_run(spec);
  EXPECT_GT(over.total(0, window->ceiling_site).overflow, 0);
}

}  // namespace
}  // namespace halfscope::test
