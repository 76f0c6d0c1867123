// SPDX-License-Identifier: MIT
// Causes of harm: the operator whose own arithmetic causes it, differences of rounded numbers, the
// place where the error grows, and skipped steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "analysis/rules/baseline.h"
#include "analysis/rules/rules.h"
#include "tests/report/harm_run.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void add_loss_error(RunView& run, double error) {
  run.add_deviation(1,
                    {.step = 0, .of = Deviation::Of::loss, .n = 1, .error = error, .spread = 0.0});
}

/// Site 0 is a, which b (site 1) reads.
void add_error(RunView& run, int site, double total, double fp32, double fp64, int other = 0) {
  run.add_error(1, {.step = 0,
                    .site = site,
                    .other_lane = other,
                    .other_site = site,
                    .n = 4,
                    .differing = 1,
                    .total = total,
                    .local_fp32 = fp32,
                    .local_fp64 = fp64});
}

RunView harmed(double error = 0.3) {
  RunView run = trained_beside_float32(kFp16Lane);
  add_loss_error(run, error);
  return run;
}

TEST(LocalError, IsTheLargestOfASingleOperator) {
  RunView run = harmed();
  add_error(run, 0, 0.5, 0.01, 0.2);
  add_error(run, 1, 0.5, 0.5, 0.3);
  const std::vector<Finding> found = findings_of(run, "local_error");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].site, "b.activation") << "the larger one in double";
  EXPECT_EQ(found[0].mechanism, "b computed in fp16 differs from its exact value by 30%");
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_THAT(found[0].action.edit.fp32_layers(), testing::ElementsAre("b"));
  EXPECT_EQ(std::get<double>(found[0].evidence.at("local_error")), 0.3);
  EXPECT_THAT(findings_of(run, "harm").at(0).text, testing::Not(HasSubstr("not found")));
}

TEST(LocalError, IsTakenBesideFp32WhereThatIsAllThereIs) {
  RunView run = harmed();
  add_error(run, 0, 0.5, 0.4, kUnknown);
  add_error(run, 1, 0.5, 0.3, kUnknown);
  EXPECT_EQ(findings_of(run, "local_error").at(0).site, "a.activation");
}

TEST(LocalError, OfNoNumberIsTheLargest) {
  RunView run = harmed();
  add_error(run, 0, 0.5, 0.01, 0.9);
  add_error(run, 1, kUnknown, kInfinity, kUnknown);
  EXPECT_EQ(findings_of(run, "local_error").at(0).mechanism,
            "b is NaN or infinite in fp16, although its operands are finite");
}

TEST(LocalError, ComesFromComparisonsWithTheReference) {
  RunView run = harm_training({{kReferenceLane, falling_loss},
                               {kFp16Lane, falling_times(1.001)},
                               {kBf16Lane, falling_times(1.001)}});
  add_loss_error(run, 0.3);
  add_error(run, 0, 0.9, 0.9, 0.9, 2);
  add_error(run, 1, 0.2, 0.1, 0.1);
  EXPECT_EQ(findings_of(run, "local_error").at(0).site, "b.activation");
}

TEST(LocalError, ExplainsNoHarmThatIsMuchLarger) {
  RunView run = harmed(0.3);
  add_error(run, 0, 0.08, 0.08, 0.08);
  EXPECT_THAT(findings_of(run, "local_error"), IsEmpty()) << "less than three tenths of it";
  RunView rounding = harmed(0.0105);
  add_error(rounding, 0, 0.0019, 0.0019, 0.0019);
  EXPECT_THAT(findings_of(rounding, "local_error"), IsEmpty())
      << "less than four roundings of fp16";
}

TEST(LocalError, IsNoneWhereTheResultsAreRight) {
  RunView run = harmed(0.001);
  add_error(run, 0, 0.5, 0.5, 0.5);
  EXPECT_THAT(findings_of(run, "local_error"), IsEmpty());
}

// Weights went another way, but the operators are right.
TEST(LocalError, IsNoCauseWhereResultsAreRightForEqualWeights) {
  RunView run = harmed(0.001);
  add_error(run, 0, 0.5, 0.5, 0.5);
  run.add_deviation(
      1,
      {.step = 100, .of = Deviation::Of::weight, .name = "", .n = 9, .error = 0.9, .ratio = 0.4});
  ASSERT_THAT(findings_of(run, "harm"), SizeIs(1));
  EXPECT_THAT(findings_of(run, "local_error"), IsEmpty());
}

