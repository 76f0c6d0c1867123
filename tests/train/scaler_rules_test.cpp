// SPDX-License-Identifier: MIT
// The scalers' rules: traces worked out by hand from the frameworks' sources, their first doubling,
// floors, caps and dead ends.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/step_decision.h"

namespace halfscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kPattern = "FFFOFFFFOOFFFF";  // O: overflow

std::vector<LossScalerState> states(const char* text, std::string_view pattern) {
  const LossScalerConfig config = parse_loss_scale(text);
  std::vector<LossScalerState> all;
  LossScalerState state = initial_state(config);
  for (const char letter : pattern) {
    EXPECT_EQ(skips(config, letter == 'F'), letter == 'O');
    all.push_back(state = next_state(state, config, letter == 'F'));
  }
  return all;
}

std::vector<int> kilo(const char* text) {
  std::vector<int> scales;
  for (const LossScalerState& each : states(text, kPattern)) {
    scales.push_back(static_cast<int>(each.scale / 1024.0));
  }
  return scales;
}

std::vector<std::pair<int, int>> with_hysteresis(const char* text) {
  std::vector<std::pair<int, int>> all;
  for (const LossScalerState& each : states(text, kPattern)) {
    all.emplace_back(static_cast<int>(each.scale / 1024.0), each.hysteresis);
  }
  return all;
}

TEST(ScalerRules, GoldenTraces) {
  const std::vector<int> torch{64, 64, 128, 64, 64, 64, 128, 128, 64, 32, 32, 32, 64, 64};
  EXPECT_EQ(kilo("torch:interval=3"), torch);
  EXPECT_EQ(kilo("apex:window=3"), torch);
  const std::vector<int> keras{32, 32, 64, 32, 32, 32, 64, 64, 32, 16, 16, 16, 32, 32};
  EXPECT_EQ(kilo("tf-keras:interval=3"), keras);
  EXPECT_EQ(kilo("keras3:interval=3"), keras);
  const std::vector<int> alone{64, 64, 64, 32, 32, 32, 32, 64, 32, 16, 16, 16, 16, 32};
  EXPECT_EQ(kilo("deepspeed:window=3,hysteresis=1"), alone);
  EXPECT_EQ(kilo("deepspeed:window=3,fused"), alone);
  std::vector<int> logs;
  for (const LossScalerState& each : states("apex-fp16-utils:window=3", kPattern)) {
    logs.push_back(static_cast<int>(std::log2(each.scale)));
  }
  EXPECT_EQ(logs, (std::vector<int>{32, 32, 33, 32, 32, 32, 33, 33, 32, 31, 31, 31, 32, 32}));
}

TEST(ScalerRules, GoldenTracesOfHysteresis) {
  using Trace = std::vector<std::pair<int, int>>;
  EXPECT_EQ(with_hysteresis("deepspeed:window=3"), (Trace{{64, 2},
                                                          {64, 2},
                                                          {64, 2},
                                                          {64, 1},
                                                          {64, 1},
                                                          {64, 1},
                                                          {64, 1},
                                                          {128, 2},
                                                          {128, 1},
                                                          {64, 1},
                                                          {64, 1},
                                                          {64, 1},
                                                          {64, 1},
                                                          {128, 2}}));
  EXPECT_EQ(with_hysteresis("deepspeed:window=3,consecutive"), (Trace{{64, 2},
                                                                      {64, 2},
                                                                      {64, 2},
                                                                      {64, 1},
                                                                      {64, 2},
                                                                      {64, 2},
                                                                      {64, 2},
                                                                      {128, 2},
                                                                      {128, 1},
                                                                      {64, 1},
                                                                      {64, 2},
                                                                      {64, 2},
                                                                      {64, 2},
                                                                      {128, 2}}));
}

/// Returns the number of good steps after which the scale first grows.
int first_growth(const char* text) {
  const LossScalerConfig config = parse_loss_scale(text);
  LossScalerState state = initial_state(config);
  for (int steps = 1; steps < 5000; ++steps) {
    state = next_state(state, config, true);
    if (state.scale != initial_state(config).scale) return steps;
  }
  return -1;
}

