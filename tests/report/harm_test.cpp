// SPDX-License-Identifier: MIT
// Distances from the truth that count as harm: the tolerances of docs/reference/verdicts.md, with
// made-up distances just below and just above them.
#include "analysis/rules/harm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/report/harm_run.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Of = Deviation::Of;
using Kind = HarmItem::Of;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

Harm harm_in(const RunView& run, int lane = 1) { return harm_of(LaneFacts(run, lane)); }

Deviation output_off(double error, double spread, double worst = 0.0, double worst_spread = 0.0) {
  return {.step = 3,
          .of = Of::output,
          .name = "logits",
          .n = 100,
          .error = error,
          .worst = worst,
          .ratio = 1.0,
          .spread = spread,
          .worst_spread = worst_spread,
          .ratio_spread = 1.0};
}

Harm harm_of_output(const HarmLane& lane, const Deviation& deviation) {
  RunView run = harm_inference({kReferenceLane, lane});
  run.add_deviation(1, deviation);
  const Harm harm = harm_in(run);
  EXPECT_TRUE(harm.measured);
  return harm;
}

/// Expects the tolerance `tolerance`: slightly less is no harm.
void expect_output_tolerance(const HarmLane& lane, double spread, double tolerance) {
  SCOPED_TRACE(lane.name + " with a spread of " + std::to_string(spread));
  EXPECT_TRUE(harm_of_output(lane, output_off(0.99 * tolerance, spread)).items.empty());
  const Harm harm = harm_of_output(lane, output_off(1.01 * tolerance, spread));
  ASSERT_THAT(harm.items, SizeIs(1));
  EXPECT_EQ(harm.items[0].of, Kind::output);
  EXPECT_EQ(harm.items[0].name, "logits");
  EXPECT_DOUBLE_EQ(harm.items[0].error, 1.01 * tolerance);
  EXPECT_DOUBLE_EQ(harm.items[0].tolerance, tolerance);
  EXPECT_EQ(harm.items[0].severe, 1.01 * tolerance >= 0.2);
}

TEST(Harm, OutputsMayBeOffByTwiceTheSpreadBetweenFloorAndCap) {
  expect_output_tolerance(kFp16Lane, 0.0, 0.01);
  expect_output_tolerance(kFp16Lane, kUnknown, 0.01);
  expect_output_tolerance(kFp16Lane, 0.03, 0.06);
  expect_output_tolerance(kFp16Lane, 0.5, 0.15);
  // Four roundings of bf16 are 4 * 2^-8.
  expect_output_tolerance(kBf16Lane, 0.0, 0.015625);
  expect_output_tolerance(kBf16Lane, 0.5, 0.15);
  // Operands in e4m3 have three bits, results in bf16 seven. Half a rounding of e4m3 is 2^-5.
  const HarmLane narrow{.name = "fp8", .read_a = kE4m3fn, .write_a = kBf16};
  expect_output_tolerance(narrow, 0.0, 0.03125);
  expect_output_tolerance(narrow, 0.5, 0.25);
  // One layer is enough.
  const HarmLane mixed{.name = "mixed", .read_b = kFp16, .write_b = kBf16, .planned = kFp16};
  expect_output_tolerance(mixed, 0.0, 0.015625);
}

TEST(Harm, TheWorstSampleHasAToleranceOfItsOwn) {
  const auto items = [](double worst, double worst_spread) {
    return harm_of_output(kFp16Lane, output_off(0.005, 0.001, worst, worst_spread)).items;
  };
  EXPECT_THAT(items(0.249, 0.0), IsEmpty());
  ASSERT_THAT(items(0.251, 0.0), SizeIs(1));
  EXPECT_DOUBLE_EQ(items(0.251, 0.0)[0].tolerance, 0.25);
  EXPECT_THAT(items(0.251, 0.0)[0].text, HasSubstr("the worst sample of its output"));
  EXPECT_THAT(items(0.59, 0.2), IsEmpty());
  EXPECT_THAT(items(0.61, 0.2), SizeIs(1));
}

