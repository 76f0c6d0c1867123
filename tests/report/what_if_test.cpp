// SPDX-License-Identifier: MIT
// what_if compared with rounding every element: the true counts are within the bounds.
#include "analysis/what_if.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "analysis/format_limits.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

struct Counts {
  int64_t overflow = 0, underflow = 0, subnormal = 0;
  int64_t ties = 0;  ///< flushed from exactly the threshold
};

/// Element after element, rounded once.
Counts counts_of(const std::vector<float>& values, const FloatFormat& format, double shift) {
  Counts counts;
  for (const float x : values) {
    if (!std::isfinite(x) || x == 0.0f) continue;
    const double scaled = static_cast<double>(x) * std::exp2(shift);
    const uint8_t flags = round_to_format(scaled, format).flags;
    counts.overflow += (flags & kOverflow) != 0;
    counts.underflow += (flags & kFlushed) != 0;
    counts.subnormal += (flags & kSubnormal) != 0;
    const bool tie = std::fabs(scaled) == flush_threshold(format);
    counts.ties += tie && (flags & kFlushed) != 0;
  }
  return counts;
}

TensorStats stats_of(const std::vector<float>& values, const FloatFormat& format) {
  std::vector<float> rounded(values.size());
  return measure(values, rounded, format);
}

FloatFormat format_of(const char* name) { return parse_format(name).value(); }

std::vector<FloatFormat> formats() {
  std::vector<FloatFormat> all;
  for (const char* name : {"fp16",     "bf16",     "fp32",       "tf32",     "e4m3fn",
                           "e5m2",     "e4m3fnuz", "e5m2fnuz",   "e3m2",     "e2m3",
                           "e2m1",     "fp16:ftz", "e4m3fn:sat", "e6m9",     "e5m10fn",
                           "e3m0",     "e4m0fn",   "e2m0finite", "e3m0:ftz", "e5m7:sat:ftz-out",
                           "e8m0b130", "e4m3b20"}) {
    all.push_back(format_of(name));
  }
  return all;
}

void expect_within(int64_t count, const CountBounds& bounds, const std::string& what) {
  EXPECT_LE(bounds.low, count) << what;
  EXPECT_GE(bounds.high, count) << what;
}

void compare(const std::vector<float>& values, double shift) {
  const TensorStats stats = stats_of(values, kFp32);
  for (const FloatFormat& format : formats()) {
    const Counts truth = counts_of(values, format, shift);
    const WhatIf bounds = what_if(stats, kFp32, format, shift);
    const std::string what = format_name(format) + " at 2^" + std::to_string(shift);
    expect_within(truth.overflow, bounds.overflow, what + ", overflow");
    expect_within(truth.underflow, {bounds.underflow.low, bounds.underflow.high + bounds.ties},
                  what + ", underflow");
    expect_within(truth.subnormal, {bounds.subnormal.low - bounds.ties, bounds.subnormal.high},
                  what + ", subnormal");
    EXPECT_GE(bounds.subnormal.low, 0) << what;
    // Except for ties, the bounds are valid without them.
    if (truth.ties == 0) expect_within(truth.underflow, bounds.underflow, what + ", no ties");
  }
}

/// Any bit pattern of fp32: all exponents, infinities and NaN.
std::vector<float> any_floats(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::bit_cast<float>(static_cast<uint32_t>(random_word(seed, i)));
  }
  return values;
}

/// Around 2^exponent; with `bits` significand bits, so that ties happen.
std::vector<float> around(double exponent, double spread, int bits, size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = random_word(seed, i);
    double log2 = exponent;
    for (int part = 0; part < 4; ++part) {
      const double uniform = static_cast<double>((word >> (16 * part)) & 0xffff) / 65536.0;
      log2 += spread * (uniform - 0.5);
    }
    const double x = std::exp2(log2);
    const double step = std::exp2(std::floor(log2) - bits + 1);
    values[i] = static_cast<float>(std::round(x / step) * step * ((word & 1) != 0 ? -1.0 : 1.0));
  }
  return values;
}

constexpr double kShifts[] = {0, 1, -1, 7, -9, 24, -24, 60, -60, 0.5, -0.5, 3.3, -11.75};

TEST(WhatIf, BoundsHoldTheTruthOfAnyFloats) {
  for (const double shift : kShifts) compare(any_floats(3000, 7), shift);
}

TEST(WhatIf, BoundsHoldTheTruthAroundTheLimits) {
  for (const double exponent : {-24.0, -14.0, -7.0, 0.0, 8.0, 15.0}) {
    for (const int bits : {1, 3, 11, 24}) {
      for (const double shift : kShifts) {
        compare(around(exponent, 3.0, bits, 400, static_cast<uint64_t>(bits)), shift);
      }
    }
  }
}

