// SPDX-License-Identifier: MIT
// Verdicts that rest on harm: the states of lanes and of the run, why a lane without harm is not
// called healthy, the sentence about the cause, and what is said of the other lanes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "analysis/report/report.h"
#include "tests/report/harm_run.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using State = Verdict::State;
using Of = Deviation::Of;

Deviation loss_off(double error) {
  return {.step = 0, .of = Of::loss, .n = 1, .error = error, .ratio = 1.0, .spread = 0.0};
}

Deviation result_off(double error) {
  return {.step = 3,
          .of = Of::output,
          .name = "logits",
          .n = 100,
          .error = error,
          .worst = error,
          .ratio = 1.0,
          .spread = 0.0,
          .worst_spread = 0.0};
}

State state_with(double error) {
  RunView run = trained_beside_float32(kFp16Lane);
  run.add_deviation(1, loss_off(error));
  const Report report = make_report(run);
  EXPECT_EQ(report.lanes[1].state, report.verdict.state);
  EXPECT_STREQ(lane_verdict(report.lanes[0]), "reference");
  return report.verdict.state;
}

TEST(HarmVerdict, FollowsTheHarm) {
  EXPECT_EQ(state_with(0.001), State::healthy);
  EXPECT_EQ(state_with(0.05), State::attention);
  EXPECT_EQ(state_with(0.5), State::broken);
}

TEST(HarmVerdict, OfInferenceIsThatOfItsOutputs) {
  for (const auto& [error, state] :
       {std::pair(0.001, State::healthy), std::pair(0.05, State::attention),
        std::pair(0.5, State::broken)}) {
    RunView run = harm_inference({kReferenceLane, kFp16Lane});
    run.add_deviation(1, result_off(error));
    const Report report = make_report(run);
    EXPECT_EQ(report.verdict.state, state);
    EXPECT_EQ(report.lanes[1].state, state);
    const bool harmed = state != State::healthy;
    EXPECT_EQ(report.verdict.headline.find("logits") != std::string::npos, harmed)
        << report.verdict.headline;
  }
}

/// Returns what the run cannot show, in the report's words.
std::string doubt(const RunView& run, size_t lane = 1) {
  const Report report = make_report(run);
  EXPECT_EQ(report.lanes[lane].state, State::inconclusive);
  EXPECT_EQ(report.verdict.state, State::inconclusive) << report.verdict.text;
  EXPECT_THAT(report.verdict.text, Not(HasSubstr("is healthy")));
  return report.lanes[lane].harm.inconclusive;
}

TEST(InconclusiveVerdict, WithoutAReference) {
  EXPECT_THAT(doubt(harm_training({{kFp16Lane, falling_loss}}), 0), HasSubstr("float32"));
  EXPECT_THAT(doubt(harm_inference({kFp16Lane, kBf16Lane}), 0), HasSubstr("float32"));
}

TEST(InconclusiveVerdict, WhereNothingWasCompared) {
  EXPECT_THAT(doubt(harm_inference({kReferenceLane, kFp16Lane})), HasSubstr("did not compare"));
}

// The plan narrows what this network does not have.
TEST(InconclusiveVerdict, WhereNothingIsNarrowed) {
  const HarmLane wide{.name = "wide", .planned = kFp16};
  EXPECT_THAT(doubt(trained_beside_float32(wide, 1.0)), HasSubstr("rounds nothing"));
  EXPECT_EQ(make_report(trained_beside_float32(wide)).verdict.state, State::healthy)
      << "something else differs, such as the state of the optimizer";
  EXPECT_EQ(make_report(trained_beside_float32(kFp16Lane, 1.0)).verdict.state, State::healthy)
      << "it rounds, though nothing that is inexact";
}

TEST(InconclusiveVerdict, WhereTheReferenceDidNotLearn) {
  const auto flat = [](double end) {
    return [end](int64_t step) { return step < 50 ? 2.0 : end; };
  };
  const auto run = [&](double end) {
    return harm_training({{kReferenceLane, flat(end)}, {kFp16Lane, flat(1.001 * end)}});
  };
  EXPECT_THAT(doubt(run(1.97)), HasSubstr("did not learn"));
  EXPECT_EQ(make_report(run(1.95)).verdict.state, State::healthy);
}

TEST(InconclusiveVerdict, BelowTwentySteps) {
  const auto run = [](int64_t steps) {
    return harm_training({{kReferenceLane, falling_times(1.0)}, {kFp16Lane, falling_times(1.001)}},
                         steps);
  };
  EXPECT_THAT(doubt(run(19)), HasSubstr("19 steps are too few."));
  EXPECT_EQ(make_report(run(20)).verdict.state, State::healthy);
  const Report running = make_report(with_status(run(19), RunStatus::running, 200));
  EXPECT_NE(running.lanes[1].state, State::inconclusive) << "it goes on, and so does the verdict";
}