TEST(LocalError, NamesTheFormatThatOperandsAreReadIn) {
  const HarmLane reads{.name = "tf32", .read_a = kTf32, .write_a = kFp32};
  RunView run = trained_beside_float32(reads);
  add_loss_error(run, 0.3);
  add_error(run, 0, 0.5, 0.3, 0.3);
  EXPECT_EQ(findings_of(run, "local_error").at(0).mechanism,
            "a reads its operands in tf32, so its output differs from the exact one by 30%");
}

/// Adds statistics of an output with numbers of this size to both lanes.
void add_size(RunView& run, int site, double size, int64_t subnormal = 0) {
  TensorStats stats{.n = 4, .subnormal = subnormal, .max_abs = static_cast<float>(size)};
  stats.sum_sq = 4.0 * size * size;
  for (int lane = 0; lane < 2; ++lane) run.add_window(lane, site, {.step = 0, .stats = stats});
}

TEST(LocalError, SaysThatNumbersAreSubnormal) {
  RunView run = harmed();
  add_error(run, 0, 0.5, 0.3, 0.3);
  add_size(run, 0, 1e-6, 3);
  EXPECT_THAT(findings_of(run, "local_error").at(0).mechanism,
              HasSubstr("75% of its numbers are subnormal, with few bits"));
}

/// a writes numbers `times` as large as the result of b, which subtracts something from them and is
/// wrong by `error`.
RunView subtracting(double times, double error, const char* op = "Sub") {
  RunInfo info = trained_beside_float32(kFp16Lane).info();
  for (LaneInfo& lane : info.lanes) lane.layers[1].op = op;
  RunView run(std::move(info), RunStatus::complete);
  for (int64_t step = 0; step < 100; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      run.add_step(lane, {.step = step, .loss = falling_loss(step)});
    }
  }
  add_loss_error(run, 0.3);
  add_size(run, 0, times);
  add_size(run, 1, 1.0);
  add_error(run, 0, 2e-4, 2e-4, 2e-4);
  add_error(run, 1, error, 0.0, 0.0);
  return run;
}

TEST(Cancellation, NamesTheNumbersThatWereRoundedBefore) {
  const std::vector<Finding> found = findings_of(subtracting(1000.0, 0.2), "cancellation");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].layer, "a");
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].mechanism,
            "a rounds its output to fp16, and b cancels most of it: the result is 1000 times "
            "smaller");
  EXPECT_THAT(found[0].action.edit.fp32_layers(), testing::ElementsAre("a", "b"));
  EXPECT_THAT(findings_of(subtracting(1000.0, 0.2), "harm").at(0).text,
              testing::Not(HasSubstr("not found")));
}

TEST(Cancellation, NeedsADifferenceAndARoundingThatExplainsTheError) {
  EXPECT_THAT(findings_of(subtracting(7.0, 0.2), "cancellation"), IsEmpty());
  EXPECT_THAT(findings_of(subtracting(1000.0, 0.2, "Mul"), "cancellation"), IsEmpty());
  // 0.4 * 1000 / 2^11 is 20%, less than three tenths of 70%.
  EXPECT_THAT(findings_of(subtracting(1000.0, 0.7), "cancellation"), IsEmpty());
  EXPECT_THAT(findings_of(subtracting(1000.0, 0.05), "cancellation"), IsEmpty())
      << "the harm is much larger";
}

// conv2 -> square -> mean -> variance -> root: the variance rounds to a negative number, and the
// root is in fp32 already.
TEST(NegativeOperands, AreOfTheArithmeticThatRoundedThem) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "relu2").inputs = {"root"};
  const auto relu = std::find_if(spec.layers.begin(), spec.layers.end(),
                                 [](const LayerSpec& layer) { return layer.path == "relu2"; });
  spec.layers.insert(relu, {{.path = "square", .op = "Mul", .inputs = {"conv2"}},
                            {.path = "mean", .op = "ReduceMean", .inputs = {"square"}},
                            {.path = "variance", .op = "Sub", .inputs = {"mean"}},
                            {.path = "root", .op = "Sqrt", .inputs = {"variance"}, .fp32 = true}});
  const RunView healthy = make_run(spec);
  RunView run(healthy.info(), RunStatus::complete);
  for (int lane = 0; lane < 2; ++lane) {
    for (StepRow row : healthy.steps(lane)) {
      if (lane == 1) row.loss = kUnknown;
      run.add_step(lane, row);
    }
    bool after = false;
    for (const SiteInfo& site : healthy.lane(lane).sites) {
      after = after || site.name() == "root.activation";
      for (StatsWindow window : healthy.windows(lane, site.order)) {
        if (lane == 1 && after && site.role != Role::weight) {
          window.stats = TensorStats{.n = window.stats.n, .nan = window.stats.n};
        }
        run.add_window(lane, site.order, window);
      }
    }
  }
  const std::vector<Finding> found = findings_of(run, "forward_overflow");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].mechanism, "root reads negative numbers and gives NaN");
  EXPECT_EQ(found[0].cause, Mechanism::early_rounding);
  EXPECT_THAT(found[0].action.edit.fp32_layers(),
              testing::UnorderedElementsAre("square", "mean", "variance"));
}