TEST(Harm, ChannelsAndDifferencesAreJudgedAsSamplesAre) {
  const auto channel = [](double error, double spread, double whole = 0.001) {
    Deviation deviation = output_off(whole, 0.001);
    deviation.worst_channel = error;
    deviation.worst_channel_spread = spread;
    deviation.channel_axis = 1;
    deviation.channel = 3;
    return harm_of_output(kFp16Lane, deviation).items;
  };
  EXPECT_THAT(channel(0.249, 0.0), IsEmpty());
  EXPECT_THAT(channel(0.59, 0.2), IsEmpty());
  ASSERT_THAT(channel(0.77, 0.0), SizeIs(1));
  EXPECT_THAT(channel(0.77, 0.0)[0].text,
              HasSubstr("channel 3 (axis 1) of its output logits differs from float32's by 77% "
                        "(25% is allowed)"));
  EXPECT_TRUE(channel(0.51, 0.0)[0].severe);
  EXPECT_FALSE(channel(0.49, 0.0)[0].severe);
  // An output with a small error does not hide a channel that is useless.
  ASSERT_THAT(channel(0.77, 0.0, 0.1), SizeIs(1));
  EXPECT_TRUE(channel(0.77, 0.0, 0.1)[0].severe);
  EXPECT_THAT(channel(0.4, 0.0, 0.1)[0].text,
              HasSubstr("its output logits differs from float32's by 10%"));

  Deviation deviation = output_off(0.001, 0.001);
  deviation.differences = 1.0;
  deviation.differences_spread = 0.1;
  const std::vector<HarmItem> items = harm_of_output(kFp16Lane, deviation).items;
  ASSERT_THAT(items, SizeIs(1));
  EXPECT_DOUBLE_EQ(items[0].tolerance, 0.3);
  EXPECT_THAT(items[0].text, HasSubstr("the spread of the values"));
}

TEST(Harm, WhatIsNotFiniteIsSevere) {
  Deviation deviation = output_off(0.0, 0.5);
  deviation.broken = 1;
  const Harm harm = harm_of_output(kFp16Lane, deviation);
  ASSERT_THAT(harm.items, SizeIs(1));
  EXPECT_TRUE(harm.severe());
  EXPECT_TRUE(std::isinf(harm.items[0].error));
  EXPECT_THAT(harm.items[0].text, HasSubstr("1 of the 100 values of"));
}

TEST(Harm, OutputsAreSevereFromAFifthOn) {
  EXPECT_FALSE(harm_of_output(kFp16Lane, output_off(0.19, 0.0)).severe());
  EXPECT_TRUE(harm_of_output(kFp16Lane, output_off(0.21, 0.0)).severe());
}

/// Below the tolerance, yet more than the usual effect of rounding alone.
TEST(Harm, IsDoubtfulFromHalfTheSpreadOn) {
  EXPECT_FALSE(harm_of_output(kFp16Lane, output_off(0.009, 0.0)).doubtful) << "below the floor";
  EXPECT_FALSE(harm_of_output(kFp16Lane, output_off(0.019, 0.04)).doubtful);
  const Harm harm = harm_of_output(kFp16Lane, output_off(0.021, 0.04));
  EXPECT_TRUE(harm.doubtful);
  EXPECT_TRUE(harm.items.empty());
}

/// A batch's loss, or the gradient of `name`, at three steps.
void add_batches(RunView& run, Of of, const std::string& name, const std::vector<double>& errors,
                 double spread) {
  for (size_t i = 0; i < errors.size(); ++i) {
    run.add_deviation(1, {.step = static_cast<int64_t>(10 * i),
                          .of = of,
                          .name = name,
                          .n = 1,
                          .error = errors[i],
                          .ratio = 1.0,
                          .spread = spread});
  }
}

std::vector<HarmItem> batch_items(const HarmLane& lane, Of of, const std::string& name,
                                  const std::vector<double>& errors, double spread) {
  RunView run = trained_beside_float32(lane);
  add_batches(run, of, name, errors, spread);
  return harm_in(run).items;
}

