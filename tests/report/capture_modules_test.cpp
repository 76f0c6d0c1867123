// SPDX-License-Identifier: MIT
// Modules of captured lanes: masks, code in modules that contain others, and gradients that no loss
// scale makes finite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"
#include "tests/report/capture.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// The small network, in which a softmax reads what code computes from relu2: conv2 -> relu2 ->
/// softmax/input -> softmax -> fc1. The model "Net" gives what fc2 gives. Its loss is no module.
RunSpec spec_with_softmax() {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  spec.layers.pop_back();
  layer_of(spec, "fc1").inputs = {"softmax"};
  const auto fc1 = std::find_if(spec.layers.begin(), spec.layers.end(),
                                [](const LayerSpec& layer) { return layer.path == "fc1"; });
  spec.layers.push_back({.path = "Net", .op = "Net", .inputs = {"fc2"}});
  spec.layers.insert(fc1, {{.path = "softmax/input", .op = "Function", .inputs = {"relu2"}},
                           {.path = "softmax", .op = "Softmax", .inputs = {"softmax/input"}}});
  return spec;
}

/// Makes a part of a tensor -infinity.
void mask(TensorStats& stats, int64_t count) { stats.neg_inf += count; }

TEST(CaptureModules, AMaskOfASoftmaxIsNoFault) {
  const RunView healthy = captured(spec_with_softmax());
  const RunView masked = changed(
      healthy,
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.name() == "softmax/input.activation") mask(stats, 100);
      },
      keep_row);
  for (const Finding& finding : run_rules(masked)) {
    EXPECT_EQ(finding.severity, Severity::info) << finding.text;
  }
  // An overflow has infinities of both signs, or large numbers beside them.
  for (const bool both_signs : {true, false}) {
    const RunView hot = changed(
        healthy,
        [&](const SiteInfo& site, TensorStats& stats) {
          if (site.name() != "softmax/input.activation") return;
          mask(stats, 100);
          if (both_signs) {
            ++stats.pos_inf;
          } else {
            stats.max_abs = 60000.0f;
          }
        },
        keep_row);
    EXPECT_THAT(make_report(hot).verdict.headline,
                HasSubstr("the code between relu2 and softmax gives infinity"));
  }
}

// A loss scale that starts too high overflows gradients. The mask has nothing to do with it.
TEST(CaptureModules, AMaskIsNoFaultWhereALossScaleComesDown) {
  const RunView healthy = captured(spec_with_softmax());
  const RunView run = changed_steps(
      healthy,
      [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
        const bool gradient = site.phase == Phase::backward;
        if (site.name() == "Net.activation") mask(stats, 100);
        if (gradient && step < 2) stats.pos_inf += 7;
      },
      [&](StepRow& row) { row.skipped = row.step < 2; });
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::inconclusive);
}

// A product has no mask: -infinity is an overflow, however small the other results are.
TEST(CaptureModules, NegativeOverflowOfAProductIsNoMask) {
  const RunView run = changed(
      captured(spec_with_softmax()),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.name() == "fc1.activation") mask(stats, 100);
      },
      keep_row);
  EXPECT_THAT(make_report(run).verdict.headline, HasSubstr("fc1 overflows fp16"));
}

// The scores of the second attention overflow; both have a mask. The training never works.
TEST(CaptureModules, AMaskDoesNotHideTheOverflowBehindIt) {
  RunSpec spec = spec_with_softmax();
  layer_of(spec, "fc1").activation = 17.0;
  const RunView run = changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.name() == "softmax/input.activation") mask(stats, 100);
        if (site.path == "fc2" || site.phase == Phase::backward) fill(stats, std::nan(""));
      },
      [](StepRow& row) {
        row.loss = std::nan("");
        row.skipped = true;
      });
  EXPECT_THAT(make_report(run).verdict.headline, HasSubstr("fc1 overflows fp16"));
  for (const Finding& finding : run_rules(run)) {
    EXPECT_NE(finding.layer, "softmax/input") << finding.text;
  }
}