TEST(WhatIf, FewElementsAndExtremes) {
  for (const double shift : kShifts) {
    compare({}, shift);
    compare({0.0f, -0.0f}, shift);
    compare({NAN, INFINITY, -INFINITY}, shift);
    compare({65520.0f}, shift);
    compare({65519.996f, 65520.0f}, shift);
    compare({464.0f, 448.0f, 240.0f, 248.0f}, shift);
    compare({0x1p-25f, 0x1p-24f, 0x1p-149f}, shift);
    compare({3.0e38f, -1.0e-40f, 5.0f, 5.0f}, shift);
  }
}

TEST(WhatIf, TheRecordedFormatGivesItsOwnCounters) {
  for (const FloatFormat& format : formats()) {
    const std::vector<float> values = around(-14.0, 30.0, 24, 2000, 3);
    const TensorStats stats = stats_of(values, format);
    const WhatIf same = what_if(stats, format, format, 0.0);
    EXPECT_TRUE(same.recorded);
    EXPECT_EQ(same.overflow, (CountBounds{stats.overflow, stats.overflow}));
    EXPECT_EQ(same.underflow, (CountBounds{stats.underflow, stats.underflow}));
    EXPECT_EQ(same.subnormal, (CountBounds{stats.subnormal, stats.subnormal}));
    EXPECT_EQ(same.ties, 0);
    EXPECT_FALSE(what_if(stats, format, format, 1.0).recorded);
  }
}

TEST(WhatIf, AThresholdThatIsAPowerOfTwoCutsNoBin) {
  const std::vector<float> values = around(-24.0, 8.0, 24, 2000, 5);
  const TensorStats stats = stats_of(values, kBf16);
  for (const char* name : {"fp16", "e5m2", "e4m3fn", "e4m3fnuz", "e2m1", "e6m9"}) {
    for (const double shift : {0.0, 3.0, -5.0, 12.0}) {
      const WhatIf answer = what_if(stats, kBf16, format_of(name), shift);
      EXPECT_TRUE(answer.underflow.exact()) << name << " at 2^" << shift;
    }
  }
  const WhatIf fp16 = what_if(stats, kBf16, kFp16, 0.0);
  EXPECT_EQ(fp16.underflow.low, counts_of(values, kFp16, 0.0).underflow);
  EXPECT_GT(fp16.underflow.low, 0);
  EXPECT_FALSE(what_if(stats, kBf16, kFp16, 0.5).underflow.exact()) << "within a bin";
}

TEST(WhatIf, TheLargestAndSmallestDecide) {
  // In the bin that 65520 falls into, but below it: none overflows.
  const TensorStats below = stats_of({40000.0f, 65000.0f, 1.0f}, kBf16);
  EXPECT_EQ(what_if(below, kBf16, kFp16, 0.0).overflow, (CountBounds{0, 0}));
  // One certainly overflows, one certainly does not, one is uncertain.
  const TensorStats cut = stats_of({65530.0f, 40000.0f, 50000.0f}, kBf16);
  EXPECT_EQ(what_if(cut, kBf16, kFp16, 0.0).overflow, (CountBounds{1, 2}));
  // All values are equal: no uncertainty.
  const TensorStats alike = stats_of({65520.0f, 65520.0f}, kBf16);
  EXPECT_EQ(what_if(alike, kBf16, kFp16, 0.0).overflow, (CountBounds{2, 2}));
  // The tie at 464 goes to the even 448, which is finite.
  const TensorStats even = stats_of({464.0f, 464.0f}, kBf16);
  EXPECT_EQ(what_if(even, kBf16, kE4m3fn, 0.0).overflow, (CountBounds{0, 0}));
}

TEST(WhatIf, TiesAreToldApart) {
  // Two at 2^-25, half of the smallest fp16 number, flushed; which of the bin the histogram hides.
  const std::vector<float> values{0x1p-30f, 0x1p-25f, 0x1p-25f, 0x1.8p-25f};
  const TensorStats stats = stats_of(values, kBf16);
  const WhatIf answer = what_if(stats, kBf16, kFp16, 0.0);
  EXPECT_EQ(answer.underflow, (CountBounds{1, 1}));
  EXPECT_EQ(answer.ties, 3);
  // As the smallest value, it is known exactly.
  const WhatIf known = what_if(stats_of({0x1p-25f, 0x1.8p-25f}, kBf16), kBf16, kFp16, 0.0);
  EXPECT_EQ(known.underflow, (CountBounds{1, 1}));
  EXPECT_EQ(known.ties, 0);
}