TEST(Harm, ABatchsLossHasTheTolerancesOfOutputs) {
  EXPECT_THAT(batch_items(kFp16Lane, Of::loss, "", {0.0099}, 0.0), IsEmpty());
  const std::vector<HarmItem> items = batch_items(kFp16Lane, Of::loss, "", {0.0101}, 0.0);
  ASSERT_THAT(items, SizeIs(1));
  EXPECT_EQ(items[0].of, Kind::loss);
  EXPECT_EQ(items[0].step, 0);
  EXPECT_FALSE(items[0].severe);
  EXPECT_THAT(batch_items(kFp16Lane, Of::loss, "", {0.149}, 0.5), IsEmpty());
  EXPECT_THAT(batch_items(kFp16Lane, Of::loss, "", {0.151}, 0.5), SizeIs(1));
  EXPECT_TRUE(batch_items(kFp16Lane, Of::loss, "", {0.21}, 0.0).at(0).severe);
  EXPECT_THAT(batch_items(kBf16Lane, Of::loss, "", {0.015}, 0.0), IsEmpty());
}

TEST(Harm, GradientsMayBeOffByMore) {
  EXPECT_THAT(batch_items(kFp16Lane, Of::gradient, "", {0.0099}, 0.0), IsEmpty());
  EXPECT_THAT(batch_items(kFp16Lane, Of::gradient, "", {0.0101}, 0.0), SizeIs(1));
  EXPECT_THAT(batch_items(kFp16Lane, Of::gradient, "", {0.79}, 0.4), IsEmpty());
  EXPECT_THAT(batch_items(kFp16Lane, Of::gradient, "", {0.81}, 0.4), SizeIs(1));
  EXPECT_THAT(batch_items(kFp16Lane, Of::gradient, "a.weight", {0.049}, 0.0), IsEmpty());
  const std::vector<HarmItem> items =
      batch_items(kFp16Lane, Of::gradient, "a.weight", {0.051}, 0.0);
  ASSERT_THAT(items, SizeIs(1));
  EXPECT_EQ(items[0].of, Kind::gradient);
  EXPECT_EQ(items[0].name, "a.weight");
  EXPECT_DOUBLE_EQ(items[0].tolerance, 0.05);
  // Twice four roundings of e5m2, 2 * 4 * 2^-3, are more than 5 %.
  const HarmLane coarse{.name = "e5m2", .read_a = kBf16, .write_a = kE5m2};
  EXPECT_THAT(batch_items(coarse, Of::gradient, "a.weight", {0.9}, 0.0), IsEmpty());
  EXPECT_THAT(batch_items(coarse, Of::gradient, "a.weight", {1.1}, 0.0), SizeIs(1));
}

// A bias in front of a normalization in bf16, in multiples of a tenth of the usual gradient.
TEST(Harm, AGradientThatIsZeroInFp32MayBeNoise) {
  const auto items = [](double error, double ratio) {
    RunView run = trained_beside_float32(kBf16Lane);
    for (const int64_t step : {0, 50, 99}) {
      run.add_deviation(1, {.step = step,
                            .of = Of::gradient,
                            .name = "a.bias",
                            .n = 12,
                            .error = error,
                            .ratio = ratio,
                            .spread = 2e-5});
    }
    return harm_in(run).items;
  };
  EXPECT_THAT(items(0.139, 9000.0), IsEmpty());
  EXPECT_THAT(items(0.139, 1.1), SizeIs(1)) << "of a gradient that is not zero";
  EXPECT_THAT(items(0.139, 9.0), SizeIs(1));
  EXPECT_THAT(items(9.9, 9000.0), IsEmpty());
  EXPECT_THAT(items(9.9, 10.9), SizeIs(1)) << "ten times a gradient that is not zero";
  EXPECT_THAT(items(10.1, 9000.0), SizeIs(1)) << "as large as other gradients";
}

