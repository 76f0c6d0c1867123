// SPDX-License-Identifier: MIT
// The rules' advice about loss scales that are too high, too low or odd, on made-up runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/rules/loss_scale_window.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/scale_ceiling.h"
#include "core/policy/policy.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Finding the_finding(const RunView& run, const std::string& rule) {
  std::vector<Finding> found;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == rule) found.push_back(finding);
  }
  EXPECT_EQ(found.size(), 1u) << rule;
  return found.empty() ? Finding{} : found[0];
}

/// healthy_spec with a dynamic scale that starts elsewhere.
RunSpec scaled_spec(double scale) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].loss_scale = scale;
  spec.steps = 40;
  return spec;
}

/// Same run with a constant scale: every step is skipped like the first one.
RunView constant(const RunSpec& spec) {
  const RunView once = make_run(spec);
  RunInfo info = once.info();
  info.lanes[1].loss_scale = "static:" + std::to_string(spec.lanes[1].loss_scale);
  RunView run(std::move(info), RunStatus::complete);
  for (int lane = 0; lane < once.lane_count(); ++lane) {
    for (int64_t step = 0; step < spec.steps; ++step) {
      StepRow row = once.steps(lane)[lane == 0 ? static_cast<size_t>(step) : 0];
      row.step = step;
      run.add_step(lane, row);
    }
    for (const SiteInfo& site : once.lane(lane).sites) {
      for (int64_t step = 0; step < spec.steps; ++step) {
        const auto window = once.windows(lane, site.order).find(lane == 0 ? step : 0);
        if (window) run.add_window(lane, site.order, {step, 1, window->stats()});
      }
    }
  }
  return run;
}

bool any_overflow(const RunSpec& spec, double scale) {
  RunSpec again = spec;
  again.lanes[1].loss_scale = scale;
  again.lanes[1].dynamic = false;
  const RunView run = make_run(again);
  for (const SiteInfo& site : run.lane(1).sites) {
    if (site.phase == Phase::backward && run.total(1, site.order).overflow > 0) return true;
  }
  return false;
}

// The first gradient overflows, the others are NaN: the reference shows their true magnitudes.
TEST(LossScaleAdvice, OfARunWithoutAFiniteStepComesFromTheReference) {
  RunSpec spec = scaled_spec(0x1p100);
  layer_of(spec, "conv1").gradient = -4.0;  // the gradient that is computed last is the largest
  const RunView run = constant(spec);
  ASSERT_TRUE(run.steps(1).back().skipped);
  const Finding first = the_finding(run, "first_non_finite");
  EXPECT_EQ(first.severity, Severity::warning);
  EXPECT_THAT(first.text, HasSubstr("gradients overflow at the static loss scale of 2^100"));
  const double scale = first.action.edit.loss_scale().value();
  EXPECT_STREQ(action_name(first.action.edit), "loss_scale");
  EXPECT_EQ(scale, std::exp2(std::round(std::log2(scale)))) << "a power of two";
  EXPECT_FALSE(any_overflow(spec, scale)) << scale;
  EXPECT_TRUE(any_overflow(spec, 8.0 * scale)) << "not lower than it has to be: " << scale;
  const auto advice = recommend(run, run_rules(run), 1);
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->edit.loss_scale(), scale);
  EXPECT_THAT(advice->text, testing::StartsWith("Use dynamic loss scaling or a static scale of"));
}

TEST(LossScaleAdvice, WithoutAReferenceItIsDynamicScaling) {
  RunSpec spec = scaled_spec(0x1p100);
  const RunView both = constant(spec);
  RunInfo info = both.info();
  info.lanes.erase(info.lanes.begin());
  RunView run(std::move(info), RunStatus::complete);
  for (const StepRow& row : both.steps(1)) run.add_step(0, row);
  for (const SiteInfo& site : both.lane(1).sites) {
    for (const PackedWindow& window : both.windows(1, site.order)) {
      run.add_window(0, site.order, window);
    }
  }
  EXPECT_FALSE(scale_ceiling(LaneFacts(run, 0)));
  const Finding first = the_finding(run, "first_non_finite");
  EXPECT_EQ(first.severity, Severity::warning);
  EXPECT_FALSE(first.action.edit.loss_scale());
  EXPECT_THAT(first.action.text,
              HasSubstr("Use dynamic loss scaling: the recorded gradients do not show"));
  EXPECT_FALSE(recommend(run, run_rules(run), 0));
}

