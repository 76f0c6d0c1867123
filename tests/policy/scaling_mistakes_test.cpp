// SPDX-License-Identifier: MIT
// Mistakes in the order of scaling, unscaling and clipping: their arithmetic, and that the rules
// find them in recorded numbers, and only them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/memory_sink.h"
#include "analysis/plans/lint.h"
#include "analysis/rules/rules.h"
#include "core/models/models.h"
#include "core/numeric/statistics/ulp.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;

RunView record(const TrainConfig& config) {
  Trainer trainer(config, data());
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> never{false};
  trainer.run(&sink, {}, never);
  return sink.view();
}

TrainConfig training(const std::string& plan, const std::string& scale,
                     const std::string& optimizer = "sgd") {
  TrainConfig result = config(kMlp, "float32", "none");
  result.lanes.push_back(lane(preset_plan(plan).value(), scale));
  result.optimizer = parse_optimizer(optimizer);
  result.steps = 8;
  return result;
}

bool finds(const RunView& run, const std::string& rule, int lane) {
  const std::vector<Finding> findings = run_rules(run);
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.rule == rule && finding.lane == lane && finding.severity == Severity::error;
  });
}

TEST(ScalingMistakes, ClippingBeforeUnscalingDividesTheNormByTheScale) {
  TrainConfig wrong = training("mixed_float16", "static:1024");
  wrong.clip_norm = 1.0;
  wrong.clip_before_unscale = true;
  // The same arithmetic in other words: 1 / 1024 of the norm, after unscaling.
  TrainConfig same = training("mixed_float16", "static:1024");
  same.clip_norm = 1.0 / 1024.0;
  const RunView a = record(wrong), b = record(same);
  for (size_t i = 0; i < a.steps(1).size(); ++i)
    EXPECT_NEAR(a.steps(1)[i].loss, b.steps(1)[i].loss, 2e-3 * b.steps(1)[i].loss) << i;
  // Without a scale there is nothing to confuse.
  TrainConfig plain = training("mixed_float16", "none");
  plain.clip_norm = 1.0;
  const RunView right = record(plain);
  plain.clip_before_unscale = true;
  const RunView unscaled = record(plain);
  for (size_t i = 0; i < right.steps(1).size(); ++i)
    EXPECT_EQ(right.steps(1)[i].loss, unscaled.steps(1)[i].loss);
}

TEST(ScalingMistakes, ClippingBeforeUnscalingIsSeenInTheUpdates) {
  for (const char* optimizer :
       {"sgd", "sgd:momentum=0.9", "sgd:momentum=0.9,nesterov=true,weight_decay=0.01"}) {
    TrainConfig setup = training("mixed_float16", "dynamic:65536", optimizer);
    setup.clip_norm = 1.0;
    EXPECT_FALSE(finds(record(setup), "clip_before_unscale", 1)) << optimizer;
    setup.clip_before_unscale = true;
    const RunView run = record(setup);
    EXPECT_TRUE(finds(run, "clip_before_unscale", 1)) << optimizer;
    EXPECT_FALSE(finds(run, "clip_before_unscale", 0)) << optimizer;
    EXPECT_FALSE(finds(run, "unscale_without_scale", 1)) << optimizer;
  }
}

/// Returns lane 1 as PyTorch's recorder shows it, whose updates are differences of rounded weights:
/// their largest values are up to half an ulp of the largest weight too large or too small.
RunView with_rounded_updates(const RunView& run) {
  RunInfo info = run.info();
  info.lanes = {run.lane(1)};
  info.lanes[0].backend = "pytorch";
  RunView copy(std::move(info), RunStatus::complete);
  for (const StepRow& row : run.steps(1)) copy.add_step(0, row);
  double sign = 1.0;
  for (const SiteInfo& site : run.lane(1).sites) {
    sign = -sign;
    for (StatsWindow window : run.windows(1, site.order)) {
      if (site.role == Role::update) {
        const std::string name = site.name().substr(0, site.name().rfind("_update"));
        const double weight = run.total(1, run.find_site(1, name).value()).max_abs;
        window.stats.max_abs += static_cast<float>(sign * 0.5 * ulp_size(weight, kFp32));
      }
      copy.add_window(0, site.order, window);
    }
  }
  return copy;
}

TEST(ScalingMistakes, ASmallLimitInTheRightOrderIsNoMistake) {
  for (const char* optimizer : {"sgd", "adam"}) {
    TrainConfig setup = training("mixed_float16", "static:65536", optimizer);
    setup.clip_norm = 1e-3;
    const std::vector<Finding> findings = run_rules(record(setup));
    for (const Finding& finding : findings) EXPECT_NE(finding.rule, "clip_before_unscale");
  }
}

TEST(ScalingMistakes, ClippingBeforeUnscalingIsSeenInUpdatesOfAFewUlps) {
  TrainConfig setup = training("mixed_float16", "static:1024", "sgd:lr=0.002,momentum=0.9");
  setup.clip_norm = 1.0;
  EXPECT_FALSE(finds(with_rounded_updates(record(setup)), "clip_before_unscale", 0));
  setup.clip_before_unscale = true;
  EXPECT_TRUE(finds(with_rounded_updates(record(setup)), "clip_before_unscale", 0));
}

