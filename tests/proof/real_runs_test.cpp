// SPDX-License-Identifier: MIT
// The rules about state and buffers on real trainings with and without the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/memory_sink.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;

RunView record(const TrainConfig& config, const Dataset& set = data()) {
  Trainer trainer(config, set);
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> never{false};
  trainer.run(&sink, {}, never);
  return sink.view();
}

TrainConfig training(const std::string& model, const Plan& plan, const std::string& scale,
                     const std::string& optimizer, int64_t steps) {
  TrainConfig result = config(model, "float32", "none");
  result.lanes.push_back(lane(plan, scale));
  result.optimizer = parse_optimizer(optimizer);
  result.steps = steps;
  return result;
}

std::vector<Finding> of_rule(const std::vector<Finding>& findings, const std::string& rule) {
  std::vector<Finding> found;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(found),
               [&](const Finding& finding) { return finding.rule == rule; });
  return found;
}

TEST(RealRuns, AdamInFloat16LosesItsSecondMoment) {
  const RunView run = record(training(kMlp, preset_plan("float16").value(), "dynamic", "adam", 40));
  const std::vector<Finding> findings = run_rules(run);
  const auto state = of_rule(findings, "optimizer_state");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].severity, Severity::error);
  EXPECT_THAT(state[0].site, testing::EndsWith("_adam_v"));
  EXPECT_GT(std::get<double>(state[0].evidence.at("judged_flushed_share")), 0.05);
  EXPECT_GT(std::get<double>(state[0].evidence.at("largest_update")),
            16.0 * std::get<double>(state[0].evidence.at("usual_update")));
  for (const Finding& finding : findings) {
    const bool named = finding.rule == "optimizer_state" || finding.rule == "lost_updates";
    const bool before = finding.step >= 0 && finding.step < state[0].step;
    EXPECT_TRUE(named || before || finding.severity == Severity::info) << finding.text;
  }
  const auto advice = recommend(run, findings, 1);
  ASSERT_TRUE(advice);
  EXPECT_TRUE(advice->edit.fp32_layers().empty()) << advice->text;
  EXPECT_FALSE(advice->edit.loss_scale()) << advice->text;
  EXPECT_EQ(plan_from_json(advice->plan_json).storage, kFp32);
}

TEST(RealRuns, StateThatFitsIsNoFinding) {
  Plan stored_wide = preset_plan("float16").value();
  stored_wide.storage = kFp32;
  EXPECT_TRUE(of_rule(run_rules(record(training(kMlp, stored_wide, "dynamic", "adam", 40))),
                      "optimizer_state")
                  .empty());
  // Momentum in fp16 loses its small values, but training still works.
  const RunView momentum = record(
      training(kMlp, preset_plan("float16").value(), "dynamic", "sgd:lr=0.05,momentum=0.9", 40));
  EXPECT_TRUE(of_rule(run_rules(momentum), "optimizer_state").empty());
  EXPECT_NEAR(momentum.steps(1).back().loss, momentum.steps(0).back().loss,
              0.1 * momentum.steps(0).front().loss);
}

TEST(RealRuns, BuffersThatMoveWithASkippedStepAreSpoiled) {
  Plan plan = preset_plan("mixed_float16").value();
  plan.buffers = BufferCommit::always;
  // The data overflow in the first convolution's copy of them, step after step.
  const auto hot = [](const Plan& each) {
    TrainConfig result = training("resnet20", each, "dynamic", "sgd", 6);
    result.batch = 8;
    Tensor weight{{16, 3, 3, 3}, std::vector<float>(432, 6e4f)};
    result.init["conv1.weight"] = weight;
    return result;
  };
  const RunView run = record(hot(plan), small_images());
  ASSERT_TRUE(run.steps(1)[0].skipped) << "the test is about a skipped step";
  const auto spoiled = of_rule(run_rules(run), "unsafe_buffers");
  ASSERT_EQ(spoiled.size(), 1u);
  EXPECT_EQ(spoiled[0].severity, Severity::error);
  EXPECT_EQ(spoiled[0].layer, "bn1");
  EXPECT_EQ(spoiled[0].site, "bn1.running_mean");
  EXPECT_EQ(spoiled[0].step, 0);
  EXPECT_THAT(spoiled[0].text, HasSubstr("bn1"));
  EXPECT_THAT(spoiled[0].action.text, HasSubstr("on_step"));

  plan.buffers = BufferCommit::on_step;
  const RunView safe = record(hot(plan), small_images());
  ASSERT_TRUE(safe.steps(1)[0].skipped);
  EXPECT_TRUE(of_rule(run_rules(safe), "unsafe_buffers").empty());
}

