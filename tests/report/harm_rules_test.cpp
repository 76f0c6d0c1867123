// SPDX-License-Identifier: MIT
// Effect of harm on findings: remarks if the results are right, warnings if they are nearly wrong;
// the rules `harm` and `baseline`; and where the cause is searched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "analysis/report/report.h"
#include "analysis/rules/baseline.h"
#include "analysis/rules/harm.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "tests/report/harm_run.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Of = Deviation::Of;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// Gradients that no loss scale suits, in a lane whose loss is float32's to the last bit.
RunView without_a_loss_scale() {
  RunSpec spec = no_scale_spec();
  spec.steps = 30;
  return make_run(spec);
}

void add_batch_loss(RunView& run, double error, double spread) {
  run.add_deviation(
      1, {.step = 0, .of = Of::loss, .n = 1, .error = error, .ratio = 1.0, .spread = spread});
}

TEST(HarmlessFindings, AreRemarks) {
  RunView run = without_a_loss_scale();
  add_batch_loss(run, 0.0, 0.001);
  const std::vector<Finding> found = findings_of(run, "loss_scale_window");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_EQ(found[0].action.text, "Nothing to change: it is harmless in this run.");
  EXPECT_TRUE(found[0].action.edit.empty());
  for (const Finding& each : run_rules(run)) EXPECT_EQ(each.severity, Severity::info) << each.rule;
  EXPECT_FALSE(recommend(run, run_rules(run), 1)) << "nothing is to be mended";
  const std::string page = report_html(make_report(run));
  EXPECT_THAT(page, HasSubstr("<p class=\"soft\">Nothing to change: it is harmless"));
}

TEST(HarmlessFindings, OfADoubtfulLaneAreWarnings) {
  RunView run = without_a_loss_scale();
  add_batch_loss(run, 0.02, 0.03);
  ASSERT_TRUE(harm_of(LaneFacts(run, 1)).doubtful);
  const std::vector<Finding> found = findings_of(run, "loss_scale_window");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::warning);
}

TEST(HarmlessFindings, OfAHarmedLaneAreWhatTheRulesSay) {
  RunView run = without_a_loss_scale();
  add_batch_loss(run, 0.07, 0.03);
  const std::vector<Finding> found = findings_of(run, "loss_scale_window");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::error);
  ASSERT_THAT(findings_of(run, "harm"), SizeIs(1));
}

// A batch's loss and gradients do not depend on updates, whose harm is measured separately.
TEST(HarmlessFindings, OfUpdatesAreRemarksAlsoInADoubtfulLane) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].storage = kFp16;
  spec.lanes[1].update = -18.0;
  const auto lost = [&](bool harmed) {
    RunView run = make_run(spec);
    add_batch_loss(run, 0.02, 0.03);
    if (harmed) {
      run.add_deviation(1, {.step = 20, .of = Of::weight, .n = 10, .error = 1.0, .ratio = 0.0});
    }
    return findings_of(run, "lost_updates");
  };
  ASSERT_FALSE(lost(true).empty());
  EXPECT_GE(lost(true)[0].severity, Severity::warning);
  ASSERT_FALSE(lost(false).empty());
  EXPECT_EQ(lost(false)[0].severity, Severity::info);
}

TEST(HarmlessFindings, AFaultyKernelAndALostLaneMatterAllTheSame) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].backend = "cuda";
  RunView run = make_run(spec);
  run.add_kernel(1, {.step = 0, .site = 3, .n = 512, .differing = 3, .max_ulps = 4.0, .beyond = 3});
  ASSERT_TRUE(harm_of(LaneFacts(run, 1)).items.empty());
  const std::vector<Finding> faults = findings_of(run, "kernel_fault");
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0].severity, Severity::error);
  EXPECT_THAT(faults[0].action.text, Not(HasSubstr("no harm")));

  RunView lost = make_run(healthy_spec());
  lost.set_lost(1, {7, "out of memory"});
  ASSERT_THAT(findings_of(lost, "lane_lost"), SizeIs(1));
  EXPECT_EQ(findings_of(lost, "lane_lost")[0].severity, Severity::error);
}