// A bias whose gradient is zero except for rounding moves by Adam's full steps, wherever.
TEST(Harm, AVariableWithRightGradientsAndFp32UpdatesMayMoveAnywhere) {
  const auto items = [](const FloatFormat& update, double gradient_error, double ratio) {
    RunInfo info = trained_beside_float32(kFp16Lane).info();
    SiteInfo& site = info.lanes[1].sites.emplace_back();
    site.order = static_cast<int>(info.lanes[1].sites.size()) - 1;
    site.path = "a";
    site.tensor = "bias_update";
    site.role = Role::update;
    site.phase = Phase::update;
    site.format = update;
    RunView run(std::move(info), RunStatus::complete);
    for (int64_t step = 0; step < 100; ++step) {
      for (const int lane : {0, 1}) run.add_step(lane, {.step = step, .loss = falling_loss(step)});
    }
    add_batches(run, Of::gradient, "a.bias", {gradient_error}, 0.0);
    run.add_deviation(1, {.step = 100,
                          .of = Of::weight,
                          .name = "a.bias",
                          .n = 8,
                          .error = 5.2,
                          .ratio = ratio,
                          .spread = 0.1});
    return harm_in(run).items;
  };
  EXPECT_THAT(items(kFp32, 0.01, 6.1), IsEmpty());
  EXPECT_THAT(items(kFp16, 0.01, 6.1), SizeIs(1)) << "rounded updates";
  EXPECT_THAT(items(kFp32, 0.4, 6.1), SizeIs(2)) << "the gradient and the movement";
  EXPECT_THAT(items(kFp32, 0.01, 0.1), SizeIs(1)) << "it hardly moved";
}

TEST(Harm, OneBatchAmongThreeIsNotEnough) {
  for (const Of of : {Of::loss, Of::gradient}) {
    EXPECT_THAT(batch_items(kFp16Lane, of, "", {0.3, 0.001, 0.002}, 0.0), IsEmpty());
    const std::vector<HarmItem> items = batch_items(kFp16Lane, of, "", {0.3, 0.002, 0.1}, 0.0);
    ASSERT_THAT(items, SizeIs(1));
    EXPECT_DOUBLE_EQ(items[0].error, 0.1);
  }
}

TEST(Harm, OneItemStandsForAllGradients) {
  RunView run = trained_beside_float32(kFp16Lane);
  add_batches(run, Of::gradient, "a.weight", {0.07}, 0.0);
  add_batches(run, Of::gradient, "b.weight", {0.09}, 0.0);
  add_batches(run, Of::gradient, "b.bias", {0.04}, 0.0);
  const Harm harm = harm_in(run);
  ASSERT_THAT(harm.items, SizeIs(1));
  EXPECT_EQ(harm.items[0].name, "b.weight");
  EXPECT_THAT(harm.items[0].text,
              HasSubstr("the gradients of b.weight and 1 other variable differ"));
}

TEST(Harm, GradientsAndLossesThatAreNotFiniteAreSevereWhateverTheOthersAre) {
  for (const Of of : {Of::loss, Of::gradient}) {
    RunView run = trained_beside_float32(kFp16Lane);
    const std::string name = of == Of::loss ? "" : "a.weight";
    add_batches(run, of, name, {0.0, 0.0}, 0.0);
    run.add_deviation(1, {.step = 50, .of = of, .name = name, .n = 1, .broken = 1});
    const Harm harm = harm_in(run);
    ASSERT_THAT(harm.items, SizeIs(1));
    EXPECT_TRUE(harm.severe());
    EXPECT_EQ(harm.items[0].step, 50);
  }
}

Harm ends_apart(double factor, double twins) {
  RunView run = trained_beside_float32(kFp16Lane, factor);
  if (!std::isnan(twins)) {
    run.add_deviation(1, {.step = 100, .of = Of::training, .n = 1, .spread = twins});
  }
  return harm_in(run);
}

TEST(Harm, TheLossAtTheEndIsComparedWithThatOfTwins) {
  EXPECT_TRUE(ends_apart(1.009, 0.0).items.empty());
  ASSERT_THAT(ends_apart(1.011, 0.0).items, SizeIs(1));
  EXPECT_EQ(ends_apart(1.011, 0.0).items[0].of, Kind::training);
  EXPECT_EQ(ends_apart(1.011, 0.0).items[0].step, -1) << "at the end";
  EXPECT_TRUE(ends_apart(1.09, 0.05).items.empty());
  EXPECT_FALSE(ends_apart(1.11, 0.05).items.empty());
  EXPECT_FALSE(ends_apart(0.89, 0.05).items.empty()) << "a loss that is too low is as wrong";
  EXPECT_FALSE(ends_apart(1.11, 0.05).severe());
  EXPECT_TRUE(ends_apart(1.21, 0.05).severe());
}