TEST(ScalerRules, FirstDoubling) {
  for (const char* text : {"dynamic", "torch", "tf-keras", "keras3", "apex"}) {
    EXPECT_EQ(first_growth(text), 2000) << text;
  }
  EXPECT_EQ(first_growth("deepspeed"), 1001) << "the first step after an overflow does not count";
  EXPECT_EQ(first_growth("apex-fp16-utils"), 1000);
}

TEST(ScalerRules, DeepSpeedsDefaultTrace) {
  const LossScalerConfig config = parse_loss_scale("deepspeed");
  LossScalerState state = initial_state(config);
  std::vector<std::pair<int, double>> changes;
  for (int i = 0; i < 3100; ++i) {
    const LossScalerState next = next_state(state, config, i != 5 && i != 7 && i != 8);
    EXPECT_EQ(next.hysteresis, i < 5 || i >= 1009 ? 2 : 1) << i;
    if (next.scale != state.scale) changes.emplace_back(i, next.scale);
    state = next;
  }
  const std::vector<std::pair<int, double>> wanted{
      {7, 32768.0}, {8, 16384.0}, {1009, 32768.0}, {2009, 65536.0}, {3009, 131072.0}};
  EXPECT_EQ(changes, wanted);
}

TEST(ScalerRules, StepsOfTheOptimizer) {
  const auto updates = [](const char* text) {
    StepState state{initial_state(parse_loss_scale(text)), 0};
    const StepRules rules{.scaler = parse_loss_scale(text)};
    for (const char letter : kPattern) {
      state = decide(state, rules, letter == 'F' ? 1.0 : kInfinity).next;
    }
    return state.updates;
  };
  EXPECT_EQ(updates("tf-keras:interval=3"), 14) << "iterations count skipped steps";
  for (const char* text : {"dynamic", "torch", "keras3", "apex", "apex-fp16-utils", "deepspeed",
                           "deepspeed-bf16", "static:8"}) {
    EXPECT_EQ(updates(text), 11) << text;
  }
}

/// Runs steps that all overflow and returns the number after which the scale is `wanted`.
int steps_to(const char* text, double wanted, bool finite = false) {
  const LossScalerConfig config = parse_loss_scale(text);
  LossScalerState state = initial_state(config);
  for (int steps = 1; steps < 300000; ++steps) {
    state = next_state(state, config, finite);
    if (state.scale == wanted) return steps;
    if (state.stop != ScalerStop::none) return -1;
  }
  return -1;
}

TEST(ScalerRules, HalvingsToTheEnd) {
  EXPECT_EQ(steps_to("tf-keras", 1.0), 15);
  EXPECT_EQ(steps_to("keras3", 0.0), 142) << "TensorFlow and JAX flush subnormals";
  EXPECT_EQ(steps_to("keras3:backend=torch", 0.0), 165);
  EXPECT_EQ(steps_to("torch", 0x1p-128), 144);
  EXPECT_EQ(steps_to("torch", 0.0), 166);
  EXPECT_EQ(steps_to("apex", 0.0), 1091);
  EXPECT_EQ(steps_to("apex:min=4", 4.0), 14);
  EXPECT_EQ(steps_to("apex-fp16-utils", 1.0), 32);
  EXPECT_EQ(steps_to("deepspeed", 1.0), 17) << "the first one only uses the hysteresis";
}

TEST(ScalerRules, DoublingsToTheEnd) {
  EXPECT_EQ(steps_to("torch:interval=1", 0x1p127, true), 111);
  EXPECT_EQ(steps_to("keras3:interval=1", kInfinity, true), 113);
  EXPECT_EQ(steps_to("keras3", kInfinity, true), 226000);
  EXPECT_EQ(steps_to("tf-keras:interval=1", kInfinity, true), -1);
  EXPECT_EQ(steps_to("apex", 0x1p24, true), 16000);
  EXPECT_EQ(steps_to("apex:window=1", 0x1p25, true), -1);
  EXPECT_EQ(steps_to("deepspeed:window=1", 0x1p200, true), 185) << "no cap: a Python float";
}

