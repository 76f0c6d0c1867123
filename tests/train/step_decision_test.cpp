// SPDX-License-Identifier: MIT
// Decisions from the norm of the gradients, compared with the rules of torch.cuda.amp and Adam
// written out.
#include "core/backend/step_decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/lower/step_scalar.h"

namespace halfscope {
namespace {

using Kind = LossScalerConfig::Kind;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

StepRules rules(Kind kind, double clip_norm = 0.0) {
  return {{.kind = kind, .initial = 1024.0f, .growth_interval = 3}, clip_norm};
}

TEST(StepDecision, SkipsWhatIsNotFiniteAndLowersTheScale) {
  for (const double sum_sq : {kInfinite, -kInfinite, std::nan("")}) {
    const StepDecision dynamic = decide({{1024.0f, 2}, 7}, rules(Kind::dynamic), sum_sq);
    EXPECT_TRUE(dynamic.skipped);
    EXPECT_EQ(dynamic.next.updates, 7);
    EXPECT_EQ(dynamic.next.scaler.scale, 512.0f);
    EXPECT_EQ(dynamic.next.scaler.tracker, 0);
    const StepDecision constant = decide({{1024.0f, 0}, 7}, rules(Kind::constant), sum_sq);
    EXPECT_TRUE(constant.skipped);
    EXPECT_EQ(constant.next.scaler.scale, 1024.0f);
    const StepDecision none = decide({{1.0f, 0}, 7}, rules(Kind::none), sum_sq);
    EXPECT_FALSE(none.skipped);
    EXPECT_EQ(none.next.updates, 8);
  }
}

TEST(StepDecision, GrowsTheScaleAfterItsInterval) {
  StepState state{{1024.0f, 0}, 0};
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(state.scaler.scale, 1024.0f);
    state = decide(state, rules(Kind::dynamic), 4.0).next;
  }
  EXPECT_EQ(state.scaler.scale, 2048.0f);
  EXPECT_EQ(state.updates, 3);
}

// 0 * inf would make NaN of every weight.
TEST(StepDecision, SkipsWhereTheScaleHasNoInverse) {
  const StepState collapsed{{0x1p-129f, 0}, 0};
  EXPECT_TRUE(decide(collapsed, rules(Kind::dynamic), 0.0).skipped);
  const StepDecision last = decide({{0x1p-127f, 0}, 0}, rules(Kind::dynamic), 0.0);
  EXPECT_FALSE(last.skipped);
  EXPECT_EQ(last.inverse_scale, 0x1p127f);
}

TEST(StepDecision, ClipsTheUnscaledNorm) {
  const StepState state{{8.0f, 0}, 0};
  // sqrt(6400) / 8 = 10
  EXPECT_EQ(unscaled_norm(6400.0, state.scaler), 10.0);
  EXPECT_EQ(decide(state, rules(Kind::constant, 2.5), 6400.0).clip, 2.5 / (10.0 + 1e-6));
  EXPECT_EQ(decide(state, rules(Kind::constant, 20.0), 6400.0).clip, 1.0);
  EXPECT_EQ(decide(state, rules(Kind::constant), 6400.0).clip, 1.0);
  EXPECT_EQ(decide(state, rules(Kind::none, 2.5), std::nan("")).clip, 1.0);
}

TEST(StepDecision, CorrectsTheBiasByUpdatesDone) {
  for (const int64_t updates : {0, 1, 99, 100000}) {
    const StepDecision decision = decide({{1.0f, 0}, updates}, rules(Kind::none), 1.0);
    const double t = static_cast<double>(updates + 1);
    for (const double beta : {0.9, 0.999, 0.0}) {
      const StepScalar scalar{StepScalar::Kind::correction, beta};
      EXPECT_NEAR(scalar_value(scalar, decision.next.updates), 1.0 - std::pow(beta, t), 1e-15);
    }
  }
}

TEST(StepDecision, TheFirstUpdateIsNotDampened) {
  const StepScalar share{StepScalar::Kind::share, 0.25};
  EXPECT_EQ(scalar_value(share, 1), 1.0);
  EXPECT_EQ(scalar_value(share, 2), 0.75);
  EXPECT_EQ(scalar_value(share, 1000), 0.75);
  EXPECT_EQ(scalar_value({StepScalar::Kind::value, 0.25}, 3), 0.25);
  EXPECT_EQ(scalar_value({StepScalar::Kind::rest, 0.25}, 3), 0.75);
}

}  // namespace
}  // namespace halfscope