TEST(HarmlessFindings, OfLanesThatNobodyComparedStay) {
  RunSpec spec = no_scale_spec();
  spec.steps = 30;
  spec.lanes.erase(spec.lanes.begin());
  const RunView run = make_run(spec);
  ASSERT_FALSE(harm_of(LaneFacts(run, 0)).measured);
  const std::vector<Finding> found = run_rules(run);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [](const Finding& each) { return each.severity >= Severity::warning; }));
}

TEST(HarmRule, IsAFindingOfTheWorstThatNamesTheOthers) {
  RunView run = trained_beside_float32(kFp16Lane);
  run.add_deviation(1, {.step = 3,
                        .of = Of::gradient,
                        .name = "a.weight",
                        .n = 9,
                        .error = 0.8,
                        .ratio = 1.0,
                        .spread = 0.01});
  add_batch_loss(run, 0.03, 0.0);
  const std::vector<Finding> found = findings_of(run, "harm");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].lane, 1);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].step, 3);
  EXPECT_THAT(found[0].mechanism, HasSubstr("the gradient of a.weight differs from"));
  EXPECT_THAT(found[0].text, AllOf(HasSubstr("fp16: the gradient of a.weight differs from"),
                                   HasSubstr("Its loss on the same batch")));
  EXPECT_EQ(std::get<std::string>(found[0].evidence.at("result")), "gradient");
  EXPECT_EQ(std::get<std::string>(found[0].evidence.at("name")), "a.weight");
  EXPECT_EQ(std::get<double>(found[0].evidence.at("error")), 0.8);
  EXPECT_EQ(std::get<double>(found[0].evidence.at("tolerance")), 0.05);
}

TEST(HarmRule, IsAWarningWhereTheHarmIsNotSevere) {
  RunView run = trained_beside_float32(kFp16Lane);
  add_batch_loss(run, 0.03, 0.0);
  ASSERT_THAT(findings_of(run, "harm"), SizeIs(1));
  EXPECT_EQ(findings_of(run, "harm")[0].severity, Severity::warning);
}

TEST(HarmRule, NamesNoMissingCauseWhereARuleFoundOne) {
  RunView run = without_a_loss_scale();
  add_batch_loss(run, 0.3, 0.0);
  const std::vector<Finding> found = findings_of(run, "harm");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].text, Not(HasSubstr("The recording alone does not show the cause")));
}

TEST(HarmRule, IsSilentAboutReferences) {
  // Its deviations, if it had any, would be no one's business.
  RunView run = trained_beside_float32(kFp16Lane);
  run.add_deviation(0, {.step = 0, .of = Of::loss, .n = 1, .error = 0.9, .spread = 0.0});
  EXPECT_THAT(findings_of(run, "harm"), IsEmpty());
}

double rising_loss(int64_t step) { return 2.3 + 0.1 * static_cast<double>(step); }

TEST(BaselineRule, BlamesAReferenceThatDivergesAndAdvisesNothing) {
  const RunView run =
      harm_training({{kReferenceLane, rising_loss}, {kFp16Lane, [](int64_t) { return 2.3; }}});
  const std::vector<Finding> found = findings_of(run, "baseline");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].lane, 0);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_FALSE(recommend(run, run_rules(run), 1).has_value());
}

// Beyond half of where it began; a fifth of 20 steps are the last four.
TEST(BaselineRule, DivergesFromHalfAsMuchOn) {
  const auto ends_at = [](double factor, int64_t steps) {
    const LossCurve curve = [=](int64_t step) { return step < 16 ? 2.0 : 2.0 * factor; };
    return findings_of(harm_training({{kReferenceLane, curve}, {kFp16Lane, curve}}, steps),
                       "baseline");
  };
  EXPECT_THAT(ends_at(1.49, 20), IsEmpty());
  EXPECT_THAT(ends_at(1.51, 20), SizeIs(1));
  EXPECT_THAT(ends_at(kNotANumber, 20), SizeIs(1));
  EXPECT_THAT(ends_at(1.51, 19), IsEmpty()) << "too short to tell";
}