TEST(ScalerRules, TfKerasSkipsForeverAtOne) {
  const LossScalerConfig config = parse_loss_scale("tf-keras");
  LossScalerState state = initial_state(config);
  for (int i = 0; i < 1000; ++i) state = next_state(state, config, false);
  EXPECT_EQ(state.scale, 1.0);
  EXPECT_TRUE(skips(config, false));
  // The floor lifts a scale that starts below it.
  const LossScalerConfig low = parse_loss_scale("tf-keras:init=0.25");
  EXPECT_EQ(next_state(initial_state(low), low, false).scale, 1.0);
}

TEST(ScalerRules, InfinityNeverRecoversInKeras3) {
  const LossScalerConfig config = parse_loss_scale("keras3");
  LossScalerState state{.scale = kInfinity};
  for (int i = 0; i < 10; ++i) state = next_state(state, config, false);
  EXPECT_EQ(state.scale, kInfinity);
}

/// Returns a weight of 1 after one step of a finite gradient.
float weight_after(const char* text, double scale, float gradient) {
  const StepRules rules{.scaler = parse_loss_scale(text)};
  StepState state{initial_state(rules.scaler), 0};
  state.scaler.scale = scale;
  const StepDecision decision = decide(state, rules, static_cast<double>(gradient) * gradient);
  if (decision.skipped) return 1.0f;
  return 1.0f - (divides_by_scale(rules.scaler) ? gradient / decision.inverse_scale
                                                : gradient * decision.inverse_scale);
}