// Curves without scatter, which would excuse a gap.
TEST(Harm, WithoutTwinsAGapOfATenthIsLeftOpen) {
  const LossCurve settled = [](int64_t step) { return step < 20 ? 2.0 : 1.0; };
  const auto ends_at = [&](double loss) {
    const LossCurve own = [=](int64_t step) { return step < 20 ? 2.0 : loss; };
    return harm_in(harm_training({{kReferenceLane, settled}, {kFp16Lane, own}}));
  };
  EXPECT_TRUE(ends_at(1.005).items.empty());
  EXPECT_THAT(ends_at(1.005).unchecked, IsEmpty());
  EXPECT_TRUE(ends_at(1.09).items.empty());
  EXPECT_THAT(ends_at(1.09).unchecked, SizeIs(1));
  ASSERT_THAT(ends_at(1.11).items, SizeIs(1));
  EXPECT_DOUBLE_EQ(ends_at(1.11).items[0].tolerance, 0.10);
  EXPECT_FALSE(ends_at(1.19).severe());
  EXPECT_TRUE(ends_at(1.21).severe());
  EXPECT_THAT(ends_at(0.85).items, SizeIs(1));
}

// Alternately 1.5 and 0.5 around 1: no gap below that says anything.
TEST(Harm, ScatterOfTheReferenceExcusesAGap) {
  const LossCurve noisy = [](int64_t step) { return step < 20 ? 4.0 : step % 2 == 0 ? 1.5 : 0.5; };
  const LossCurve own = [](int64_t step) { return step < 20 ? 4.0 : 1.3; };
  EXPECT_TRUE(harm_in(harm_training({{kReferenceLane, noisy}, {kFp16Lane, own}})).items.empty());
}

// A learning rate that is too large: both trainings end anywhere.
TEST(Harm, AReferenceThatOnlyGetsWorseIsNoMeasure) {
  const auto rises_to = [](double end) {
    return [end](int64_t step) { return step == 0 ? 2.3 : end; };
  };
  const auto harm = [&](double reference, double own) {
    RunView run =
        harm_training({{kReferenceLane, rises_to(reference)}, {kFp16Lane, rises_to(own)}});
    run.add_deviation(1, {.step = 100, .of = Of::weight, .n = 9, .error = 0.9, .ratio = 0.3});
    run.add_eval(0, {.step = 100, .loss = reference, .accuracy = 0.162});
    run.add_eval(1, {.step = 100, .loss = own, .accuracy = 0.1});
    return harm_in(run);
  };
  EXPECT_THAT(harm(2.7, 3.1).items, IsEmpty());
  EXPECT_THAT(harm(2.7, 3.1).inconclusive, HasSubstr("did not learn"));
  EXPECT_FALSE(harm(2.7, 300.0).items.empty()) << "that is still worse";
  EXPECT_FALSE(harm(1.0, 1.5).items.empty()) << "this one learns";
}

TEST(Harm, ALaneThatDoesNotLearnIsBroken) {
  const Harm harm = harm_in(
      harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, [](int64_t) { return 2.3; }}}));
  ASSERT_FALSE(harm.items.empty());
  EXPECT_TRUE(harm.severe());
  EXPECT_EQ(harm.items[0].of, Kind::training);
}

TEST(Harm, ALossThatIsNotFiniteAtTheEndIsSevereAlsoInAShortRun) {
  const LossCurve lost = [](int64_t step) { return step < 5 ? 2.0 : kUnknown; };
  const Harm harm = harm_in(harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, lost}}, 10));
  ASSERT_THAT(harm.items, SizeIs(1));
  EXPECT_TRUE(harm.severe());
  EXPECT_EQ(harm.items[0].of, Kind::training);
  EXPECT_TRUE(harm_in(harm_training({{kReferenceLane, lost}, {kFp16Lane, lost}}, 10)).items.empty())
      << "the reference fails as well";
}

Harm all_skipped(int64_t steps) {
  RunInfo info =
      harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, falling_loss}}, 0).info();
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < steps; ++step) {
    run.add_step(0, {.step = step, .loss = falling_loss(step)});
    run.add_step(1, {.step = step, .loss = 1.001 * falling_loss(step), .skipped = true});
  }
  return harm_in(run);
}

