// SPDX-License-Identifier: MIT
// Causes of failing runs: steps with equal weights alone show what rounding does, values that are
// lost come first, and the lines below a verdict do not repeat it. Runs are written by hand, so
// what is wrong with them is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/causes/evidence.h"
#include "analysis/diagnosis/chain.h"
#include "analysis/diagnosis/diagnosis.h"
#include "analysis/report/further_causes.h"
#include "tests/report/harm_run.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Trains fp32 and fp16; a tenth of b's outputs is 0 in fp16 from step `zeros` on, and a's error
/// is 0.0002 in step 0 and 0.06 later.
RunView drifting(int64_t zeros, bool skips) {
  RunView run = harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, falling_loss}}, 0);
  for (const int lane : {0, 1}) {
    for (int64_t step = 0; step < 4; ++step) {
      run.add_step(lane, {.step = step, .loss = 1.0, .skipped = skips && lane == 1});
      TensorStats stats{.n = 1000, .max_abs = 1.0f, .sum_sq = 1000.0};
      run.add_window(lane, 0, {.step = step, .stats = stats});
      if (lane == 1 && step >= zeros) stats.zero = 100;
      run.add_window(lane, 1, {.step = step, .stats = stats});
    }
  }
  for (int64_t step = 0; step < 4; ++step) {
    run.add_error(1, {.step = step,
                      .site = 0,
                      .other_lane = 0,
                      .other_site = 0,
                      .n = 1000,
                      .total = step == 0 ? 2e-4 : 0.06});
  }
  return run;
}

// A lane that skips its updates falls behind fp32, which goes on training.
TEST(EqualWeights, EndWithTheFirstUpdateOfEitherLane) {
  for (const bool skips : {false, true}) {
    const RunView run = drifting(0, skips);
    const LaneFacts lane(run, 1);
    EXPECT_TRUE(lane.has_equal_weights(0));
    EXPECT_FALSE(lane.has_equal_weights(1));
  }
  const RunView batches = harm_inference({kReferenceLane, kFp16Lane});
  EXPECT_TRUE(LaneFacts(batches, 1).has_equal_weights(2));
}

TEST(EqualWeights, ShowWhetherAnEarlierRoundingMadeZeros) {
  for (const bool skips : {false, true}) {
    const RunView from_start = drifting(0, skips), later = drifting(1, skips);
    EXPECT_EQ(cancelled_site(LaneFacts(from_start, 1), 0), 1);
    EXPECT_EQ(cancelled_site(LaneFacts(later, 1), 0), -1);
  }
}

// A ReLU whose operand changes its sign makes single zeros.
TEST(EqualWeights, FewZerosAreNoCancellation) {
  RunView run = harm_training({{kReferenceLane, falling_loss}, {kFp16Lane, falling_loss}}, 0);
  for (const int lane : {0, 1}) {
    run.add_step(lane, {.step = 0, .loss = 1.0});
    TensorStats stats{.n = 1000, .max_abs = 1.0f, .sum_sq = 1000.0};
    run.add_window(lane, 0, {.step = 0, .stats = stats});
    if (lane == 1) stats.zero = 99;
    run.add_window(lane, 1, {.step = 0, .stats = stats});
  }
  EXPECT_EQ(cancelled_site(LaneFacts(run, 1), 0), -1);
}

TEST(EqualWeights, GiveTheErrorsOfAChain) {
  const RunView run = drifting(0, true);
  const LaneFacts lane(run, 1);
  const std::vector<Hop> chain = chain_from(lane, 0);
  ASSERT_FALSE(chain.empty());
  ASSERT_TRUE(chain[0].error);
  EXPECT_EQ(*chain[0].error, 2e-4);
}

TEST(Diagnosis, ValuesThatAreLostComeBeforeRoundings) {
  const RunView run = drifting(0, true);
  Proof proof;
  proof.holds = true;
  proof.edit = PlanEdit::in_fp32({"a", "b"});
  proof.causes = {{.layer = "a",
                   .mechanism = Mechanism::early_rounding,
                   .weight = 0.8,
                   .text = "a rounds its output to fp16, so b becomes 0 where fp32's is not 0"},
                  {.layer = "b",
                   .site = "b.activation",
                   .mechanism = Mechanism::forward_overflow,
                   .weight = 1.0,
                   .text = "b overflows fp16: 22% of its outputs are larger than 65504"}};
  const std::vector<Finding> findings{
      {.rule = "forward_overflow", .lane = 1, .severity = Severity::error}};
  const Diagnosis found = diagnose(run, findings, 1, {}, proof);
  EXPECT_EQ(found.mechanism, Mechanism::forward_overflow);
  EXPECT_THAT(found.cause, StartsWith("b overflows fp16: "));
  ASSERT_EQ(found.root.size(), 2u);
  EXPECT_EQ(found.root[0].layer, "b");
}

