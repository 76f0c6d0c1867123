// SPDX-License-Identifier: MIT
// Mistakes of training scripts, in made-up captures: what recorders say about a script, weights
// that never change, loss functions without gradients, and casts that flush them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"
#include "tests/report/capture.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RunSpec long_spec() {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  spec.layers.pop_back();  // the loss is no module
  return spec;
}

/// Returns a run whose recorder saw a fact.
RunView with_fact(const RunView& run, const char* fact, const char* optimizer = "") {
  return described(run, [&](RunInfo& info) {
    info.observed = {observed::kLoss, fact};
    if (*optimizer != '\0') info.optimizer = optimizer;
  });
}

TEST(ScriptRules, StepsWithScaledGradientsAreNamed) {
  const RunView run = captured(long_spec());
  for (const auto& [optimizer, state] :
       {std::pair{"sgd:lr=0.1", Verdict::State::broken}, {"adam", Verdict::State::attention}}) {
    const Report report = make_report(with_fact(run, observed::kScaledStep, optimizer));
    EXPECT_EQ(report.verdict.state, state) << optimizer;
    EXPECT_THAT(report.verdict.headline, HasSubstr("the gradients are not unscaled"));
    ASSERT_FALSE(report.actions.empty());
    EXPECT_THAT(report.actions[0].text, HasSubstr("scaler.step(optimizer)"));
  }
  EXPECT_EQ(make_report(with_fact(run, "a fact of a later version")).verdict.state,
            Verdict::State::inconclusive);
}

TEST(ScriptRules, AutocastThatIsNotLeftIsNamed) {
  const Report report = make_report(with_fact(captured(long_spec()), observed::kAutocastKept));
  EXPECT_EQ(report.verdict.state, Verdict::State::broken);
  EXPECT_THAT(report.verdict.headline, HasSubstr("it computes with old weights"));
}

TEST(ScriptRules, NanInEveryStepIsALossIfTheRecorderSawOne) {
  RunSpec spec = long_spec();
  spec.lanes[1].dynamic = false;
  const RunView run = changed(captured(spec), keep_stats, [](StepRow& row) { row.loss = kNan; });
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::inconclusive);
  const Report report = make_report(with_fact(run, observed::kLoss));
  EXPECT_EQ(report.verdict.state, Verdict::State::broken);
  EXPECT_THAT(report.verdict.headline,
              HasSubstr("the loss function gives NaN at step 0, although all outputs of the model "
                        "are finite"));
}

TEST(ScriptRules, WeightsThatNeverChangeAreNamed) {
  const RunView healthy = captured(long_spec());
  std::map<int, TensorStats> first;
  const auto freeze = [&](const SiteInfo& site, TensorStats& stats) {
    if (site.role == Role::weight) stats = first.try_emplace(site.order, stats).first->second;
    if (site.role == Role::update) stats = TensorStats{};  // it has other tensors
  };
  const RunView run = changed(healthy, freeze, keep_row);
  EXPECT_THAT(make_report(run).verdict.headline, HasSubstr("no weight of the model changes"));
  // A rate of 0 changes none either, nor do steps that are skipped.
  const auto finds = [](const RunView& view) {
    const std::vector<Finding> all = run_rules(view);
    return std::any_of(all.begin(), all.end(),
                       [](const Finding& each) { return each.rule == "unchanged_weights"; });
  };
  EXPECT_TRUE(finds(run));
  EXPECT_FALSE(finds(changed(run, keep_stats, [](StepRow& row) { row.learning_rate = 0.0; })));
  EXPECT_FALSE(finds(changed(run, keep_stats, [](StepRow& row) { row.skipped = row.step < 50; })));
  EXPECT_FALSE(finds(healthy));
  // The optimizer has them, but its updates are too small, in fp32 as well.
  const RunView tiny = changed(
      run,
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.role == Role::update) stats.n = stats.lost = 512;
      },
      keep_row);
  const Report report = make_report(tiny);
  EXPECT_EQ(report.verdict.state, Verdict::State::attention);
  EXPECT_THAT(report.verdict.headline, HasSubstr("all updates are too small to change a weight"));
}

TEST(ScriptRules, ALossWithoutAnyGradientIsNamed) {
  const auto zero = [](const SiteInfo& site, TensorStats& stats) {
    if (site.phase == Phase::backward) fill(stats, 0.0);
  };
  const RunView small = changed(captured(long_spec()), zero, keep_row);
  EXPECT_EQ(make_report(small).verdict.state, Verdict::State::inconclusive)
      << "no sum of its outputs overflows";
  const auto large = [](const SiteInfo& site, TensorStats& stats) {
    if (site.name() == "fc2.activation") stats.sum_sq = 1e6;
  };
  const RunView run = changed(small, large, keep_row);
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.state, Verdict::State::broken);
  EXPECT_THAT(report.verdict.headline,
              HasSubstr("the loss function gives gradients that are exactly 0"));
  // Samples that a margin leaves out have a loss of 0.
  const RunView satisfied = changed(run, keep_stats, [](StepRow& row) {
    if (row.step == 30) row.loss = 0.0;
  });
  EXPECT_NE(make_report(satisfied).verdict.state, Verdict::State::broken);
}