TEST(Harm, ALaneThatSkipsEveryUpdateIsBroken) {
  ASSERT_THAT(all_skipped(20).items, SizeIs(1));
  EXPECT_EQ(all_skipped(20).items[0].of, Kind::steps);
  EXPECT_TRUE(all_skipped(20).severe());
  EXPECT_THAT(all_skipped(20).items[0].text, HasSubstr("all 20 of its updates were skipped"));
  EXPECT_THAT(all_skipped(19).items, IsEmpty()) << "the scale may still come down";
}

struct Moved {
  double error, ratio, spread = kUnknown;
};

void add_moved(RunView& run, Of of, const std::string& name, const Moved& moved) {
  run.add_deviation(1, {.step = 100,
                        .of = of,
                        .name = name,
                        .n = 10,
                        .error = moved.error,
                        .ratio = moved.ratio,
                        .spread = moved.spread});
}

std::vector<HarmItem> moved_items(const std::string& name, const Moved& moved) {
  RunView run = trained_beside_float32(kFp16Lane);
  add_moved(run, Of::weight, name, moved);
  return harm_in(run).items;
}

TEST(Harm, WaysOfWeightsAreComparedWithThoseOfTwins) {
  // A movement as long as float32's, with an error of e, has 1 - e^2 / 2 along float32's.
  EXPECT_THAT(moved_items("", {0.44, 1.0, 0.01}), IsEmpty());
  ASSERT_THAT(moved_items("", {0.46, 1.0, 0.01}), SizeIs(1));
  EXPECT_EQ(moved_items("", {0.46, 1.0, 0.01})[0].of, Kind::weight);
  EXPECT_THAT(moved_items("", {0.89, 1.0, 0.2}), IsEmpty());
  EXPECT_THAT(moved_items("", {0.90, 1.0, 0.2}), SizeIs(1));
}

// If the truth is 0, fp32 has only its own roundings for comparison.
TEST(Harm, OutputsThatAreNoiseInFp32AreNotJudged) {
  Deviation noisy = output_off(kUnknown, 0.9);
  noisy.noise = 0.8;
  RunView run = harm_inference({kReferenceLane, kFp16Lane});
  run.add_deviation(1, noisy);
  const std::string reason =
      "Its output logits was not compared, because float32's is only rounding noise.";
  EXPECT_TRUE(harm_in(run).items.empty());
  EXPECT_EQ(harm_in(run).inconclusive, reason);

  // Beside one that can be compared it only is not checked.
  Deviation right = output_off(0.001, 0.001);
  right.name = "boxes";
  run.add_deviation(1, right);
  EXPECT_EQ(harm_in(run).inconclusive, "");
  EXPECT_THAT(harm_in(run).unchecked, testing::ElementsAre(reason));
}

TEST(Harm, TheAccuracyOfInferenceCounts) {
  const auto with = [](double accuracy) {
    RunView run = harm_inference({kReferenceLane, kFp16Lane});
    run.add_eval(0, {.step = 3, .loss = kUnknown, .accuracy = 0.95});
    run.add_eval(1, {.step = 3, .loss = kUnknown, .accuracy = accuracy});
    return harm_in(run);
  };
  const Harm harm = with(0.7);
  ASSERT_THAT(harm.items, SizeIs(1));
  EXPECT_EQ(harm.items[0].of, Kind::accuracy);
  EXPECT_EQ(harm.items[0].text, "its accuracy is 70%, but float32's is 95%");
  EXPECT_TRUE(harm.severe());
  EXPECT_TRUE(with(0.94).items.empty());
}

TEST(Harm, WithoutTwinsOnlyTheLengthOfTheWayCounts) {
  EXPECT_THAT(moved_items("", {0.9, 1.0}), IsEmpty()) << "as far, to another end";
  EXPECT_THAT(moved_items("", {0.6, 0.86}), IsEmpty());
  EXPECT_THAT(moved_items("", {0.6, 0.84}), SizeIs(1));
  EXPECT_THAT(moved_items("", {0.6, 1.14}), IsEmpty());
  EXPECT_THAT(moved_items("", {0.6, 1.16}), SizeIs(1));
  EXPECT_THAT(moved_items("", {3.0, 3.1}), SizeIs(1));
  EXPECT_THAT(moved_items("a.weight", {0.9, 0.71}), IsEmpty());
  EXPECT_THAT(moved_items("a.weight", {0.9, 0.69}), SizeIs(1));
  EXPECT_THAT(moved_items("a.weight", {0.2, 0.5}), IsEmpty())
      << "a way that hardly counts among the others";
  EXPECT_FALSE(moved_items("", {0.9, 0.51}).at(0).severe);
  EXPECT_TRUE(moved_items("", {0.9, 0.49}).at(0).severe);
  EXPECT_FALSE(moved_items("", {0.9, 1.99}).at(0).severe);
  EXPECT_TRUE(moved_items("", {1.0, 2.01}).at(0).severe);
}