TEST(InconclusiveVerdict, IsNeverGivenWhereThereIsHarm) {
  RunView run =
      harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, falling_times(1.001)}}, 5);
  run.add_deviation(1, loss_off(0.5));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::broken);
  EXPECT_THAT(report.lanes[1].harm.inconclusive, IsEmpty());
}

// One lane is known to be right; nothing is known about the other.
TEST(InconclusiveVerdict, OfOneLaneDoesNotHideAHealthyOne) {
  RunView run = harm_inference({kReferenceLane, kFp16Lane, kBf16Lane});
  run.add_deviation(1, result_off(0.001));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::healthy);
  EXPECT_THAT(report.verdict.headline, StartsWith("fp16 is healthy"));
  EXPECT_THAT(report.verdict.more, HasSubstr("bf16: This run did not compare"));
}

TEST(HarmVerdict, ALaneInFp32BesideItsReferenceIsJudgedToo) {
  const HarmLane other{.name = "cuda:float32"};
  EXPECT_EQ(make_report(trained_beside_float32(other, 1.0)).verdict.state, State::healthy);
  RunView run = trained_beside_float32(other, 1.0);
  run.add_deviation(1, loss_off(0.5));
  EXPECT_EQ(make_report(run).verdict.state, State::broken);
}

TEST(HarmVerdict, AReferenceThatDivergesIsNoMatterOfPrecision) {
  const LossCurve rising = [](int64_t step) { return 2.3 + 0.1 * static_cast<double>(step); };
  const Report report =
      make_report(harm_training({{kReferenceLane, rising}, {kFp16Lane, falling_loss}}));
  EXPECT_EQ(report.verdict.state, State::broken);
  EXPECT_THAT(report.verdict.headline, StartsWith("Not a precision problem: float32 itself fails"));
}

TEST(HarmVerdict, SaysWhatIsWrongAndThatTheCauseIsNotKnown) {
  RunView run = trained_beside_float32(kFp16Lane);
  run.add_deviation(1, loss_off(0.5));
  run.add_error(1, {.step = 0,
                    .site = 1,
                    .other_lane = 0,
                    .other_site = 1,
                    .n = 4,
                    .differing = 4,
                    .total = 0.4,
                    .local_fp64 = 0.001});
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, StartsWith("fp16 fails: its loss on the same batch"));
  EXPECT_THAT(report.verdict.more,
              AllOf(StartsWith("The recording alone does not show the cause. "),
                    HasSubstr("b.activation")));
  EXPECT_THAT(report.verdict.headline, Not(HasSubstr("because")));
  EXPECT_EQ(report.verdict.text, report.verdict.headline + " " + report.verdict.more);
}

TEST(HarmVerdict, SaysThatTheReferenceItselfDidNotLearn) {
  const auto text = [](const LossCurve& curve) {
    RunView run = harm_training({{kReferenceLane, curve}, {kFp16Lane, curve}});
    run.add_deviation(1, loss_off(0.5));
    const Report report = make_report(run);
    EXPECT_THAT(report.verdict.headline, StartsWith("fp16 "));
    return report.verdict.more;
  };
  EXPECT_THAT(text([](int64_t) { return 2.3; }),
              StartsWith("float32 itself did not learn: its loss went from 2.3 to 2.3."));
  EXPECT_THAT(text(falling_loss), Not(HasSubstr("did not learn")));
}

// The last batch of ten samples in batches of four is not full, and has no statistics.
TEST(HarmVerdict, SaysThatTheBatchThatFailsWasNotRecorded) {
  const auto verdict = [](int64_t recorded) {
    RunView run = harm_inference({kReferenceLane, kFp16Lane});
    for (int lane = 0; lane < 2; ++lane) {
      for (int64_t step = 0; step < recorded; ++step) {
        for (int site = 0; site < 2; ++site) {
          run.add_window(lane, site, {.step = step, .stats = {.n = 4, .zero = 4}});
        }
      }
    }
    run.add_deviation(1,
                      {.step = 3, .of = Deviation::Of::output, .name = "y", .n = 10, .broken = 2});
    return make_report(run).verdict.text;
  };
  EXPECT_THAT(verdict(2), HasSubstr("The tensors of batch 2 were not recorded, because it is "
                                    "smaller than the others."));
  EXPECT_THAT(verdict(3), Not(HasSubstr("were not recorded")));
}

TEST(HarmVerdict, NamesTheCauseThatARuleFound) {
  RunView run = make_run(hot_spec());
  run.add_deviation(1, loss_off(0.5));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::broken);
  EXPECT_THAT(report.verdict.headline, StartsWith("mixed_float16 fails because conv2 "));
  EXPECT_THAT(report.verdict.more, StartsWith("Its loss on the same batch"));
  EXPECT_THAT(report.verdict.more, Not(HasSubstr("The recording alone does not show the cause")));
}