/// conv1 and relu1 are in `format`, everything else in fp32, and no gradient comes through relu1.
Report cast_report(const FloatFormat& format) {
  RunSpec spec = long_spec();
  spec.lanes[1].format = format;
  for (LayerSpec& layer : spec.layers) layer.fp32 = layer.path != "conv1" && layer.path != "relu1";
  return make_report(changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        const bool before = site.path == "conv1" || site.path == "relu1";
        if (before && site.phase == Phase::backward) fill(stats, 0.0);
      },
      keep_row));
}

TEST(ScriptRules, GradientsThatACastToEightBitsFlushesAreNamed) {
  const Report report = cast_report(kE4m3fn);
  EXPECT_EQ(report.verdict.state, Verdict::State::broken);
  EXPECT_THAT(report.verdict.headline,
              HasSubstr("the gradient of relu1 underflows e4m3fn, so conv1 learns nothing"));
  EXPECT_NE(cast_report(kFp16).verdict.state, Verdict::State::broken);
}

// A bias in front of a normalization has a gradient of 0, apart from rounding, and cannot lose
// more.
TEST(ScriptRules, UpdatesMadeOfRoundingErrorsAreNotLost) {
  RunSpec spec = long_spec();
  spec.lanes[1].storage = kFp16;
  const auto judge = [&](double gradient) {
    return run_rules(changed(
        captured(spec),
        [&](const SiteInfo& site, TensorStats& stats) {
          if (site.path != "fc1") return;
          if (site.role == Role::weight_grad) {
            stats.sum_sq = static_cast<double>(stats.n) * gradient * gradient;
          }
          if (site.role == Role::update) stats.lost = stats.n;
        },
        keep_row));
  };
  const auto lost = [](const std::vector<Finding>& findings) {
    return std::count_if(findings.begin(), findings.end(), [](const Finding& each) {
      return each.rule == "lost_updates" && each.layer == "fc1";
    });
  };
  EXPECT_EQ(lost(judge(1.0)), 1);
  EXPECT_EQ(lost(judge(1e-8)), 0);
}

// The first steps of a gradient penalty: it divides scaled gradients by the loss scale.
TEST(ScriptRules, ALossOfScaledGradientsMayFailUntilTheScaleFits) {
  const RunView healthy = captured(long_spec());
  const auto judge = [&](int64_t fails, int64_t again) {
    const auto skips = [&](int64_t step) { return step < fails || step == again; };
    const RunView run = changed_steps(
        healthy,
        [&](const SiteInfo& site, int64_t step, TensorStats& stats) {
          const bool bad = site.phase == Phase::backward && skips(step);
          if (bad) fill(stats, std::numeric_limits<double>::infinity());
        },
        [&](StepRow& row) {
          row.skipped = skips(row.step);
          row.loss_scale = std::ldexp(65536.0, -static_cast<int>(std::min(row.step, fails)));
          if (row.skipped) row.loss = kNan;
        });
    return make_report(with_fact(run, observed::kLoss)).verdict.state;
  };
  EXPECT_EQ(judge(4, -1), Verdict::State::inconclusive);
  EXPECT_EQ(judge(4, 40), Verdict::State::attention) << "it happens again";
  EXPECT_NE(judge(56, -1), Verdict::State::inconclusive) << "nothing shows that it is over";
}

TEST(ScriptRules, OneUpdateMayBeWhereATrainingDiverges) {
  RunSpec spec = hot_spec();
  spec.steps = 60;
  const RunView hot = captured(spec);
  EXPECT_THAT(make_report(hot).verdict.headline, Not(HasSubstr("had grown")));
  const RunView run = changed_steps(
      hot,
      [](const SiteInfo& site, int64_t step, TensorStats& stats) {
        if (step > 0 || site.phase == Phase::update) return;
        if (stats.non_finite() > 0) fill(stats, 0.0);
        if (site.role == Role::weight) stats.sum_sq *= 1e-6;
      },
      [](StepRow& row) {
        if (row.step > 0) return;
        row.loss = 1.0;
        row.skipped = false;
      });
  const Report report = make_report(run);
  EXPECT_THAT(report.verdict.headline, HasSubstr("after the norm of the weights had grown from"));
  ASSERT_FALSE(report.actions.empty());
  EXPECT_THAT(report.actions[0].text, HasSubstr("Lower the learning rate first"));
}

}  // namespace
}  // namespace halfscope::test