TEST(BaselineRule, ALossThatIsMaximizedMustRise) {
  const char* optimizer = "adamw:lr=0.001,maximize=true";
  const auto found = [&](const LossCurve& reference, const LossCurve& lane, const char* rule) {
    return findings_of(
        harm_training({{kReferenceLane, reference}, {kFp16Lane, lane}}, 100, optimizer), rule);
  };
  const LossCurve flat = [](int64_t) { return 2.3; };
  const LossCurve sinking = [](int64_t step) { return -rising_loss(step); };
  EXPECT_THAT(found(rising_loss, rising_loss, "baseline"), IsEmpty());
  EXPECT_THAT(found(rising_loss, rising_loss, "harm"), IsEmpty());
  EXPECT_THAT(found(sinking, sinking, "baseline"), SizeIs(1));
  const std::vector<Finding> harm = found(rising_loss, flat, "harm");
  ASSERT_THAT(harm, SizeIs(1));
  EXPECT_EQ(harm[0].severity, Severity::error);
  EXPECT_THAT(harm[0].text, HasSubstr("loss stays at 2.3, while float32's rises to 11.2"));
}

TEST(BaselineRule, IsSilentAboutLanesThatAreJudged) {
  EXPECT_THAT(findings_of(harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, rising_loss}}),
                          "baseline"),
              IsEmpty());
  EXPECT_THAT(findings_of(harm_training({{kFp16Lane, rising_loss}}), "baseline"), IsEmpty());
  EXPECT_THAT(findings_of(harm_inference({kReferenceLane, kFp16Lane}), "baseline"), IsEmpty());
}

TEST(Baseline, LearnsIfTheLossEndsTwoPercentLower) {
  const auto rows = [](double end) {
    std::vector<StepRow> result;
    for (int64_t step = 0; step < 40; ++step) {
      result.push_back({.step = step, .loss = step < 30 ? 2.0 : end});
    }
    return result;
  };
  EXPECT_FALSE(has_learned(rows(1.97)));
  EXPECT_TRUE(has_learned(rows(1.95)));
  EXPECT_FALSE(has_learned(rows(2.03), -1.0));
  EXPECT_TRUE(has_learned(rows(2.05), -1.0));
  EXPECT_FALSE(has_learned(rows(1.95), -1.0));
  EXPECT_FALSE(has_learned(rows(kNotANumber)));
  EXPECT_FALSE(has_learned({}));
  EXPECT_FALSE(has_diverged(rows(2.9)));
  EXPECT_TRUE(has_diverged(rows(3.1)));
  EXPECT_FALSE(has_diverged(rows(3.1), -1.0));
  EXPECT_TRUE(has_diverged(rows(0.9), -1.0));
  // It jumps up at once and comes down to where it was.
  std::vector<StepRow> spike = rows(2.3);
  for (size_t i = 1; i < 30; ++i) spike[i].loss = 5.0;
  EXPECT_FALSE(has_learned(spike));
  EXPECT_TRUE(has_risen(spike));
  EXPECT_FALSE(has_risen(rows(2.1)));
  EXPECT_TRUE(has_risen(rows(2.3)));
  EXPECT_FALSE(has_risen(rows(2.3), -1.0));
  EXPECT_TRUE(has_risen(rows(1.7), -1.0));
  EXPECT_EQ(first_losses(rows(1.0)), std::vector<double>(8, 2.0));
  EXPECT_EQ(last_losses(rows(1.0)), std::vector<double>(8, 1.0));
}

}  // namespace
}  // namespace halfscope::test