TEST(LossScaleAdvice, DynamicScalingThatStartsTooHighIsNotToldToBeDynamic) {
  for (const bool settles : {false, true}) {
    RunSpec spec = scaled_spec(settles ? 0x1p40 : 0x1p100);
    const RunView run = make_run(spec);
    EXPECT_EQ(run.steps(1).back().skipped, !settles);
    const Finding first = the_finding(run, "first_non_finite");
    EXPECT_EQ(first.severity, Severity::warning);
    EXPECT_THAT(first.action.text, HasSubstr("Start dynamic loss scaling at or below "));
    EXPECT_THAT(first.action.text, Not(HasSubstr("Use dynamic")));
    EXPECT_THAT(first.text, Not(HasSubstr("does not settle")));
    EXPECT_THAT(first.text, HasSubstr(settles ? "started far too high, at 2^40"
                                              : "still lowering its scale from 2^100"));
    EXPECT_FALSE(any_overflow(spec, first.action.edit.loss_scale().value()));
    const auto advice = recommend(run, run_rules(run), 1);
    ASSERT_TRUE(advice);
    EXPECT_THAT(advice->text, testing::StartsWith("Start dynamic loss scaling at "));
  }
}

TEST(LossScaleAdvice, AStaticScaleThatSkipsAFewStepsIsNoCalibration) {
  RunView made(make_run(healthy_spec()).info(), RunStatus::complete);
  for (int step = 0; step < 40; ++step) {
    const bool skipped = step < 5;
    made.add_step(1, {.step = step, .loss = 1.0, .loss_scale = 65536.0, .skipped = skipped});
    made.add_window(
        1, *made.find_site(1, "fc2.activation_grad"),
        {.step = step, .stats = {.n = 4, .overflow = skipped ? 1 : 0, .max_abs = 131072.0f}});
  }
  const Finding first = the_finding(made, "first_non_finite");
  EXPECT_EQ(first.severity, Severity::warning);
  EXPECT_THAT(first.text, Not(HasSubstr("dynamic scaling")));
  EXPECT_THAT(first.text, HasSubstr("5 of 40 steps were skipped"));
}

TEST(LossScaleAdvice, AScaleInTheWindowMayStay) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].dynamic = false;
  spec.lanes[1].loss_scale = 399.11;
  const Finding inside = the_finding(make_run(spec), "loss_scale_window");
  EXPECT_EQ(inside.severity, Severity::info);
  EXPECT_STREQ(action_name(inside.action.edit), "none");
  EXPECT_FALSE(inside.action.edit.loss_scale());
  EXPECT_THAT(inside.action.text, HasSubstr("399, works for every gradient"));
  const double advised = std::get<double>(inside.evidence.at("advised_scale"));
  EXPECT_EQ(advised, std::exp2(std::round(std::log2(advised))));

  spec.lanes[1].loss_scale = std::get<double>(inside.evidence.at("window_low")) / 2.0;
  const Finding below = the_finding(make_run(spec), "loss_scale_window");
  EXPECT_STREQ(action_name(below.action.edit), "loss_scale");
  EXPECT_GT(below.action.edit.loss_scale().value(), spec.lanes[1].loss_scale);
  EXPECT_THAT(below.action.text, HasSubstr("works for every gradient; the last one, "));
  EXPECT_THAT(below.action.text, HasSubstr("does not work"));
}

// A root at 0 has an infinite slope. That is not an overflow, and no loss scale avoids it.
TEST(LossScaleAdvice, NoScaleWorksWhereASlopeIsNotFinite) {
  const double within = 4096.0;
  for (const bool fails : {false, true}) {
    RunView run = make_run(healthy_spec());
    const int64_t step = run.steps(1).back().step + 1;
    run.add_step(1, {.step = step, .loss = 1.0, .loss_scale = within, .skipped = fails});
    const int site = run.find_site(1, "fc1.activation_grad").value();
    if (fails) run.add_window(1, site, {.step = step, .stats = {.n = 4, .pos_inf = 1, .nan = 3}});
    const std::vector<Finding> found = run_rules(run);
    EXPECT_EQ(std::any_of(found.begin(), found.end(),
                          [](const Finding& each) { return each.rule == "loss_scale_window"; }),
              !fails);
  }
}