TEST(UnknownCause, SaysWhereTheErrorGrows) {
  EXPECT_THAT(findings_of(harmed(), "harm").at(0).text,
              EndsWith("The recording alone does not show the cause."));
  RunView run = harmed();
  add_error(run, 0, 0.01, 0.001, 0.001);
  add_error(run, 1, 0.25, 0.001, 0.001);
  EXPECT_THAT(findings_of(run, "harm").at(0).text,
              EndsWith("The recording alone does not show the cause. The error grows at "
                       "b.activation, from 1% to 25%."));
  EXPECT_TRUE(findings_of(run, "harm").at(0).action.text.empty()) << "that is nothing to do";
}

/// The first steps of the lane are skipped at 2^16, 2^15 and so on. Then it trains like float32,
/// but its loss ends at another value. Twins end where the reference does.
RunView skipping(int64_t skipped, int64_t steps, double factor, bool twins = true) {
  RunInfo info;
  info.steps_planned = steps;
  info.lanes = {harm_lane_info(kReferenceLane), harm_lane_info(kFp16Lane)};
  info.lanes[1].loss_scale = "dynamic:65536";
  RunView run(std::move(info), RunStatus::complete);
  for (int64_t step = 0; step < steps; ++step) {
    const bool late = step < skipped;
    const double scale = std::exp2(static_cast<double>(16 - std::min(step, skipped)));
    run.add_step(
        0, {.step = step, .loss = falling_loss(step), .learning_rate = 0.1, .grad_norm = 1.0});
    run.add_step(1, {.step = step,
                     .loss = factor * falling_loss(step),
                     .loss_scale = scale,
                     .learning_rate = 0.1,
                     .skipped = late,
                     .grad_norm = 1.0});
  }
  run.add_deviation(1,
                    {.step = 0, .of = Deviation::Of::loss, .n = 1, .error = 0.0, .spread = 0.001});
  if (!twins) return run;
  run.add_deviation(1, {.step = steps,
                        .of = Deviation::Of::training,
                        .n = 1,
                        .error = factor - 1.0,
                        .spread = 0.001});
  return run;
}

TEST(SkippedSteps, LeaveTheLossOpenWithoutTwins) {
  const RunView run = skipping(5, 100, 1.5, false);
  EXPECT_THAT(findings_of(run, "harm"), IsEmpty());
  EXPECT_THAT(harm_of(LaneFacts(run, 1)).inconclusive, testing::StartsWith("It skipped 5 of 100"));
}

TEST(SkippedSteps, ABetterLossIsNoHarm) {
  EXPECT_THAT(findings_of(skipping(5, 100, 0.5), "harm"), IsEmpty());
  EXPECT_THAT(findings_of(skipping(5, 100, 1.5), "harm"), SizeIs(1));
}

TEST(SkippedSteps, ExplainALossThatEndsElsewhere) {
  const std::vector<Finding> found = findings_of(skipping(5, 100, 1.5), "skipped_steps");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].mechanism,
            "5 of 100 steps were skipped while the loss scale came down from 65536 (2^16) to "
            "2048 (2^11)");
  EXPECT_EQ(found[0].action.edit.loss_scale(), 2048.0);
  EXPECT_NEAR(std::get<double>(found[0].evidence.at("share_of_way")), 0.05, 1e-12);
}

TEST(SkippedSteps, ExplainNothingWhereTheyAreFewOrHarmIsElsewhere) {
  EXPECT_THAT(findings_of(skipping(1, 100, 1.5), "skipped_steps"), IsEmpty()) << "one in a hundred";
  EXPECT_THAT(findings_of(skipping(5, 100, 1.001), "skipped_steps"), IsEmpty()) << "no harm";
  RunView wrong = skipping(5, 100, 1.5);
  add_loss_error(wrong, 0.5);
  EXPECT_THAT(findings_of(wrong, "skipped_steps"), IsEmpty()) << "wrong at equal weights, too";
  RunView far = skipping(5, 100, 1.5);
  far.add_deviation(
      1,
      {.step = 100, .of = Deviation::Of::weight, .name = "", .n = 9, .error = 0.6, .ratio = 0.4});
  EXPECT_THAT(findings_of(far, "skipped_steps"), IsEmpty()) << "5% of the way is not 60%";
  EXPECT_THAT(findings_of(skipping(5, 100, 1.65), "skipped_steps"), IsEmpty())
      << "float32's loss was 1.49 times as large 20 steps before the end";
}

