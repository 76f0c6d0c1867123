// SPDX-License-Identifier: MIT
// Rules and verdicts on captured lanes: one lane without a reference, measured after rounding, so
// that overflows are infinities and underflows zeros.
#include "tests/report/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/report/report.h"
#include "analysis/rules/rules.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Finding the_finding(const RunView& run, const std::string& rule) {
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == rule) return finding;
  }
  ADD_FAILURE() << rule;
  return {};
}

TEST(Capture, NamesTheLayerWhoseOutputsAreInfinite) {
  const RunView run = captured(hot_spec());
  const Finding finding = the_finding(run, "forward_overflow");
  EXPECT_EQ(finding.layer, "conv2");
  EXPECT_EQ(finding.severity, Severity::error);
  EXPECT_THAT(finding.text, HasSubstr("conv2 overflows fp16"));
  EXPECT_THAT(finding.text, HasSubstr("of its outputs are infinite"));
  EXPECT_THAT(finding.action.layers, testing::Contains("conv2"));
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::broken);
}

TEST(Capture, BlamesTheInputsOfALayerIfTheyWereNotRecorded) {
  const RunView run = captured(hot_spec());
  RunView outputs(run.info(), RunStatus::complete);
  for (const StepRow& row : run.steps(0)) outputs.add_step(0, row);
  for (const SiteInfo& site : run.lane(0).sites) {
    if (site.path != "conv2" || site.role != Role::activation) continue;
    for (const StatsWindow& window : run.windows(0, site.order)) {
      outputs.add_window(0, site.order, window);
    }
  }
  EXPECT_THAT(the_finding(run, "forward_overflow").text,
              HasSubstr("Its inputs are finite, so the problem starts here."));
  EXPECT_THAT(the_finding(outputs, "forward_overflow").text,
              HasSubstr("Its inputs were not recorded, so the problem may start before it."));
}

TEST(Capture, ClaimsNoHealthWithoutABaseline) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  const Report report = make_report(captured(spec));
  EXPECT_EQ(report.verdict.state, Verdict::State::inconclusive);
  EXPECT_THAT(report.verdict.text, HasSubstr("without a float32 run to compare with"));
  EXPECT_THAT(report.verdict.text, Not(HasSubstr("matches")));
  EXPECT_THAT(report.verdict.text, Not(HasSubstr("healthy")));
  EXPECT_TRUE(report.reproduce.empty());
}

TEST(Capture, SuspectsUnderflowFromSubnormals) {
  RunSpec spec = healthy_spec();
  for (LayerSpec& layer : spec.layers) layer.gradient = -22.0;
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  const RunView run = captured(spec);
  const Finding finding = the_finding(run, "gradient_underflow");
  EXPECT_THAT(finding.text, HasSubstr("subnormal"));
  EXPECT_THAT(finding.text, HasSubstr("this run cannot show how many"));
  for (const Finding& each : run_rules(captured(healthy_spec()))) {
    EXPECT_NE(each.rule, "gradient_underflow");
  }
}

/// Small values beside large ones: most are subnormal, but they carry nothing.
TEST(Capture, SmallValuesBesideLargeOnesAreNoUnderflow) {
  RunSpec spec = healthy_spec();
  for (LayerSpec& layer : spec.layers) layer.gradient = -22.0;
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  const RunView run = changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.phase == Phase::backward) stats.sum_sq = static_cast<double>(stats.n);
      },
      [](StepRow&) {});
  const Finding remark = the_finding(run, "gradient_underflow");
  EXPECT_EQ(remark.severity, Severity::info);
  EXPECT_THAT(remark.text, HasSubstr("No loss scaler is in use"));
  EXPECT_EQ(remark.action.text, "Use dynamic loss scaling.");
  EXPECT_EQ(make_report(run).verdict.state, Verdict::State::inconclusive);
  const RunView scaled = changed(
      run, [](const SiteInfo&, TensorStats&) {}, [](StepRow& row) { row.loss_scale = 2.0; });
  for (const Finding& each : run_rules(scaled)) EXPECT_NE(each.rule, "gradient_underflow");
}