TEST(ScalerRules, WeightsBecomeNanWithoutAnOverflow) {
  // The inverse of 2^-128 is infinite in fp32.
  EXPECT_EQ(weight_after("torch", 0x1p-127, 0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(weight_after("torch", 0x1p-128, 0.0f)));
  EXPECT_TRUE(std::isnan(weight_after("torch", 0.0, 0.0f)));
  EXPECT_TRUE(std::isnan(weight_after("apex", 0x1p-128, 0.0f)));
  EXPECT_EQ(weight_after("dynamic", 0x1p-128, 0.0f), 1.0f) << "ours skips instead";
  // Keras 3 divides, so that only 0 / 0 is NaN.
  EXPECT_EQ(weight_after("keras3", 0x1p-140, 0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(weight_after("keras3", 0.0, 0.0f)));
  // Division rounds differently from multiplying by a rounded inverse.
  EXPECT_EQ(weight_after("keras3", 1000.0, 3.0f), 1.0f - 3.0f / 1000.0f);
  EXPECT_EQ(weight_after("tf-keras", 1000.0, 3.0f), 1.0f - 3.0f * (1.0f / 1000.0f));
}

TEST(ScalerRules, DeepSpeedRaisesAtItsMinimum) {
  const StepRules rules{.scaler = parse_loss_scale("deepspeed:init=2,hysteresis=1")};
  StepState state{initial_state(rules.scaler), 0};
  state = decide(state, rules, kInfinity).next;
  EXPECT_EQ(state.scaler.scale, 1.0);
  EXPECT_EQ(state.scaler.stop, ScalerStop::none);
  const StepDecision stopped = decide(state, rules, kInfinity);
  EXPECT_TRUE(stopped.skipped);
  EXPECT_EQ(stopped.next.scaler.stop, ScalerStop::at_minimum);
  EXPECT_EQ(stopped.next.scaler.iteration, 1) << "it raises before it counts";
  EXPECT_EQ(stopped.next.updates, 0);
  const StepDecision after = decide(stopped.next, rules, 1.0);
  EXPECT_TRUE(after.skipped) << "a device may have launched it already";
  EXPECT_EQ(after.next.scaler, stopped.next.scaler);

  LossScalerConfig silent = parse_loss_scale("deepspeed:init=2,hysteresis=1,no-raise");
  LossScalerState floor = initial_state(silent);
  for (int i = 0; i < 10; ++i) floor = next_state(floor, silent, false);
  EXPECT_EQ(floor.scale, 1.0);
  EXPECT_EQ(floor.stop, ScalerStop::none);
  // Hysteresis postpones it, too.
  const LossScalerConfig delayed = parse_loss_scale("deepspeed:init=1,hysteresis=3");
  LossScalerState state2 = initial_state(delayed);
  for (int i = 0; i < 2; ++i) state2 = next_state(state2, delayed, false);
  EXPECT_EQ(state2.stop, ScalerStop::none);
  EXPECT_EQ(next_state(state2, delayed, false).stop, ScalerStop::at_minimum);
}

TEST(ScalerRules, ApexDividesByZero) {
  const StepRules rules{.scaler = parse_loss_scale("apex")};
  StepState state{initial_state(rules.scaler), 0};
  for (int i = 0; i < 1091; ++i) state = decide(state, rules, kInfinity).next;
  EXPECT_EQ(state.scaler.scale, 0.0);
  EXPECT_EQ(state.scaler.stop, ScalerStop::none);
  for (const double sum_sq : {0.0, kInfinity}) {  // before it looks at the gradients
    const StepDecision decision = decide(state, rules, sum_sq);
    EXPECT_TRUE(decision.skipped);
    EXPECT_EQ(decision.next.scaler.stop, ScalerStop::division_by_zero);
  }
}

TEST(ScalerRules, StaticScales) {
  for (const char* text : {"tf-keras:static=64", "keras3:static=64", "apex:static=64",
                           "apex-fp16-utils:static=64", "deepspeed:static=64", "deepspeed-bf16"}) {
    const LossScalerConfig config = parse_loss_scale(text);
    EXPECT_TRUE(is_static(config)) << text;
    const LossScalerState state = initial_state(config);
    EXPECT_EQ(state.scale, config.kind == LossScalerConfig::Kind::deepspeed_bf16 ? 1.0 : 64.0);
    for (const bool finite : {true, false}) EXPECT_EQ(next_state(state, config, finite), state);
    const bool deepspeed = std::string_view(text).starts_with("deepspeed");
    EXPECT_EQ(skips(config, false), deepspeed) << text << ": only DeepSpeed skips";
  }
  EXPECT_EQ(initial_state(parse_loss_scale("apex:init=33554432")).scale, 0x1p24) << "capped";
  EXPECT_EQ(initial_state(parse_loss_scale("apex:static=33554432")).scale, 0x1p25) << "not capped";
}

TEST(ScalerRules, OneGradScalerForSeveralOptimizers) {
  const LossScalerConfig config = parse_loss_scale("torch:interval=2");
  LossScalerState state = initial_state(config);
  SharedStep step = shared_step(state, config, {true, false, true});
  EXPECT_EQ(step.skipped, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(step.next.scale, 32768.0) << "one overflow halves the common scale";
  step = shared_step(step.next, config, {true, true, true});
  EXPECT_EQ(step.next.tracker, 1);
  EXPECT_EQ(shared_step(step.next, config, {true, true, true}).next.scale, 65536.0);
}

TEST(ScalerRules, FrameworksRoundAsTheirScaleIsStored) {
  // torch multiplies in double and rounds to fp32.
  const LossScalerConfig torch = parse_loss_scale("torch:init=3,growth=1.1,interval=1");
  EXPECT_EQ(next_state(initial_state(torch), torch, true).scale,
            static_cast<double>(static_cast<float>(3.0 * 1.1)));
  // DeepSpeed and apex keep a Python float, and tests below fp32's range still differ.
  const LossScalerConfig deepspeed =
      parse_loss_scale("deepspeed:init=1e-300,min=1e-305,hysteresis=1");
  EXPECT_EQ(next_state(initial_state(deepspeed), deepspeed, false).scale, 5e-301);
}

}  // namespace
}  // namespace halfscope