// The fix keeps a in fp32, and b follows it: b overflows, and the proof saw only a's rounding.
TEST(Diagnosis, AnOverflowExplainsALossThatIsNotFinite) {
  const auto diagnosed = [](double loss, Mechanism seen, double weight) {
    RunView run = harm_training(
        {{kReferenceLane, falling_loss}, {kFp16Lane, [loss](int64_t) { return loss; }}});
    run.add_window(1, 1, {.step = 0, .stats = {.n = 10, .overflow = 1, .max_abs = 9e4f}});
    Proof proof;
    proof.holds = true;
    proof.edit = PlanEdit::in_fp32({"a"});
    proof.causes = {{.layer = "a", .mechanism = seen, .weight = weight, .text = "a rounds"}};
    const std::vector<Finding> findings{{.rule = "forward_overflow",
                                         .lane = 1,
                                         .severity = Severity::error,
                                         .site = "b.activation",
                                         .layer = "b",
                                         .mechanism = "b overflows fp16"}};
    return diagnose(run, findings, 1, {}, proof).cause;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(diagnosed(nan, Mechanism::early_rounding, 0.8), "b overflows fp16.");
  EXPECT_EQ(diagnosed(nan, Mechanism::gradient_overflow, 1.0), "b overflows fp16.");
  EXPECT_EQ(diagnosed(nan, Mechanism::constant, 1.0), "a rounds.");
  EXPECT_EQ(diagnosed(9.0, Mechanism::early_rounding, 0.8), "a rounds.") << "the loss is finite";
}

// The first step of a loss scale that starts too high.
TEST(BackwardSuspects, AnOverflowThatTheScaleSkipsIsNone) {
  const auto overflows = [](int64_t step) {
    RunView run = make_run(healthy_spec());
    const int site = run.find_site(1, "fc1.activation_grad").value();
    RunView with(run.info(), RunStatus::complete);
    for (const int lane : {0, 1}) {
      for (StepRow row : run.steps(lane)) {
        row.skipped = lane == 1 && row.step == 0;
        row.loss_scale = row.step == 0 ? 65536.0 : 32768.0;
        with.add_step(lane, row);
      }
    }
    for (const int64_t each : {int64_t{0}, int64_t{1}}) {
      TensorStats stats{.n = 512, .max_abs = 1.0f};
      stats.overflow = each == step ? 5 : 0;
      with.add_window(1, site, {.step = each, .stats = stats});
    }
    const std::vector<Suspect> suspects = backward_suspects(LaneFacts(with, 1));
    return std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& each) {
      return each.site == site && each.mechanism == Mechanism::gradient_overflow;
    });
  };
  EXPECT_FALSE(overflows(0));
  EXPECT_TRUE(overflows(1));
}

// Gradients that become 0 differ from their exact values by 100%.
TEST(BackwardSuspects, ThatBecomeZeroUnderflow) {
  RunSpec spec = healthy_spec();
  layer_of(spec, "fc1").gradient = -44.0;
  RunView run = make_run(spec);
  const int site = run.find_site(1, "fc1.activation_grad").value();
  run.add_error(1, {.site = site, .other_lane = 0, .n = 512, .local_fp64 = 1.0});
  const std::vector<Suspect> suspects = backward_suspects(LaneFacts(run, 1));
  const auto found = std::find_if(suspects.begin(), suspects.end(),
                                  [&](const Suspect& each) { return each.site == site; });
  ASSERT_NE(found, suspects.end());
  EXPECT_EQ(found->mechanism, Mechanism::gradient_flush);
  EXPECT_THAT(found->text, StartsWith("fc1 underflows fp16: "));
  EXPECT_THAT(found->text, HasSubstr(" of the non-zero values of fc1.activation_grad become 0"));
}

TEST(FurtherCauses, RepeatNoClaimOfTheVerdict) {
  const std::string verdict =
      "fp16 fails because mul overflows fp16: 7.54% of its outputs are "
      "larger than 65504 (the largest is 135000).";
  EXPECT_TRUE(says(verdict, "mul overflows fp16: 2.93% of its outputs are larger than 65504"));
  EXPECT_TRUE(says(verdict, "mul overflows fp16."));
  EXPECT_FALSE(says(verdict, "add overflows fp16: 2.93% of its outputs are larger than 65504"));
  EXPECT_FALSE(says("n.1 overflows fp16: 1%", "n.2 becomes NaN in 3.5% of its outputs"));

  Report report;
  report.sick = 0;
  report.verdict.state = Verdict::State::broken;
  report.verdict.text = verdict;
  const auto add = [&](const std::string& rule, const std::string& layer,
                       const std::string& mechanism) {
    report.findings.push_back(
        {.rule = rule, .severity = Severity::error, .layer = layer, .mechanism = mechanism});
  };
  add("forward_overflow", "mul", "mul overflows fp16: 2.93% of its outputs are larger than 65504");
  EXPECT_THAT(further_causes(report), IsEmpty());
  add("gradient_underflow", "mul", "mul underflows fp16: 3% become 0");
  add("lost_updates", "fc", "fc loses updates");
  EXPECT_THAT(further_causes(report), ElementsAre(&report.findings.back()));
}

}  // namespace
}  // namespace halfscope::test