/// The gradient of a bias in front of a softmax is 0, except for what rounding leaves of its terms.
TEST(Capture, ABiasThatSumsToZeroIsNoUnderflow) {
  RunSpec spec = healthy_spec();
  const RunView healthy = captured(spec);
  const auto shrunk = [&](double by) {
    return changed(
        healthy,
        [&](const SiteInfo& site, TensorStats& stats) {
          if (site.role != Role::weight_grad || site.shape.size() != 1) return;
          stats.subnormal = stats.n;
          stats.sum_sq = static_cast<double>(stats.n) * by;
        },
        [](StepRow&) {});
  };
  const double ulp = kFp16.min_subnormal();
  const auto findings = run_rules(shrunk(ulp * ulp));
  for (const Finding& each : findings) EXPECT_NE(each.rule, "gradient_underflow") << each.text;
}

TEST(Capture, DoesNotRaiseAScaleThatOverflows) {
  // fc2's gradients become infinite at every useful scale, and conv1's are subnormal below it.
  const RunView run = captured(no_scale_spec());
  const Finding finding = the_finding(run, "gradient_underflow");
  EXPECT_THAT(finding.action.text, HasSubstr("Do not raise the loss scale: fc2"));
  EXPECT_THAT(finding.action.text, HasSubstr("overflows at "));
  EXPECT_THAT(finding.action.text, HasSubstr("Keep conv1 in fp32"));

  RunSpec low = healthy_spec();
  for (LayerSpec& layer : low.layers) layer.gradient = -22.0;
  low.lanes[1].loss_scale = 2.0;
  low.lanes[1].dynamic = false;
  EXPECT_EQ(the_finding(captured(low), "gradient_underflow").action.text, "Raise the loss scale.");
}

/// Returns a spec whose scale comes down for more than 16 steps, because of one layer's gradients.
RunSpec falling_spec(const std::string& layer) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  for (LayerSpec& each : spec.layers) each.gradient = 8.0;
  layer_of(spec, layer).gradient = 18.0;
  return spec;
}

TEST(Capture, AdvisesAScaleInsideTheWindow) {
  const RunView run = captured(falling_spec("fc2"));
  const Finding window = the_finding(run, "loss_scale_window");
  const Finding skips = the_finding(run, "first_non_finite");
  EXPECT_EQ(skips.severity, Severity::warning);
  ASSERT_TRUE(skips.action.edit.loss_scale());
  EXPECT_GT(*skips.action.edit.loss_scale(), std::get<double>(window.evidence.at("window_low")));
  EXPECT_LT(*skips.action.edit.loss_scale(), std::get<double>(window.evidence.at("window_high")));
  // Every scale that was skipped is outside.
  for (const StepRow& row : run.steps(0)) {
    if (!row.skipped) continue;
    EXPECT_LE(std::get<double>(window.evidence.at("window_high")), row.loss_scale);
  }
}

// A logarithm of a sigmoid in fp16: 1 / 0 where the sigmoid rounds to 0.
TEST(Capture, AGradientThatTheLossMakesTooLargeIsTheLossFunctionsFault) {
  RunSpec spec = falling_spec("loss");
  layer_of(spec, "loss").fp32 = false;
  const Finding finding = the_finding(captured(spec), "first_non_finite");
  EXPECT_EQ(finding.cause, Mechanism::gradient_overflow);
  EXPECT_EQ(
      finding.mechanism,
      "the loss function gives loss a gradient that overflows fp16, even without a loss scale");
  EXPECT_TRUE(finding.action.edit.empty());
  EXPECT_THAT(finding.action.text, HasSubstr("F.logsigmoid"));
}

// Gradients of several micro-batches are added in fp32: the sum may exceed fp16.
TEST(Capture, ASumInFp32IsNoOverflow) {
  RunSpec spec = healthy_spec();
  spec.steps = 60;
  const RunView run = changed(
      captured(spec),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.name() != "fc2.weight_grad") return;
        stats.overflow = 3;
        stats.max_abs = 2e5f;
      },
      [](StepRow&) {});
  for (const Finding& each : run_rules(run)) EXPECT_NE(each.rule, "first_non_finite") << each.text;
  const Finding window = the_finding(run, "loss_scale_window");
  EXPECT_GT(std::get<double>(window.evidence.at("window_high")), run.steps(0).back().loss_scale);
  EXPECT_NE(std::get<std::string>(window.evidence.at("lowest_ceiling_site")), "fc2.weight_grad");
}

TEST(Capture, SaysThatZerosAreMissingFromTheWindowOfScales) {
  RunSpec spec = healthy_spec();
  const Finding finding = the_finding(captured(spec), "loss_scale_window");
  EXPECT_THAT(finding.text, HasSubstr("the lower end may be too low"));
}

}  // namespace
}  // namespace halfscope::test