// The network gives masked logits. From step 20 on the loss is NaN, because a row has no other
// logits left.
TEST(CaptureModules, AMaskOfTheLossIsNotWhyItFailsLater) {
  const RunView healthy = captured(spec_with_softmax());
  for (const int64_t fails_from : {20, 60}) {
    const RunView run = changed_steps(
        healthy,
        [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
          if (site.name() == "Net.activation") mask(stats, 100);
          if (step >= fails_from && site.phase == Phase::backward) fill(stats, std::nan(""));
        },
        [&](StepRow& row) {
          if (row.step >= fails_from) row.loss = std::nan("");
        });
    const Report report = make_report(run);
    if (fails_from == 60) {
      EXPECT_EQ(report.verdict.state, Verdict::State::inconclusive) << report.verdict.headline;
      continue;
    }
    EXPECT_THAT(report.verdict.headline,
                AllOf(HasSubstr("the loss function gives NaN at step 20"),
                      HasSubstr("finite or masked by -infinity"), Not(HasSubstr("overflows"))));
  }
}

// A root at 0 has no finite slope: no loss scale changes that.
TEST(CaptureModules, GradientsThatAreNanAtEveryScaleAreNotTheScalesFault) {
  RunSpec spec = spec_with_softmax();
  for (const FloatFormat& format : {kFp16, kFp32}) {
    spec.lanes[1].format = format;
    spec.lanes[1].dynamic = format == kFp16;
    if (format == kFp32) spec.lanes[1].loss_scale = 1.0;
    const RunView run = changed(
        captured(spec),
        [](const SiteInfo& site, TensorStats& stats) {
          if (site.phase == Phase::backward) fill(stats, std::nan(""));
        },
        [&](StepRow& row) {
          row.skipped = format == kFp16;
          if (format == kFp32 && row.step > 0) row.loss = std::nan("");
        });
    const Report report = make_report(run);
    EXPECT_THAT(report.verdict.headline,
                HasSubstr("the loss function gives Net a gradient that is NaN at step 0"));
    ASSERT_FALSE(report.actions.empty());
    EXPECT_THAT(report.actions[0].text,
                AllOf(HasSubstr("torch.sqrt(x + eps)"), Not(HasSubstr("learning rate"))));
    for (const Finding& finding : run_rules(run)) {
      EXPECT_THAT(finding.text, Not(HasSubstr("does not settle")));
    }
  }
}

/// A network whose fc1 is in a module "block" with code of the user, which gives the result.
RunSpec spec_with_block() {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  layer_of(spec, "fc1").path = "block.fc1";
  layer_of(spec, "relu3").inputs = {"block"};
  const auto relu = std::find_if(spec.layers.begin(), spec.layers.end(),
                                 [](const LayerSpec& layer) { return layer.path == "relu3"; });
  spec.layers.insert(relu, {.path = "block", .op = "Block", .inputs = {"relu2"}, .fp32 = true});
  return spec;
}

RunView with_nan(const RunSpec& spec, const std::vector<std::string>& paths) {
  return changed(
      captured(spec),
      [&](const SiteInfo& site, TensorStats& stats) {
        const bool named = std::find(paths.begin(), paths.end(), site.path) != paths.end();
        const bool later = site.path == "relu3" || site.path == "fc2" || site.path == "loss" ||
                           site.phase == Phase::backward;
        if (site.role != Role::weight && (named || later)) fill(stats, std::nan(""));
      },
      [](StepRow& row) {
        row.loss = std::nan("");
        row.skipped = true;
      });
}

TEST(CaptureModules, CodeOfAModuleThatGivesFp32MayHaveComputedInFewerBits) {
  const RunView own = with_nan(spec_with_block(), {"block"});
  const Report report = make_report(own);
  EXPECT_THAT(report.verdict.headline, HasSubstr("block gives NaN from finite numbers"));
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->mechanism, Mechanism::invalid_result);
  ASSERT_FALSE(report.actions.empty());
  EXPECT_THAT(report.actions[0].text, AllOf(HasSubstr("Run block in fp32 to see"),
                                            HasSubstr("logarithm of a negative number")));
}