/// Step 60 has a gradient 30 times as large as others. The lane skips it and goes another way.
RunView parting(double before) {
  RunInfo info;
  info.steps_planned = 100;
  info.lanes = {harm_lane_info(kReferenceLane), harm_lane_info(kFp16Lane)};
  info.lanes[1].loss_scale = "dynamic:65536";
  RunView run(std::move(info), RunStatus::complete);
  for (int64_t step = 0; step < 100; ++step) {
    const double norm = step == 60 ? 30.0 : 1.0;
    run.add_step(
        0, {.step = step, .loss = falling_loss(step), .learning_rate = 0.1, .grad_norm = norm});
    run.add_step(1, {.step = step,
                     .loss = (step <= 60 ? before : 1.5) * falling_loss(step),
                     .loss_scale = step <= 60 ? 65536.0 : 32768.0,
                     .learning_rate = 0.1,
                     .skipped = step == 60,
                     .grad_norm = norm});
  }
  run.add_deviation(1,
                    {.step = 0, .of = Deviation::Of::loss, .n = 1, .error = 0.0, .spread = 0.001});
  run.add_deviation(
      1,
      {.step = 100, .of = Deviation::Of::weight, .name = "", .n = 9, .error = 0.9, .ratio = 0.4});
  return run;
}

TEST(SkippedSteps, PartTrainingsAtASpikeThatFp32Takes) {
  const RunView run = parting(1.0);
  const std::vector<Finding> found = findings_of(run, "skipped_steps");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].step, 60);
  EXPECT_EQ(found[0].severity, Severity::warning) << "another way, not a useless one";
  EXPECT_EQ(found[0].mechanism,
            "it skips step 60, whose gradient overflows at loss scale 65536 (2^16) and is 30 times "
            "as large as usual");
  EXPECT_THAT(found[0].action.text, HasSubstr("Clip the norm of the gradients"));
  EXPECT_EQ(findings_of(run, "harm").at(0).severity, Severity::warning);
  EXPECT_THAT(findings_of(parting(1.1), "skipped_steps"), IsEmpty())
      << "the losses differ before the step";
}

// The same numbers: weights that stand still, and a loss that is wrong for equal weights.
TEST(LostUpdates, DoNotExplainALossThatIsWrongForEqualWeights) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].storage = kFp16;
  spec.lanes[1].update = -18.0;
  const auto severity = [&](double loss, double moved) {
    RunView run = make_run(spec);
    add_loss_error(run, loss);
    run.add_deviation(
        1,
        {.step = 20, .of = Deviation::Of::weight, .n = 10, .error = 1.0 - moved, .ratio = moved});
    return findings_of(run, "lost_updates").at(0);
  };
  EXPECT_EQ(severity(0.0, 0.2).severity, Severity::warning);
  EXPECT_EQ(severity(0.011, 0.2).severity, Severity::warning) << "the weights are further off";
  const Finding finding = severity(0.5, 0.2);
  EXPECT_EQ(finding.severity, Severity::info);
  EXPECT_TRUE(finding.action.edit.empty());
  EXPECT_THAT(finding.text, HasSubstr("This is not the first problem"));
}

TEST(SkippedShare, IsTheLargerOfStepsAndGradients) {
  std::vector<StepRow> reference, lane;
  for (int64_t step = 0; step < 10; ++step) {
    reference.push_back({.step = step, .learning_rate = 0.5, .grad_norm = step == 0 ? 11.0 : 1.0});
    lane.push_back({.step = step, .skipped = step == 0});
  }
  EXPECT_DOUBLE_EQ(skipped_share(lane, reference), 11.0 / 20.0) << "the first step led far";
  lane[0].skipped = false;
  lane[9].skipped = true;
  EXPECT_DOUBLE_EQ(skipped_share(lane, reference), 0.1) << "of ten steps";
  EXPECT_EQ(skipped_share({}, reference), 0.0);
}

}  // namespace
}  // namespace halfscope::test
