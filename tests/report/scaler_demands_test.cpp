// SPDX-License-Identifier: MIT
// Demands of recorded lanes on loss scales: lanes that need none, NaN, and hidden magnitudes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/plans/scaler_traces.h"
#include "analysis/plans/scaler_verdicts.h"
#include "core/error.h"
#include "tests/report/capture.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;

bool is_gradient(const SiteInfo& site) { return site.phase == Phase::backward; }

/// The same gradients with infinities or NaN among them.
RunView with_bad_gradients(const RunView& run, bool infinite) {
  return changed(
      run,
      [&](const SiteInfo& site, TensorStats& stats) {
        if (is_gradient(site)) (infinite ? stats.pos_inf : stats.nan) += 3;
      },
      [](StepRow& row) { row.skipped = true; });
}

ScalerVerdict verdict(const ScaleDemands& demands, const char* scaler = "torch") {
  const LossScalerConfig config = parse_loss_scale(scaler);
  return verdict_of(trace_scaler(config, demands), config, demands, "r.hscope");
}

TEST(ScalerDemands, ABf16LaneNeedsNoLossScale) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].format = kBf16;
  for (const double scale : {1.0, 65536.0}) {
    spec.lanes[1].loss_scale = scale;
    spec.lanes[1].dynamic = scale > 1.0;
    const RunView run = make_run(spec);
    EXPECT_FALSE(needs_loss_scale(run.lane(1)));
    try {
      recorded_demands(run, 1);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "lane mixed_float16 needs no loss scale: its gradients are bf16, with the "
                   "exponents of fp32");
      EXPECT_THAT(error.hint(),
                  HasSubstr(scale > 1.0 ? "train it without a loss scale" : "--lane NAME"));
    }
  }
  EXPECT_TRUE(needs_loss_scale(make_run(healthy_spec()).lane(1)));
}

TEST(ScalerDemands, NanInACaptureIsNoOverflow) {
  const RunView run = with_bad_gradients(captured(healthy_spec()), false);
  const ScaleDemands demands = recorded_demands(run, 0);
  const ScaleDemand& step = demands.steps.front();
  EXPECT_EQ(step.ceiling, 0.0);
  ASSERT_GE(step.nan_site, 0);
  EXPECT_THAT(verdict(demands).why, HasSubstr(" is NaN in step 0, though no gradient overflows."));
  EXPECT_THAT(verdict(demands).advice, HasSubstr("halfscope diagnose r.hscope"));
}

TEST(ScalerDemands, InfinityInACaptureIsAnOverflow) {
  const RunView run = with_bad_gradients(captured(healthy_spec()), true);
  const ScaleDemands demands = recorded_demands(run, 0);
  const ScaleDemand& step = demands.steps.front();
  EXPECT_EQ(step.ceiling, run.steps(0).front().loss_scale);
  EXPECT_TRUE(step.hidden);
  EXPECT_EQ(step.nan_site, -1);
  EXPECT_THAT(verdict(demands, "static:65536").why, HasSubstr("even at the run's own loss scale"));
}

/// The gradients are finite, so every scaler takes the steps.
TEST(ScalerDemands, ALostLossIsSaidAlthoughNoStepIsSkipped) {
  const RunView run = changed(
      captured(healthy_spec()), [](const SiteInfo&, TensorStats&) {},
      [](StepRow& row) {
        if (row.step >= 5) row.loss = std::nan("");
      });
  const ScaleDemands demands = recorded_demands(run, 0);
  EXPECT_EQ(demands.loss_lost, 5);
  EXPECT_EQ(verdict(demands).why, "But the loss is NaN or infinite in step 5.");
  EXPECT_EQ(recorded_demands(captured(healthy_spec()), 0).loss_lost, -1);
}

/// A forward pass that is NaN without an overflow is not called an overflow.
TEST(ScalerDemands, NanInTheForwardPass) {
  const RunView run = changed(
      captured(healthy_spec()),
      [](const SiteInfo& site, TensorStats& stats) {
        if (site.role == Role::activation && site.path == "conv2") stats.nan += 1;
      },
      [](StepRow& row) { row.loss = std::nan(""); });
  EXPECT_EQ(verdict(recorded_demands(run, 0)).why, "conv2.activation is NaN in the forward pass.");
  EXPECT_EQ(verdict(recorded_demands(captured(hot_spec()), 0)).why,
            "conv2.activation overflows in the forward pass.");
}

}  // namespace
}  // namespace halfscope::test