/// bf16 is not wider than fp16 nor the other way round: neither fixes the other.
TEST(HarmVerdict, SaysThatTheOtherLanesAreHealthy) {
  RunView run = harm_training({{kReferenceLane, falling_loss},
                               {kFp16Lane, falling_times(1.001)},
                               {kBf16Lane, falling_times(1.001)}});
  run.add_deviation(1, loss_off(0.5));
  run.add_deviation(2, loss_off(0.001));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::broken);
  EXPECT_FALSE(report.cure);
  EXPECT_THAT(report.verdict.headline, StartsWith("fp16 fails"));
  EXPECT_THAT(report.verdict.more, HasSubstr("bf16 matches float32"));
  EXPECT_STREQ(lane_verdict(report.lanes[1]), "broken");
  EXPECT_STREQ(lane_verdict(report.lanes[2]), "healthy");
}

TEST(HarmVerdict, ASevereLaneComesBeforeOneThatNeedsAttention) {
  RunView run = harm_training({{kReferenceLane, falling_loss},
                               {kFp16Lane, falling_times(1.001)},
                               {kBf16Lane, falling_times(1.001)}});
  run.add_deviation(1, loss_off(0.05));
  run.add_deviation(2, loss_off(0.5));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::broken);
  EXPECT_THAT(report.verdict.headline, StartsWith("bf16 fails"));
  EXPECT_THAT(report.verdict.more, HasSubstr("fp16 loses precision"));
}

TEST(HarmVerdict, AHealthyLaneWithWiderFormatsIsTheCure) {
  const HarmLane wider{.name = "fp16+fp32", .read_b = kFp16, .write_b = kFp16, .planned = kFp16};
  RunView run = harm_training({{kReferenceLane, falling_loss},
                               {kFp16Lane, falling_times(1.001)},
                               {wider, falling_times(1.001)}});
  run.add_deviation(1, loss_off(0.5));
  run.add_deviation(2, loss_off(0.001));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::cured);
  EXPECT_EQ(report.cure, 2);
  EXPECT_EQ(report.verdict.headline, "Keeping a in fp32 fixes fp16.");
  EXPECT_EQ(report.lanes[1].state, State::broken);
}

// The layers of two lanes differ, and so does where their weights are stored.
TEST(HarmVerdict, LayersAreNoCureIfMoreDiffers) {
  const HarmLane wider{.name = "mixed", .read_b = kFp16, .write_b = kFp16, .planned = kFp16};
  RunInfo info = harm_training({{kReferenceLane, falling_loss},
                                {kFp16Lane, falling_times(1.001)},
                                {wider, falling_times(1.001)}})
                     .info();
  info.lanes[1].plan_json = R"({"name": "fp16", "variables": {"storage": "fp16"}})";
  info.lanes[2].plan_json = R"({"name": "mixed", "variables": {"storage": "fp32"}})";
  RunView run(std::move(info), RunStatus::complete);
  for (int64_t step = 0; step < 100; ++step) {
    for (const int lane : {0, 1, 2}) run.add_step(lane, {.step = step, .loss = falling_loss(step)});
  }
  run.add_deviation(1, loss_off(0.5));
  run.add_deviation(2, loss_off(0.001));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::cured);
  EXPECT_EQ(report.verdict.headline, "mixed works where fp16 fails.");
}

// A lane about which nothing is known does not count as a fix.
TEST(HarmVerdict, AnInconclusiveLaneIsNoCure) {
  const HarmLane wider{.name = "fp16+fp32", .read_b = kFp16, .write_b = kFp16, .planned = kFp16};
  RunView run = harm_inference({kReferenceLane, kFp16Lane, wider});
  run.add_deviation(1, result_off(0.5));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::broken);
  EXPECT_FALSE(report.cure);
  EXPECT_THAT(report.verdict.more, HasSubstr("fp16+fp32: This run did not compare"));
}

TEST(HarmVerdict, OfSeveralHealthyLanesIsOneSentence) {
  RunView run = harm_inference({kReferenceLane, kFp16Lane, kBf16Lane});
  run.add_deviation(1, result_off(0.001));
  run.add_deviation(2, result_off(0.001));
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, State::healthy);
  EXPECT_THAT(report.verdict.headline, HasSubstr("both lanes"));
}

// A difference of 5% without twins: neither harmed nor proved to be right.
TEST(HarmVerdict, SaysWhatOnlyFurtherTrainingsWouldShow) {
  const LossCurve settled = [](int64_t step) { return step < 20 ? 2.0 : 1.0; };
  const LossCurve own = [](int64_t step) { return step < 20 ? 2.0 : 1.05; };
  const Report report = make_report(harm_training({{kReferenceLane, settled}, {kFp16Lane, own}}));
  EXPECT_EQ(report.verdict.state, State::healthy);
  ASSERT_EQ(report.lanes[1].harm.unchecked.size(), 1u);
  EXPECT_THAT(report.verdict.more, HasSubstr(report.lanes[1].harm.unchecked[0]));
}

TEST(HarmVerdict, HasAWordForEveryState) {
  EXPECT_STREQ(verdict_name(State::inconclusive), "inconclusive");
  EXPECT_STREQ(verdict_name(State::cured), "cured");
}

}  // namespace
}  // namespace halfscope::test