// A RetinaNet whose fp16 and fp32 trainings find the same objects: after 1,500 steps their weights
// are further apart than they moved, and a bias went 36% as far. A ResNet-18 whose fp16 lane is as
// accurate as fp32's after 375 steps: a bias went 183% as far. One that hardly moved still counts.
TEST(Harm, OnDifferentPathsASingleVariableMayMoveMuchLessOrFurther) {
  const auto items = [](double apart, const Moved& single, double whole = 1.0) {
    RunView run = trained_beside_float32(kFp16Lane);
    add_moved(run, Of::weight, "", {apart, whole});
    add_moved(run, Of::weight, "a.bias", single);
    return harm_in(run).items;
  };
  EXPECT_THAT(items(1.26, {0.847, 0.36}), IsEmpty());
  EXPECT_THAT(items(1.26, {0.9, 0.24}), SizeIs(1));
  EXPECT_THAT(items(0.6, {0.847, 0.36}), SizeIs(1)) << "on the same path";
  EXPECT_THAT(items(1.2, {1.39, 1.83}), IsEmpty());
  EXPECT_THAT(items(1.26, {2.9, 3.1}), SizeIs(1)) << "too far";
  EXPECT_THAT(items(0.6, {0.9, 1.6}), SizeIs(1)) << "too far on the same path";
  EXPECT_THAT(items(1.2, {1.0, 1.0}, 1.25), IsEmpty());
  EXPECT_THAT(items(1.2, {1.0, 1.0}, 1.35), SizeIs(1));
  EXPECT_THAT(items(0.6, {1.0, 1.0}, 1.25), SizeIs(1));
}

TEST(Harm, WeightsThatDidNotMoveAreSevere) {
  RunView run = trained_beside_float32(kFp16Lane);
  add_moved(run, Of::weight, "a.weight", {1.0, 0.0});
  add_moved(run, Of::weight, "b.weight", {1.0, 0.6});
  const Harm harm = harm_in(run);
  ASSERT_THAT(harm.items, SizeIs(1));
  EXPECT_TRUE(harm.severe());
  EXPECT_THAT(harm.items[0].text, HasSubstr("a.weight never moved"));
  EXPECT_THAT(harm.items[0].text, HasSubstr("1 other variable is wrong, too"));
}

TEST(Harm, AnAverageMayBeOffByTwiceWhatItsWeightIs) {
  const auto items = [](double average) {
    RunView run = trained_beside_float32(kFp16Lane);
    add_moved(run, Of::weight, "a.weight", {0.2, 1.0});
    add_moved(run, Of::average, "a.weight", {average, 1.0});
    return harm_in(run).items;
  };
  EXPECT_THAT(items(0.39), IsEmpty());
  ASSERT_THAT(items(0.41), SizeIs(1));
  EXPECT_EQ(items(0.41)[0].of, Kind::average);
}

TEST(Harm, RunningStatisticsMustBeFinite) {
  RunView run = trained_beside_float32(kFp16Lane);
  run.add_deviation(1, {.step = 100, .of = Of::buffer, .name = "bn.mean", .n = 8, .error = 3.0});
  EXPECT_TRUE(harm_in(run).items.empty()) << "what is made of them is judged, not they";
  run.add_deviation(1, {.step = 100, .of = Of::buffer, .name = "bn.var", .n = 8, .broken = 2});
  ASSERT_THAT(harm_in(run).items, SizeIs(1));
  EXPECT_EQ(harm_in(run).items[0].of, Kind::buffer);
  EXPECT_EQ(harm_in(run).items[0].name, "bn.var");
  EXPECT_TRUE(harm_in(run).severe());
}

