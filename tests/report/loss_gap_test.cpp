// SPDX-License-Identifier: MIT
// The loss-gap rule on made-up loss curves: a lane that follows, one that parts, one that never
// takes a step, a reference that diverges, and a run too short to tell.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"

namespace halfscope {
namespace {

using Curve = std::function<double(int64_t)>;

double falling(int64_t step) { return 2.3 * std::exp(-0.02 * static_cast<double>(step)); }

/// A run of two lanes without statistics, so that no other rule has anything to say.
RunView run_of(const Curve& reference, const Curve& lane, int64_t steps, bool skipped = false) {
  RunInfo info;
  for (const FloatFormat& format : {kFp32, kFp16}) {
    LaneInfo lane_info;
    lane_info.name = format == kFp32 ? "float32" : "narrow";
    lane_info.backend = "emulated";
    lane_info.plan_json = "{}";
    LayerInfo layer;
    layer.path = "a";
    layer.op = "Gemm";
    layer.inputs = {"input"};
    layer.read = layer.write = format;
    lane_info.layers = {layer};
    info.lanes.push_back(lane_info);
  }
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < steps; ++step) {
    StepRow row;
    row.step = step;
    row.loss = reference(step);
    run.add_step(0, row);
    row.loss = lane(step);
    row.skipped = skipped;
    run.add_step(1, row);
  }
  return run;
}

std::vector<Finding> gaps(const RunView& run) {
  std::vector<Finding> found;
  for (Finding& finding : run_rules(run)) {
    if (finding.rule == "loss_gap") found.push_back(std::move(finding));
  }
  return found;
}

TEST(LossGap, SilentWhereTheLaneFollows) {
  EXPECT_TRUE(gaps(run_of(
                       falling, [](int64_t step) { return falling(step) * 1.05; }, 100))
                  .empty());
}

TEST(LossGap, WarnsWhereTheLanePartsInEitherDirection) {
  for (const double factor : {1.3, 0.5}) {
    const std::vector<Finding> found = gaps(run_of(
        falling, [&](int64_t step) { return falling(step) * factor; }, 100));
    ASSERT_EQ(found.size(), 1u) << factor;
    EXPECT_EQ(found[0].lane, 1);
    EXPECT_EQ(found[0].severity, Severity::warning);
  }
}

TEST(LossGap, ErrorWhereTheLaneDoesNotLearnAtAll) {
  const std::vector<Finding> found = gaps(run_of(
      falling, [](int64_t) { return 2.3; }, 100));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::error);
}

TEST(LossGap, ErrorWhereEveryStepIsSkipped) {
  const std::vector<Finding> found = gaps(run_of(
      falling, [](int64_t) { return 2.3; }, 40, true));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_NE(found[0].mechanism.find("all 40 of its steps were skipped"), std::string::npos);
}

TEST(LossGap, BlamesAReferenceThatDivergesAndAdvisesNothing) {
  const Curve rising = [](int64_t step) { return 2.3 + 0.1 * static_cast<double>(step); };
  const RunView run = run_of(
      rising, [](int64_t) { return 2.3; }, 100);
  const std::vector<Finding> found = gaps(run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].lane, 0);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_FALSE(recommend(run, run_rules(run), 1).has_value());
}

TEST(LossGap, SaysNothingOfAShortRunOrNoise) {
  EXPECT_TRUE(gaps(run_of(
                       falling, [](int64_t) { return 5.0; }, 19))
                  .empty());
  // Scatter of the reference larger than the gap.
  const Curve noisy = [](int64_t step) { return step % 2 == 0 ? 1.5 : 0.5; };
  EXPECT_TRUE(gaps(run_of(
                       noisy, [](int64_t) { return 1.6; }, 100))
                  .empty());
}

}  // namespace
}  // namespace halfscope
