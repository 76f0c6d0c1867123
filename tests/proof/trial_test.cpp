// SPDX-License-Identifier: MIT
// The gap and the skipped steps of rows made by hand, with values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "analysis/loss_gap.h"
#include "analysis/skipped_steps.h"

namespace halfscope::test {
namespace {

using Rows = std::vector<StepRow>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Rows losses(const std::vector<double>& values) {
  Rows rows;
  for (const double loss : values) {
    rows.push_back({.step = static_cast<int64_t>(rows.size()), .loss = loss});
  }
  return rows;
}

/// Returns this many steps of a constant loss that ends with the given values.
Rows ending(size_t steps, double loss, const std::vector<double>& last) {
  std::vector<double> values(steps - last.size(), loss);
  values.insert(values.end(), last.begin(), last.end());
  return losses(values);
}

TEST(LossGap, IsTheMedianOverTheLastFifth) {
  const Rows reference = ending(15, 2.0, {1.0, 0.5, 2.0});
  EXPECT_EQ(loss_gap(reference, reference), 0.0);
  // Differences 0.1, -0.3, 0.4: their median is 0.1; the reference's is 1.
  EXPECT_NEAR(loss_gap(ending(15, 9.0, {1.1, 0.2, 2.4}), reference), 0.1, 1e-12);
  // The one before the last fifth does not count, be it what it may.
  EXPECT_NEAR(loss_gap(ending(15, 9.0, {NAN, 1.1, 0.2, 2.4}), reference), 0.1, 1e-12);
  // A lower loss is a gap too: -0.2, -0.1, -0.1.
  EXPECT_NEAR(loss_gap(ending(15, 2.0, {0.8, 0.4, 1.9}), reference), 0.1, 1e-12);
}

TEST(LossGap, AnEvenNumberHasItsMedianHalfWay) {
  const Rows reference = ending(10, 2.0, {1.0, 3.0});  // 2
  // 0.2 and 0.6: 0.4 of 2.
  EXPECT_NEAR(loss_gap(ending(10, 2.0, {1.2, 3.6}), reference), 0.2, 1e-12);
  // 0.6 and -0.6 cancel.
  EXPECT_NEAR(loss_gap(ending(10, 2.0, {1.6, 2.4}), reference), 0.0, 1e-12);
  const Rows four = ending(20, 1.0, {1.0, 4.0, 2.0, 8.0});  // 3
  EXPECT_NEAR(loss_gap(ending(20, 1.0, {1.1, 4.2, 2.4, 8.8}), four), 0.3 / 3.0, 1e-12);
}

TEST(LossGap, AFewStepsHaveOneAtLeast) {
  EXPECT_NEAR(loss_gap(losses({7.0, 1.5}), losses({9.0, 1.0})), 0.5, 1e-12);
  EXPECT_NEAR(loss_gap(losses({7.0, 7.0, 7.0, 1.5}), losses({9.0, 9.0, 9.0, 1.0})), 0.5, 1e-12);
  EXPECT_NEAR(loss_gap(losses({1.5}), losses({1.0})), 0.5, 1e-12);
}

TEST(LossGap, IsInfiniteWhereThereIsNothingToCompare) {
  const Rows good = ending(10, 2.0, {1.0, 1.0});
  for (const double bad : {static_cast<double>(NAN), kInfinity, -kInfinity}) {
    EXPECT_EQ(loss_gap(ending(10, 2.0, {1.0, bad}), good), kInfinity);
    EXPECT_EQ(loss_gap(ending(10, 2.0, {bad, 1.0}), good), kInfinity);
    EXPECT_EQ(loss_gap(good, ending(10, 2.0, {bad, 1.0})), kInfinity) << "the reference is lost";
    EXPECT_EQ(loss_gap(good, ending(10, bad, {1.0, 1.0})), 0.0) << "it came back";
  }
  EXPECT_EQ(loss_gap(losses({2.0, 1.0}), good), kInfinity) << "ended early";
  EXPECT_EQ(loss_gap(good, losses({2.0, 1.0})), kInfinity);
  EXPECT_EQ(loss_gap({}, good), kInfinity);
  EXPECT_EQ(loss_gap({}, {}), kInfinity);
}

// Once a loss of 2 has dropped below 0.02, the remainder is no longer a meaningful measure.
TEST(LossGap, OfALossNearZeroIsMeasuredAgainstTheFirst) {
  const Rows learned = ending(10, 2.0, {0.0, 0.0});
  EXPECT_EQ(loss_gap(learned, learned), 0.0);
  EXPECT_NEAR(loss_gap(ending(10, 2.0, {1e-6, 1e-6}), learned), 1e-6 / 0.02, 1e-12);
  EXPECT_NEAR(loss_gap(ending(10, 2.0, {0.5, 0.5}), learned), 25.0, 1e-9);
  EXPECT_NEAR(loss_gap(ending(10, 2.0, {0.5, 0.5}), ending(10, 2.0, {1e-9, 1e-9})), 25.0, 1e-5);
  // Just above that, the loss itself is the measure.
  EXPECT_NEAR(loss_gap(ending(10, 2.0, {0.08, 0.08}), ending(10, 2.0, {0.04, 0.04})), 1.0, 1e-9);
  const Rows nothing = losses({0.0, 0.0});
  EXPECT_EQ(loss_gap(nothing, nothing), 0.0);
  EXPECT_EQ(loss_gap(losses({0.0, 0.1}), nothing), kInfinity);
  EXPECT_EQ(loss_gap(losses({0.0, 0.1}), losses({NAN, 0.0})), kInfinity);
}

// A likelihood may be any number: what counts is its size.
TEST(LossGap, OfNegativeLossesIsMeasuredAgainstTheirSize) {
  const Rows reference = ending(10, -1.0, {-4.0, -4.0});
  EXPECT_EQ(loss_gap(reference, reference), 0.0);
  EXPECT_NEAR(loss_gap(ending(10, -1.0, {-3.0, -3.0}), reference), 0.25, 1e-12);
}

TEST(LossScatter, IsTheMedianDistanceFromTheMedian) {
  EXPECT_EQ(loss_scatter({}), 0.0);
  EXPECT_EQ(loss_scatter(ending(10, 9.0, {2.0, 2.0})), 0.0);
  // Around 4: distances 2, 0 and 1.
  EXPECT_NEAR(loss_scatter(ending(15, 9.0, {2.0, 4.0, 5.0})), 1.0 / 4.0, 1e-12);
  EXPECT_EQ(loss_scatter(ending(10, 2.0, {1.0, NAN})), kInfinity);
}

/// One letter a step: '.' taken, 'x' skipped. The scale is halved after a skip if `dynamic`; '^'
/// is a skipped step at a scale that was doubled for it, '+' a taken one.
Rows course(const std::string& steps, bool dynamic = true) {
  Rows rows;
  double scale = 65536.0;
  for (const char step : steps) {
    if (step == '^' || step == '+') scale *= 2.0;
    StepRow row{.step = static_cast<int64_t>(rows.size()), .loss = 1.0, .loss_scale = scale};
    row.skipped = step == 'x' || step == '^';
    rows.push_back(row);
    if (row.skipped && dynamic) scale *= 0.5;
  }
  return rows;
}

std::string taken(size_t steps) { return std::string(steps, '.'); }
std::string skipped(size_t steps) { return std::string(steps, 'x'); }

struct Expected {
  int64_t calibration, probes, others;
  bool settled, normal;
};

void expect_skips(const Rows& rows, const Expected& expected) {
  const SkippedSteps skips = skipped_steps(rows);
  EXPECT_EQ(skips.calibration, expected.calibration);
  EXPECT_EQ(skips.probes, expected.probes);
  EXPECT_EQ(skips.others, expected.others);
  EXPECT_EQ(skips.total(), expected.calibration + expected.probes + expected.others);
  EXPECT_EQ(skips.settled, expected.settled);
  EXPECT_EQ(skips_are_normal(skips, rows), expected.normal);
}

TEST(SkippedSteps, NoneIsNormal) {
  expect_skips(course(taken(200)), {0, 0, 0, true, true});
  expect_skips(course(taken(200), false), {0, 0, 0, true, true});
  expect_skips(course(taken(5)), {0, 0, 0, false, true});
}

TEST(SkippedSteps, CalibrationGoesOnUntilAScaleHolds) {
  expect_skips(course(skipped(3) + taken(60)), {3, 0, 0, true, true});
  // 19 steps are not enough to have settled, 20 are.
  expect_skips(course("xx" + taken(19) + "x" + taken(60)), {3, 0, 0, true, true});
  expect_skips(course("xx" + taken(20) + "x" + taken(60)), {2, 0, 1, true, true});
  expect_skips(course(skipped(30) + taken(60)), {30, 0, 0, true, true});
  expect_skips(course(skipped(31) + taken(60)), {31, 0, 0, true, false});
}

TEST(SkippedSteps, AShortRunNeedNotHaveSettled) {
  expect_skips(course("xxx" + taken(5)), {3, 0, 0, false, true});
  expect_skips(course("xxx"), {3, 0, 0, false, false});
  expect_skips(course("xx" + taken(5) + "x"), {3, 0, 0, false, false});
  expect_skips({}, {0, 0, 0, false, false});
}

TEST(SkippedSteps, AScaleThatKeepsFallingHasNotSettled) {
  expect_skips(course(skipped(200)), {200, 0, 0, false, false});
  std::string falling;
  for (int i = 0; i < 13; ++i) falling += "x" + taken(15);
  expect_skips(course(falling), {13, 0, 0, false, false});
  // Collapse after a good start.
  expect_skips(course(taken(100) + skipped(60)), {0, 0, 60, true, false});
}

TEST(SkippedSteps, ADoubledScaleThatFailsIsAProbe) {
  expect_skips(course("x" + taken(30) + "^" + taken(30) + "^" + taken(5)), {1, 2, 0, true, true});
  // It overflows in its second step, so it is not a probe. One of a hundred steps may overflow.
  expect_skips(course(taken(30) + "+x" + taken(30)), {0, 0, 1, true, true});
}

TEST(SkippedSteps, OthersAreRare) {
  const std::string one = "x" + taken(40);
  expect_skips(course(taken(40) + one), {0, 0, 1, true, true});
  expect_skips(course(taken(40) + "x" + taken(30) + "x" + taken(27)), {0, 0, 2, true, false});
  expect_skips(course(taken(40) + "x" + taken(30) + "x" + taken(29)), {0, 0, 2, true, true});
  expect_skips(course(taken(140) + one + one + one), {0, 0, 3, true, true});
  expect_skips(course(taken(140) + one + one + one + "x"), {0, 0, 4, true, false});
}

// For a loss that falls by half a step, from 100: the last 20 of 100 losses have the median 55.25.
TEST(DelayGap, IsHowFarTheReferenceMovesInSoManySteps) {
  Rows reference;
  for (int i = 0; i < 100; ++i) reference.push_back({.step = i, .loss = 100.0 - 0.5 * i});
  EXPECT_DOUBLE_EQ(delay_gap(reference, 2), 1.0 / 55.25);
  EXPECT_EQ(delay_gap(reference, 0), 0.0);
  EXPECT_EQ(delay_gap(reference, 81), 0.0) << "there are not as many steps";
  // Two steps that look for a scale are a delay; a scale that never settles is more than that.
  EXPECT_DOUBLE_EQ(calibration_gap(course("xx" + taken(98)), reference), 1.0 / 55.25);
  EXPECT_EQ(calibration_gap(course(taken(100)), reference), 0.0);
  EXPECT_EQ(calibration_gap(course(taken(40) + skipped(60)), reference), 0.0);
  EXPECT_EQ(calibration_gap(course("xx" + taken(98), false), reference), 0.0) << "a static scale";
}

// A scale that stays where it is does not calibrate, wherever the skipped steps are.
TEST(SkippedSteps, AStaticScaleHasNoCalibration) {
  expect_skips(course("xx" + taken(98), false), {0, 0, 2, true, false});
  expect_skips(course("x" + taken(98), false), {0, 0, 1, true, true});
  expect_skips(course(skipped(40), false), {0, 0, 40, true, false});
  expect_skips(course(taken(10) + "x" + taken(10) + "xx", false), {0, 0, 3, true, false});
}

}  // namespace
}  // namespace halfscope::test
