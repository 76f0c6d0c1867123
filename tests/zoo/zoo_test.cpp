// SPDX-License-Identifier: MIT
// How the zoo measures harm and judges verdicts, compared with values computed by hand.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <stdexcept>

#include "core/models/zoo/plans.h"
#include "tests/special_values.h"
#include "tests/zoo/coverage.h"
#include "tests/zoo/score.h"

namespace halfscope::zoo {
namespace {

NamedTensors tensors(std::vector<float> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return {{"a", Tensor{shape, std::move(values)}}};
}

TEST(Harm, DistanceIsRelativeAndCountsWhatIsNotFinite) {
  int64_t non_finite = 0;
  EXPECT_DOUBLE_EQ(distance(tensors({3.0f, 5.0f}), tensors({3.0f, 4.0f}), non_finite), 0.2);
  EXPECT_EQ(non_finite, 0);
  distance(tensors({3.0f, kInf}), tensors({3.0f, 4.0f}), non_finite);
  EXPECT_EQ(non_finite, 1);
  distance(tensors({3.0f, 0.0f}), tensors({3.0f, kInf}), non_finite);
  EXPECT_EQ(non_finite, 1) << "what is infinite in exact arithmetic is not the lane's fault";
}

TEST(Harm, AWayIsCountedFromItsOwnStart) {
  const NamedTensors result = way(tensors({1.0f, 2.0f}), tensors({1.5f, 2.0f}));
  EXPECT_EQ(result.at("a").data, (std::vector<float>{0.5f, 0.0f}));
}

TEST(Harm, LossesAreComparedOverTheLastFifth) {
  int64_t non_finite = 0;
  const std::vector<double> reference{9, 8, 7, 6, 5, 4, 3, 2, 2, 2};
  std::vector<double> other = reference;
  other[0] = 1000.0;
  other[8] = 2.5;
  other[9] = 2.1;
  EXPECT_NEAR(loss_distance(other, reference, non_finite), 0.15, 1e-12);
  other[9] = std::numeric_limits<double>::quiet_NaN();
  loss_distance(other, reference, non_finite);
  EXPECT_EQ(non_finite, 1);
  // A loss of nearly zero counts as 5% of the first one.
  EXPECT_NEAR(loss_distance({10.0, 0.1}, {10.0, 0.0}, non_finite), 0.2, 1e-12);
}

TEST(Harm, IsMeasuredAgainstWhatCorrectRunsDrift) {
  const auto harm = [](double error, double drift, double moved = 0.0, int64_t non_finite = 0) {
    Truth truth;
    truth.error = error;
    truth.drift = drift;
    truth.moved = moved;
    truth.non_finite = non_finite;
    return harm_of(truth, 0.02, 0.05);
  };
  EXPECT_EQ(harm(0.02, 0.0), Harm::none);
  EXPECT_EQ(harm(0.03, 0.0), Harm::unclear);
  EXPECT_EQ(harm(0.06, 0.0), Harm::real);
  EXPECT_EQ(harm(0.06, 0.03), Harm::none);
  EXPECT_EQ(harm(0.1, 0.03), Harm::unclear);
  EXPECT_EQ(harm(0.13, 0.03), Harm::real);
  EXPECT_EQ(harm(0.0, 0.0, 0.6), Harm::unclear) << "the weights went somewhere else";
  EXPECT_EQ(harm(0.0, 0.0, 0.0, 1), Harm::real);
}

Trial trial(const std::string& id, const std::string& plan, Harm harm, bool alarm) {
  Trial result;
  result.case_id = id;
  result.plan = plan;
  result.truth.harm = harm;
  result.alarm = alarm;
  return result;
}

TEST(Score, CountsWhatIsNoticedMissedAndBlamed) {
  Case failing;
  failing.id = "A";
  failing.right = {"r"};
  failing.plain = {"p", "q"};
  Case control;
  control.id = "B";
  control.fails = false;
  std::vector<Trial> trials{trial("A", "r", Harm::real, true), trial("A", "p", Harm::real, false),
                            trial("A", "q", Harm::none, true), trial("B", "p", Harm::none, true),
                            trial("B", "q", Harm::none, false)};
  trials[0].right_kind = true;
  trials[3].control = trials[4].control = true;
  EXPECT_EQ(judge(trials[1]), Judgement::missed);
  EXPECT_EQ(judge(trials[2]), Judgement::alarmed);
  EXPECT_EQ(judge(trial("A", "p", Harm::unclear, true)), Judgement::unjudged);
  const Score score = score_of({failing, control}, trials);
  EXPECT_EQ(score.cases, 1);
  EXPECT_EQ(score.noticed_right, 1);
  EXPECT_EQ(score.noticed_plain, 0) << "p was missed, and q does no harm";
  EXPECT_EQ(score.controls, 2);
  EXPECT_EQ(score.alarms, 1);
  EXPECT_EQ(score.clean_alarms, 1);
  EXPECT_EQ(score.harmful, 2);
  EXPECT_EQ(score.harmful_noticed, 1);
  trials[0].truth.harm = Harm::none;
  EXPECT_EQ(score_of({failing}, trials).not_reproduced, 1);
}

TEST(Score, StatesThatBlameNobodyAreNoAlarms) {
  for (const char* state : {"healthy", "inconclusive", "reference"}) EXPECT_FALSE(is_alarm(state));
  for (const char* state : {"attention", "broken", "cured"}) EXPECT_TRUE(is_alarm(state));
}

TEST(Plans, SettingsFollowThePlan) {
  const LaneChoice lane = lane_choice(
      "bfloat16_stagewise accumulate=format compute=bf16 sum=bf16 state=fp16 "
      "reduce=tree:format=fp32,vote=one");
  EXPECT_TRUE(lane.plan.defaults.stagewise);
  EXPECT_EQ(lane.plan.storage, kBf16);
  EXPECT_EQ(lane.plan.defaults.accumulation, Accumulation(Accumulation::format));
  EXPECT_EQ(lane.plan.update_compute, kBf16);
  EXPECT_EQ(lane.sum_format, kBf16);
  EXPECT_EQ(lane.state_format, kFp16);
  ASSERT_TRUE(lane.plan.reduction);
  EXPECT_EQ(reduction_text(*lane.plan.reduction), "tree:format=fp32,vote=one");
  EXPECT_EQ(lane.scaler.kind, LossScalerConfig::Kind::none);
  EXPECT_EQ(lane_choice("mixed_float16").scaler.kind, LossScalerConfig::Kind::dynamic);
  EXPECT_THROW(lane_choice("float17"), std::invalid_argument);
  EXPECT_THROW(lane_choice("float16 speed=11"), std::invalid_argument);
}

TEST(Cases, HaveNamesOfTheirOwn) {
  std::set<std::string> ids;
  for (const Case& each : all_cases()) {
    EXPECT_TRUE(ids.insert(each.id).second) << each.id;
    EXPECT_EQ(each.right.empty(), !each.fails) << each.id;
    EXPECT_FALSE(each.plain.empty()) << each.id;
  }
}

TEST(Cases, OfTheListAreThereOrSaidToBeMissing) {
  const Coverage all = coverage();
  EXPECT_EQ(all.cases.size() + all.controls.size() + all.kernels.size() + all.absent.size(), 52u);
  EXPECT_EQ(all.controls, (std::vector<int>{26, 29, 46}));
  EXPECT_EQ(all.kernels, (std::vector<int>{32, 51}));
  EXPECT_EQ(all.absent, (std::vector<int>{47, 52}));
  std::set<int> said;
  for (const Absence& each : absences()) said.insert(failure_number(each.id));
  std::set<int> no_case(all.absent.begin(), all.absent.end());
  no_case.insert(all.kernels.begin(), all.kernels.end());
  EXPECT_EQ(said, no_case);
  const std::string text = coverage_text(all);
  EXPECT_NE(text.find("as cases that fail:       45, "), std::string::npos) << text;
  EXPECT_NE(text.find("not at all:               2: F47, F52"), std::string::npos) << text;
  EXPECT_EQ(failure_number("F13b"), 13);
  EXPECT_EQ(failure_number("OKcnn"), 0);
}

}  // namespace
}  // namespace halfscope::zoo