std::vector<HarmItem> accuracy_items(double own, double reference, int64_t samples) {
  RunInfo info = trained_beside_float32(kFp16Lane).info();
  info.test_samples = samples;
  RunView run(info, RunStatus::complete);
  for (int lane : {0, 1}) {
    for (int64_t step = 0; step < 50; ++step) {
      run.add_step(lane, {.step = step, .loss = (1.0 + 0.001 * lane) * falling_loss(step)});
    }
    run.add_eval(lane, {.step = 50, .loss = 0.2, .accuracy = lane == 0 ? reference : own});
  }
  return harm_in(run).items;
}

// Three standard deviations of a difference of two: 3 sqrt(2 p (1 - p) / n).
TEST(Harm, AccuracyMayDropByChance) {
  EXPECT_THAT(accuracy_items(0.931, 0.95, 100000), IsEmpty()) << "2 points, chance is 0.3";
  EXPECT_THAT(accuracy_items(0.929, 0.95, 100000), SizeIs(1));
  const double chance = 3.0 * std::sqrt(2.0 * 0.95 * 0.05 / 500.0);  // 4.1 points
  EXPECT_THAT(accuracy_items(0.95 - 0.99 * chance, 0.95, 500), IsEmpty());
  const std::vector<HarmItem> items = accuracy_items(0.95 - 1.01 * chance, 0.95, 500);
  ASSERT_THAT(items, SizeIs(1));
  EXPECT_EQ(items[0].of, Kind::accuracy);
  EXPECT_NEAR(items[0].tolerance, chance, 1e-12);
  EXPECT_FALSE(items[0].severe);
  EXPECT_TRUE(accuracy_items(0.84, 0.95, 500).at(0).severe);
  EXPECT_THAT(accuracy_items(0.99, 0.8, 100000), IsEmpty()) << "better is no harm";
}

TEST(Harm, ATestLossThatIsNotFiniteIsSevere) {
  RunView run = trained_beside_float32(kFp16Lane);
  run.add_eval(0, {.step = 100, .loss = 0.2, .accuracy = 0.9});
  run.add_eval(1, {.step = 100, .loss = kUnknown, .accuracy = 0.1});
  ASSERT_THAT(harm_in(run).items, SizeIs(1));
  EXPECT_EQ(harm_in(run).items[0].of, Kind::test_loss);
  EXPECT_TRUE(harm_in(run).severe());
}

TEST(Harm, TheWorstComesFirst) {
  RunView run = trained_beside_float32(kFp16Lane);
  add_batches(run, Of::gradient, "a.weight", {0.1}, 0.0);
  add_batches(run, Of::loss, "", {0.05}, 0.0);
  add_moved(run, Of::weight, "a.weight", {1.0, 0.0});
  run.add_eval(0, {.step = 100, .loss = 0.2, .accuracy = 0.9});
  run.add_eval(1, {.step = 100, .loss = 0.2, .accuracy = 0.5});
  std::vector<Kind> kinds;
  for (const HarmItem& item : harm_in(run).items) kinds.push_back(item.of);
  EXPECT_THAT(kinds, ElementsAre(Kind::weight, Kind::accuracy, Kind::loss, Kind::gradient))
      << "severe ones first, then as a run goes";
}

TEST(Harm, EachLaneIsJudgedByItself) {
  RunView run = harm_inference({kReferenceLane, kFp16Lane, kBf16Lane});
  run.add_deviation(1, output_off(0.014, 0.0));
  run.add_deviation(2, output_off(0.014, 0.0));
  EXPECT_THAT(harm_in(run, 1).items, SizeIs(1));
  EXPECT_TRUE(harm_in(run, 2).items.empty()) << "within four roundings of bf16";
  const Harm reference = harm_in(run, 0);
  EXPECT_FALSE(reference.measured);
  EXPECT_TRUE(reference.inconclusive.empty());
}

TEST(Harm, KindsHaveNames) {
  EXPECT_STREQ(harm_name(Kind::output), "output");
  EXPECT_STREQ(harm_name(Kind::test_loss), "test_loss");
  EXPECT_STREQ(harm_name(Kind::steps), "steps");
}

}  // namespace
}  // namespace halfscope::test