TEST(CaptureModules, AModuleIsNotBlamedForTheOneInIt) {
  const RunView inner = with_nan(spec_with_block(), {"block.fc1", "block"});
  bool named = false;
  for (const Finding& finding : run_rules(inner)) {
    if (finding.rule != "forward_overflow") continue;
    EXPECT_EQ(finding.layer, "block.fc1") << finding.text;
    named = true;
  }
  EXPECT_TRUE(named);
}

TEST(CaptureModules, TheModelItselfIsItsCode) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  spec.layers.pop_back();
  spec.layers.push_back({.path = "Net", .op = "Net", .inputs = {"input"}, .activation = 17.0});
  const RunView run = changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.phase == Phase::backward) fill(stats, std::nan(""));
      },
      [](StepRow& row) {
        row.loss = std::nan("");
        row.skipped = true;
      });
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, HasSubstr("the code of Net.forward gives infinity"));
  EXPECT_FALSE(report.recommendation) << "a plan cannot keep the whole model in fp32 by its name";
  ASSERT_FALSE(report.actions.empty());
  EXPECT_THAT(report.actions[0].text, HasSubstr("Compute the code of Net.forward in fp32"));
}

// As of LoRA before its first update: 0 is the exact result of weights that are 0.
TEST(CaptureModules, WeightsThatAreZeroGiveZeros) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  const RunView healthy = captured(spec);
  for (const bool weights : {true, false}) {
    const RunView run = changed(
        healthy,
        [&](const SiteInfo& site, TensorStats& stats) {
          const bool own = site.path == "fc1" && (site.role == Role::activation ||
                                                  (weights && site.role == Role::weight));
          const bool before = site.path.starts_with("conv") && site.phase == Phase::backward;
          if (own || before) fill(stats, 0.0);
        },
        keep_row);
    EXPECT_EQ(make_report(run).verdict.state,
              weights ? Verdict::State::inconclusive : Verdict::State::attention);
  }
}

TEST(CaptureModules, GradientsThatAreAllZeroWithoutALossScaleHaveUnderflowed) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  spec.layers.pop_back();
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  const RunView run = changed(
      captured(spec),
      [&](const SiteInfo& site, TensorStats& stats) {
        if (site.phase == Phase::backward) fill(stats, 0.0);
      },
      keep_row);
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, HasSubstr("all their gradients underflow to 0"));
  ASSERT_FALSE(report.actions.empty());
  EXPECT_THAT(report.actions[0].text, HasSubstr("Use dynamic loss scaling"));
}

// Steps 20 and 30 contain a norm of 0; the loss scale had worked before.
TEST(CaptureModules, GradientsThatAreNanInSomeStepsAreNotTheScalesFault) {
  const RunView healthy = captured(spec_with_softmax());
  const auto fails = [](int64_t step) { return step == 20 || step == 30; };
  const RunView run = changed_steps(
      healthy,
      [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
        if (site.phase == Phase::backward && fails(step)) fill(stats, std::nan(""));
      },
      [&](StepRow& row) { row.skipped = fails(row.step); });
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, HasSubstr("a gradient that is NaN at step 20"));
  for (const Finding& finding : run_rules(run)) {
    EXPECT_THAT(finding.text, Not(HasSubstr("gradients are larger")));
  }
}

TEST(CaptureModules, ZerosCountWhileADynamicScaleComesDown) {
  const RunView healthy = captured(spec_with_softmax());
  const RunView run = changed_steps(
      healthy,
      [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
        const bool before = site.path == "conv1" || site.path == "conv2";
        const bool gradient = site.phase == Phase::backward;
        if (site.name() == "softmax.activation" || (before && gradient)) {
          fill(stats, 0.0);
        }
        if (gradient && step < 4) fill(stats, std::nan(""));
      },
      [&](StepRow& row) { row.skipped = row.step < 4; });
  EXPECT_THAT(make_report(run).verdict.headline,
              HasSubstr("softmax gives nothing but 0, so conv1 and conv2 learn nothing"));
}

}  // namespace
}  // namespace halfscope::test