/// Returns the run as if single values had been clipped: the largest update of each variable is the
/// rate times the largest gradient, at most `most`. Both are as scaled before they are unscaled.
RunView with_values_clipped(const RunView& run, double most) {
  RunView copy(run.info(), RunStatus::complete);
  for (const StepRow& row : run.steps(1)) copy.add_step(1, row);
  for (const SiteInfo& site : run.lane(1).sites) {
    for (StatsWindow window : run.windows(1, site.order)) {
      const StepRow& row = run.steps(1)[static_cast<size_t>(window.step)];
      if (site.role == Role::update) {
        const std::string name = site.name().substr(0, site.name().rfind("_update"));
        const int gradient = run.find_site(1, name + "_grad").value();
        const double largest = run.windows(1, gradient).find(window.step)->stats().max_abs;
        window.stats.max_abs = static_cast<float>(row.learning_rate * std::min(largest, most) /
                                                  static_cast<double>(row.loss_scale));
      }
      copy.add_window(1, site.order, window);
    }
  }
  return copy;
}

TEST(ScalingMistakes, ClippingValuesBeforeUnscalingIsSeenInTheUpdates) {
  const RunView run = record(training("mixed_float16", "static:1024"));
  EXPECT_TRUE(finds(with_values_clipped(run, 0.5), "clip_before_unscale", 1));
  const double scale = 1024.0;
  EXPECT_FALSE(finds(with_values_clipped(run, 0.01 * scale), "clip_before_unscale", 1))
      << "clipped after unscaling";
  EXPECT_FALSE(finds(with_values_clipped(run, 1e30), "clip_before_unscale", 1));
}

TEST(ScalingMistakes, ClippingValuesBeforeUnscalingIsSeenInUpdatesOfAFewUlps) {
  const TrainConfig setup = training("mixed_float16", "static:1024", "sgd:lr=0.01");
  const RunView clipped = with_values_clipped(record(setup), 0.1);
  EXPECT_TRUE(finds(with_rounded_updates(clipped), "clip_before_unscale", 0));
}

// Adam's updates do not depend on the size of gradients. Its first moment does.
TEST(ScalingMistakes, ClippingBeforeUnscalingIsSeenInAdamsMoments) {
  const auto severity = [](const RunView& run) {
    for (const Finding& finding : run_rules(run)) {
      if (finding.rule == "clip_before_unscale") return finding.severity;
    }
    return Severity::info;
  };
  for (const char* optimizer : {"adam", "adamw:beta1=0.8"}) {
    TrainConfig setup = training("mixed_float16", "dynamic:65536", optimizer);
    setup.clip_norm = 1.0;
    EXPECT_EQ(severity(record(setup)), Severity::info) << optimizer;
    setup.clip_before_unscale = true;
    EXPECT_EQ(severity(record(setup)), Severity::warning) << optimizer;
  }
}

TEST(ScalingMistakes, UnscalingAloneMakesGradientsTooSmall) {
  TrainConfig setup = training("mixed_float16", "static:65536");
  const RunView right = record(setup);
  setup.unscale_only = true;
  const RunView wrong = record(setup);
  // 65536 times too small, but for what underflows because the loss is not scaled.
  EXPECT_NEAR(wrong.steps(1)[0].grad_norm * 65536.0, right.steps(1)[0].grad_norm,
              0.01 * right.steps(1)[0].grad_norm);
  EXPECT_EQ(wrong.steps(0)[0].grad_norm, right.steps(0)[0].grad_norm)
      << "the reference has no scale";
  EXPECT_FALSE(finds(right, "unscale_without_scale", 1));
  EXPECT_TRUE(finds(wrong, "unscale_without_scale", 1));
  EXPECT_FALSE(finds(wrong, "unscale_without_scale", 0));
  EXPECT_FALSE(finds(wrong, "clip_before_unscale", 1));
}

TEST(ScalingMistakes, MicroBatchesAndOtherOptimizersAreNoAlarm) {
  for (const char* optimizer : {"adam", "adamw", "rmsprop", "sgd:momentum=0.9,weight_decay=0.01"}) {
    for (const char* scale : {"dynamic:65536", "static:1024", "none"}) {
      TrainConfig setup = training("mixed_float16", scale, optimizer);
      setup.micro_batches = 2;
      setup.clip_norm = 0.5;
      const RunView run = record(setup);
      EXPECT_FALSE(finds(run, "clip_before_unscale", 1)) << optimizer << " " << scale;
      EXPECT_FALSE(finds(run, "unscale_without_scale", 1)) << optimizer << " " << scale;
    }
  }
}

TEST(ScalingMistakes, LintNamesThem) {
  const Model model = build_model(kMlp, 8, {1, 16, 16}, 10);
  LintedTraining set{.config = {}, .scaler = parse_loss_scale("dynamic")};
  set.config.clip_norm = 1.0;
  const Plan plan = preset_plan("mixed_float16").value();
  const auto errors = [&] {
    std::vector<std::string> names;
    for (const Finding& each : lint_plan(model, plan, set)) {
      if (each.severity == Severity::error) names.push_back(each.rule);
    }
    return names;
  };
  EXPECT_THAT(errors(), testing::IsEmpty());
  set.config.clip_before_unscale = true;
  EXPECT_THAT(errors(), testing::ElementsAre("clip_before_unscale"));
  set.config.unscale_only = true;
  EXPECT_THAT(errors(), testing::ElementsAre("unscale_without_scale", "clip_before_unscale"));
  set.scaler = {};
  EXPECT_THAT(errors(), testing::IsEmpty());
}

}  // namespace
}  // namespace halfscope::test