TEST(WhatIf, TheScaleThatFits) {
  const std::vector<float> tiny = around(-30.0, 4.0, 24, 500, 9);
  const TensorStats stats = stats_of(tiny, kFp16);
  ASSERT_GT(stats.underflow, 0);
  const int shift = fitting_shift(stats, kFp16, kFp16, 32);
  const Counts there = counts_of(tiny, kFp16, shift);
  EXPECT_EQ(there.overflow + there.underflow, 0);
  // In the middle of all fitting scales: there is room in both directions.
  const Counts below = counts_of(tiny, kFp16, shift - 8), above = counts_of(tiny, kFp16, shift + 8);
  EXPECT_EQ(below.overflow + below.underflow + above.overflow + above.underflow, 0);
  // Wider than the format: no overflow, and no less underflow without one.
  const std::vector<float> wide = around(0.0, 20.0, 24, 500, 11);
  const TensorStats spread = stats_of(wide, kFp16);
  const int best = fitting_shift(spread, kFp16, kFp16, 64);
  EXPECT_EQ(counts_of(wide, kFp16, best).overflow, 0);
  EXPECT_GT(what_if(spread, kFp16, kFp16, best + 1).overflow.high, 0);
  EXPECT_EQ(fitting_shift(TensorStats{}, kFp16, kFp16, 32), 0);
}

TEST(WhatIf, LimitsOfFormats) {
  const RangeLimits fp16 = range_limits(kFp16);
  EXPECT_EQ(fp16.flush, 0x1p-25);
  EXPECT_EQ(fp16.normal, 0x1p-14 - 0x1p-25);
  EXPECT_EQ(fp16.overflow, 65520.0);
  const RangeLimits flushing = range_limits(format_of("fp16:ftz"));
  EXPECT_EQ(flushing.flush, flushing.normal) << "nothing is subnormal";
  const RangeLimits bare = range_limits(format_of("e3m0"));
  EXPECT_EQ(bare.flush, bare.normal);
}

TEST(WhatIf, SharesOfUnderflowAreOfNonZeroValues) {
  const TensorStats stats = [] {
    std::vector<float> values{0.0f, 0.0f, INFINITY, 1e-9f, 1.0f};
    std::vector<float> rounded(values.size());
    return measure(values, rounded, kFp16);
  }();
  const WhatIf answer = what_if(stats, kFp16, kBf16, 0.0);
  EXPECT_EQ(answer.n, 5);
  EXPECT_EQ(answer.non_zero, 2);
}

SiteInfo tensor_of(const char* path, Role role, Phase phase) {
  return {.path = path,
          .tensor = "x",
          .role = role,
          .phase = phase,
          .op = "",
          .format = kFp16,
          .shape = {}};
}

TEST(WhatIf, OnlyGradientsFollowTheLossScale) {
  RunInfo training, inference;
  inference.inference = true;
  SiteInfo gradient = tensor_of("fc", Role::weight_grad, Phase::backward);
  EXPECT_TRUE(loss_scale_reaches(training, gradient));
  EXPECT_FALSE(loss_scale_reaches(inference, gradient));
  EXPECT_FALSE(loss_scale_reaches(training, tensor_of("fc", Role::activation, Phase::forward)));
  EXPECT_FALSE(loss_scale_reaches(training, tensor_of("fc", Role::update, Phase::update)));
  EXPECT_FALSE(loss_scale_reaches(training, tensor_of("fc", Role::weight_grad, Phase::update)))
      << "the scale is divided out";
  gradient.scale = "current";
  EXPECT_FALSE(loss_scale_reaches(training, gradient)) << "codes have a scale of their own";
}

TEST(WhatIf, APlanSetsFormatsOfNodesAndVariables) {
  LaneInfo lane;
  lane.backend = "emulated";
  LayerInfo layer;
  layer.path = "fc";
  layer.inputs = {"input"};
  layer.read = layer.write = kFp16;
  lane.layers.push_back(layer);
  EXPECT_TRUE(plan_sets_format(lane, tensor_of("fc", Role::activation, Phase::forward)));
  EXPECT_TRUE(plan_sets_format(lane, tensor_of("input", Role::input, Phase::forward)));
  EXPECT_TRUE(plan_sets_format(lane, tensor_of("pos", Role::weight, Phase::forward)));
  EXPECT_FALSE(plan_sets_format(lane, tensor_of("targets", Role::input, Phase::forward)));
  EXPECT_TRUE(can_keep_in_fp32(lane, &lane.layers[0]));
  EXPECT_FALSE(can_keep_in_fp32(lane, nullptr)) << "data is no node";
  layer.read = layer.write = kFp32;
  EXPECT_FALSE(can_keep_in_fp32(lane, &layer)) << "it is in fp32";
  lane.backend = "float64";
  EXPECT_FALSE(plan_sets_format(lane, tensor_of("fc", Role::activation, Phase::forward)));
  EXPECT_FALSE(can_keep_in_fp32(lane, &lane.layers[0]));
}

}  // namespace
}  // namespace halfscope