TEST(LossScaleAdvice, UnderflowOfADynamicScaleAsksForAnotherStart) {
  RunSpec spec = healthy_spec();
  for (LayerSpec& layer : spec.layers) layer.gradient = -26.0;
  spec.lanes[1].loss_scale = 1.0;
  for (const char* loss_scale : {"static:1", "none", "dynamic:1"}) {
    const RunView run = make_run(spec);
    RunInfo info = run.info();
    info.lanes[1].loss_scale = loss_scale;
    RunView named(std::move(info), RunStatus::complete);
    for (const StepRow& row : run.steps(1)) named.add_step(1, row);
    for (const SiteInfo& site : run.lane(1).sites) {
      for (const PackedWindow& window : run.windows(1, site.order)) {
        named.add_window(1, site.order, window);
      }
    }
    bool found = false;
    for (const Finding& finding : run_rules(named)) {
      if (finding.rule != "gradient_underflow") continue;
      found = true;
      const bool dynamic = loss_scale == std::string("dynamic:1");
      EXPECT_EQ(finding.action.text.starts_with("Start dynamic loss scaling at "), dynamic);
      EXPECT_EQ(finding.action.text.starts_with("Use dynamic loss scaling, or "), !dynamic);
    }
    EXPECT_TRUE(found);
  }
}

// If the forward pass overflows, no gradient is ever seen. The scale would be the next failure.
TEST(LossScaleAdvice, AScaleThatAForwardOverflowHides) {
  for (const bool dynamic : {false, true}) {
    RunSpec spec = hot_spec();
    spec.steps = 6;
    for (const double scale : {0x1p100, 1024.0}) {
      spec.lanes[1].loss_scale = scale;
      RunInfo info = make_run(spec).info();
      info.lanes[1].loss_scale = dynamic ? "dynamic:1" : "static:1";
      const RunView run = make_run(spec);
      RunView named(std::move(info), RunStatus::complete);
      for (int lane = 0; lane < 2; ++lane) {
        for (const StepRow& row : run.steps(lane)) named.add_step(lane, row);
        for (const SiteInfo& site : run.lane(lane).sites) {
          for (const PackedWindow& window : run.windows(lane, site.order)) {
            named.add_window(lane, site.order, window);
          }
        }
      }
      const auto advice = recommend(named, run_rules(named), 1);
      ASSERT_TRUE(advice);
      EXPECT_EQ(advice->edit.fp32_layers(), std::vector<std::string>{"conv2"});
      EXPECT_EQ(advice->edit.loss_scale().has_value(), scale > 1024.0) << dynamic;
      if (!advice->edit.loss_scale()) continue;
      RunSpec mended = healthy_spec();  // same as hot_spec, except for conv2's output
      EXPECT_FALSE(any_overflow(mended, *advice->edit.loss_scale()));
    }
  }
}

// A layer may be called anything; the advised plan must select it and no other.
TEST(LossScaleAdvice, APathIsNoGlobInTheAdvisedPlan) {
  RunSpec spec = hot_spec();
  for (LayerSpec& layer : spec.layers) {
    if (layer.path == "conv2") layer.path = "c*";
    for (std::string& input : layer.inputs) {
      if (input == "conv2") input = "c*";
    }
  }
  const RunView run = make_run(spec);
  const auto advice = recommend(run, run_rules(run), 1);
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->edit.fp32_layers(), std::vector<std::string>{"c*"});
  const Plan plan = plan_from_json(advice->plan_json);
  EXPECT_EQ(resolve(plan, "c*", "Conv").write, kFp32);
  EXPECT_EQ(resolve(plan, "conv1", "Conv").write, kFp16);
}

}  // namespace
}  // namespace halfscope::test