// A step that is skipped because of its gradients leaves good values behind; so does one that is
// taken.
TEST(RealRuns, BuffersOfAGoodForwardPassAreNoFinding) {
  Plan plan = preset_plan("mixed_float16").value();
  plan.buffers = BufferCommit::always;
  for (const char* scale : {"dynamic:1e30", "dynamic:1024"}) {
    TrainConfig setup = training("resnet20", plan, scale, "sgd", 4);
    setup.batch = 8;
    const RunView run = record(setup, small_images());
    EXPECT_EQ(run.steps(1)[0].skipped, scale == std::string("dynamic:1e30"));
    EXPECT_TRUE(of_rule(run_rules(run), "unsafe_buffers").empty()) << scale;
  }
}

/// A one-cycle schedule whose first rate, 2e-17, and the number that it is divided by are 0 in
/// fp16.
TrainConfig scheduled(const FloatFormat& format) {
  Plan plan = preset_plan("mixed_float16").value();
  plan.schedule = format;
  TrainConfig result = training(kMlp, plan, "dynamic:1024", "sgd:lr=0.199375", 20);
  result.schedule =
      parse_schedule("onecycle:div=1e16,final_div=2.1926e-14,start=0.25,anneal=linear");
  return result;
}

TEST(RealRuns, ASchedulesNumbersThatFp16DoesNotHave) {
  const RunView run = record(scheduled(kFp16));
  EXPECT_TRUE(std::isfinite(run.steps(0)[5].learning_rate));
  const std::vector<Finding> findings = run_rules(run);
  const auto found = of_rule(findings, "schedule_rounding");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].lane, 1);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].step, 5) << "the top is step 0.25 * 20 - 1";
  EXPECT_THAT(found[0].text, HasSubstr("The learning rate is NaN from step 5 on"));
  EXPECT_THAT(found[0].text, HasSubstr("computed in fp16"));
  EXPECT_EQ(std::get<std::string>(found[0].evidence.at("cause")), "constant");
  EXPECT_TRUE(found[0].action.edit.has(FixKind::schedule_fp32));
  for (const Finding& finding : findings) {
    const bool other = finding.rule != "schedule_rounding" && finding.lane == 1;
    EXPECT_TRUE(!other || finding.severity == Severity::info) << finding.rule << finding.text;
  }
  const auto advice = recommend(run, findings, 1);
  ASSERT_TRUE(advice);
  EXPECT_TRUE(advice->edit.has(FixKind::schedule_fp32)) << advice->text;
  EXPECT_TRUE(advice->edit.fp32_layers().empty()) << advice->text;
  EXPECT_EQ(plan_from_json(advice->plan_json).schedule, kFp32);
}

TEST(RealRuns, SchedulesThatRoundALittleAreNoFinding) {
  EXPECT_TRUE(of_rule(run_rules(record(scheduled(kFp32))), "schedule_rounding").empty());
  EXPECT_TRUE(of_rule(run_rules(record(scheduled(kBf16))), "schedule_rounding").empty());
  TrainConfig warm = scheduled(kFp16);  // its rates are off by an ulp of fp16
  warm.schedule = parse_schedule("cosine:warmup=3");
  EXPECT_TRUE(of_rule(run_rules(record(warm)), "schedule_rounding").empty());
}

TEST(RealRuns, RatesThatBecomeZeroAreAWarning) {
  TrainConfig tiny = scheduled(kFp16);  // below half of fp16's smallest number
  tiny.optimizer.learning_rate = 2e-8;
  tiny.schedule = parse_schedule("constant");
  const auto found = of_rule(run_rules(record(tiny)), "schedule_rounding");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_EQ(std::get<double>(found[0].evidence.at("zeros")), 20.0);
  EXPECT_EQ(std::get<double>(found[0].evidence.at("apart")), 1.0);
}

}  // namespace
}  // namespace halfscope::test
