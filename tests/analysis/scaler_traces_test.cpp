// SPDX-License-Identifier: MIT
// Trajectories of gradients under the scalers: golden scales, how each scaler ends, what is lost,
// which site limits the scale, and the time that a long trajectory takes.
#include "analysis/plans/scaler_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "analysis/plans/scaler_verdicts.h"
#include "core/error.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ScalerTrace trace(const char* scaler, const ScaleDemands& demands) {
  return trace_scaler(parse_loss_scale(scaler), demands);
}

TEST(ScalerTraces, TheGoldenPattern) {
  const ScaleDemands demands = demands_of_pattern("FFFOFFFFOOFFFF", 0);
  ASSERT_EQ(demands.steps.size(), 14u);
  using Changes = std::vector<ScaleChange>;
  EXPECT_EQ(
      trace("torch:interval=3", demands).changes,
      (Changes{
          {0, 65536}, {3, 131072}, {4, 65536}, {7, 131072}, {9, 65536}, {10, 32768}, {13, 65536}}));
  EXPECT_EQ(trace("deepspeed:window=3", demands).changes,
            (Changes{{0, 65536}, {8, 131072}, {10, 65536}, {14, 131072}}));
  for (const LossScalerConfig& scaler : usual_scalers(3)) {
    const ScalerTrace each = trace_scaler(scaler, demands);
    EXPECT_EQ(each.skipped, 3) << each.scaler;
    EXPECT_EQ(each.updates, each.scaler.starts_with("tf-keras") ? 14 : 11) << each.scaler;
    EXPECT_EQ(each.last_skipped, 9);
    EXPECT_EQ(each.first_taken, 0);
    EXPECT_EQ(each.end, ScalerEnd::rides) << each.scaler;
  }
}

TEST(ScalerTraces, CalibrationIsNoTrouble) {
  // 65520 / 100 = 655: scales from 2^10 on overflow.
  const std::vector<GradientRange> gradients(1000, GradientRange{100.0, 1e-5});
  const ScaleDemands demands = demands_of(gradients, kFp16);
  const ScalerTrace torch = trace("torch", demands);
  EXPECT_EQ(torch.end, ScalerEnd::calibrates);
  EXPECT_EQ(torch.skipped, 7) << "2^16 to 2^9";
  EXPECT_EQ(torch.changes.back().scale, 512.0);
  EXPECT_EQ(torch.first_taken, 7);
  EXPECT_THAT(torch.about, HasSubstr("skips 7 steps at the start"));
  // 2^-25 / 1e-5: nothing is flushed at 512, everything at most 2^-9.
  EXPECT_EQ(torch.flushed, 0);
  EXPECT_EQ(trace("static:0.00390625", demands).flushed, 0);
  EXPECT_EQ(trace("static:0.001953125", demands).flushed, 1000);
  EXPECT_EQ(trace("static:1024", demands).end, ScalerEnd::stuck);
  EXPECT_EQ(trace("static:512", demands).end, ScalerEnd::fits);
}

/// The scale falls from 2^16 to below 2^8.7, which takes 8 skipped steps. A shorter run does not
/// show that.
TEST(ScalerTraces, AShortCalibrationIsNotStuck) {
  const auto demands = [](size_t steps) {
    return demands_of(std::vector<GradientRange>(steps, {160.0, 1e-5}), kFp16);
  };
  const ScalerTrace five = trace("torch", demands(5));
  EXPECT_EQ(five.end, ScalerEnd::searches);
  EXPECT_FALSE(is_good(five.end));
  EXPECT_EQ(five.about,
            "skips all 5 steps: the scale has fallen from 65536 (2^16) to 2048 (2^11). The run is "
            "too short to tell whether it finds one");
  EXPECT_EQ(five.missing, 4) << "2^11, 2^10 and 2^9 overflow, 2^8 does not";
  EXPECT_EQ(trace("torch", demands(static_cast<size_t>(5 + five.missing))).end,
            ScalerEnd::calibrates);
  EXPECT_EQ(trace("torch", demands(static_cast<size_t>(4 + five.missing))).end,
            ScalerEnd::searches);
  EXPECT_THAT(trace("torch", demands(1)).about, HasSubstr("skips the only step: "));
  EXPECT_THAT(trace("deepspeed", demands(1)).about, HasSubstr("the scale is still 65536 (2^16)"));
  // 23 steps from 2^32 to below 2^8.7: more than enough to be stuck, but a scale is in reach.
  const ScalerTrace far = trace("apex-fp16-utils", demands(22));
  EXPECT_EQ(far.end, ScalerEnd::searches);
  EXPECT_EQ(far.missing, 3);
  EXPECT_EQ(trace("apex-fp16-utils", demands(25)).end, ScalerEnd::calibrates);
  // A scale that cannot fall is stuck, however short the run.
  const ScalerTrace fixed = trace("static:1024", demands(5));
  EXPECT_EQ(fixed.end, ScalerEnd::stuck);
  EXPECT_EQ(fixed.about, "skips all 5 steps: the scale stays at 1024 (2^10)");
  EXPECT_EQ(trace("deepspeed:min=1024,no-raise", demands(12)).end, ScalerEnd::stuck);
  // Nobody knows where hidden magnitudes stop to overflow.
  ScaleDemands hidden = demands(30);
  for (ScaleDemand& step : hidden.steps) {
    step.hidden = true;
    step.ceiling = 0x1p-20;
  }
  EXPECT_EQ(trace("torch", hidden).end, ScalerEnd::collapses);
  hidden.steps.resize(10);
  EXPECT_EQ(trace("torch", hidden).end, ScalerEnd::searches);
  EXPECT_EQ(trace("torch", hidden).missing, 0);
  // Hysteresis keeps the scale for a while.
  EXPECT_EQ(trace("deepspeed:hysteresis=40", demands(25)).end, ScalerEnd::searches);
}

TEST(ScalerTraces, AForwardOverflowEndsEachInItsOwnWay) {
  const ScaleDemands demands = demands_of_pattern("O", 3000);
  const ScalerTrace keras = trace("tf-keras", demands);
  EXPECT_EQ(keras.end, ScalerEnd::stuck);
  EXPECT_EQ(keras.at, 15);
  EXPECT_THAT(keras.about, HasSubstr("skips every step from step 15 on: the scale stays at 1"));
  EXPECT_EQ(keras.updates, 3000);
  const ScalerTrace deepspeed = trace("deepspeed", demands);
  EXPECT_EQ(deepspeed.end, ScalerEnd::stops);
  EXPECT_EQ(deepspeed.at, 17);
  EXPECT_EQ(deepspeed.steps, 17);
  EXPECT_THAT(deepspeed.about, HasSubstr("DeepSpeed raises at step 17"));
  EXPECT_EQ(trace("deepspeed:no-raise", demands).end, ScalerEnd::stuck);
  const ScalerTrace apex = trace("apex", demands);
  EXPECT_EQ(apex.end, ScalerEnd::stops);
  EXPECT_EQ(apex.at, 1091);
  EXPECT_THAT(apex.about, HasSubstr("apex divides by zero at step 1091"));
  EXPECT_EQ(trace("torch", demands).end, ScalerEnd::stuck) << "at 0";
  EXPECT_EQ(trace("torch", demands_of_pattern("O", 100)).end, ScalerEnd::collapses);
  EXPECT_EQ(trace("deepspeed-bf16", demands).end, ScalerEnd::stuck);
  const ScalerTrace none = trace("none", demands);
  EXPECT_EQ(none.end, ScalerEnd::nan_weights);
  EXPECT_EQ(none.at, 0);
  EXPECT_EQ(trace("apex:static=8", demands).end, ScalerEnd::nan_weights);
}

TEST(ScalerTraces, WeightsBecomeNanAfterACollapse) {
  // 144 overflows, then all is well again.
  ScaleDemands demands = demands_of_pattern(std::string(144, 'O') + std::string(56, 'F'), 0);
  const ScalerTrace torch = trace("torch", demands);
  EXPECT_EQ(torch.end, ScalerEnd::nan_weights);
  EXPECT_EQ(torch.at, 144);
  EXPECT_EQ(torch.skipped, 199) << "afterwards every gradient is NaN";
  EXPECT_THAT(torch.about, HasSubstr("whose inverse is infinite in fp32"));
  EXPECT_EQ(trace("dynamic", demands).end, ScalerEnd::stuck) << "ours skips those, too";
  const ScalerTrace keras = trace("keras3", demands);
  EXPECT_EQ(keras.end, ScalerEnd::nan_weights);
  EXPECT_THAT(keras.about, HasSubstr("0 / 0 is NaN"));
  EXPECT_TRUE(is_good(trace("keras3:backend=torch", demands).end)) << "it divides by 2^-129";
  EXPECT_TRUE(is_good(trace("tf-keras", demands).end));
  EXPECT_TRUE(is_good(trace("apex:min=1", demands).end));
}

TEST(ScalerTraces, Runaway) {
  const ScaleDemands clean = demands_of_pattern("F", 300000);
  const ScalerTrace torch = trace("torch", clean);
  EXPECT_EQ(torch.end, ScalerEnd::runaway);
  EXPECT_EQ(torch.highest, 0x1p127);
  EXPECT_EQ(trace("apex", clean).end, ScalerEnd::fits) << "at most 2^24";
  const ScalerTrace keras = trace("keras3", clean);
  EXPECT_EQ(keras.end, ScalerEnd::infinite) << "2^15 and 113 doublings";
  EXPECT_EQ(keras.at, 226000);
  EXPECT_EQ(trace("torch", demands_of_pattern("F", 20000)).end, ScalerEnd::fits);
}

TEST(ScalerTraces, LostShareIsTheMeanOfTheCurve) {
  ScaleDemands demands = demands_of_pattern("F", 4);
  demands.curves = {{.lowest = 3, .shares = {0.75, 0.25}}};
  demands.steps[1].curve = demands.steps[3].curve = 0;
  EXPECT_EQ(demands.curves[0].at(4.0), 1.0);
  EXPECT_EQ(demands.curves[0].at(8.0), 0.75);
  EXPECT_EQ(demands.curves[0].at(31.0), 0.25);
  EXPECT_EQ(demands.curves[0].at(32.0), 0.0);
  EXPECT_EQ(demands.curves[0].at(kInfinity), 0.0);
  EXPECT_EQ(demands.curves[0].at(0.0), 1.0);
  EXPECT_EQ(trace("static:8", demands).lost, 0.75);
  EXPECT_EQ(trace("torch:init=8,interval=2", demands).lost, 0.5) << "8, then 16";
  EXPECT_TRUE(std::isnan(trace("static:8", demands_of_pattern("F", 3)).lost));
}

/// A recorded network: the forward pass is not finite in the first `bad` steps, and the gradient of
/// b.weight overflows at 8.
ScaleDemands recorded(int64_t bad, int64_t steps) {
  ScaleDemands demands;
  demands.sites = {"a.weight_grad", "b.weight_grad", "c.activation"};
  demands.layers = {"a", "b", "c"};
  demands.steps.assign(static_cast<size_t>(steps), {.ceiling = 8.0, .ceiling_site = 1});
  for (int64_t i = 0; i < bad; ++i)
    demands.steps[static_cast<size_t>(i)] = {.ceiling = 0.0, .forward_site = 2};
  return demands;
}

ScalerVerdict verdict(const char* scaler, const ScaleDemands& demands,
                      const std::string& run = "") {
  const LossScalerConfig config = parse_loss_scale(scaler);
  return verdict_of(trace_scaler(config, demands), config, demands, run);
}

TEST(ScalerVerdicts, NameTheTensorThatOverflows) {
  const ScaleDemands forward = recorded(400, 400);
  const ScalerVerdict stopped = verdict("deepspeed", forward, "my run.hscope");
  EXPECT_EQ(stopped.site, "c.activation");
  EXPECT_EQ(stopped.why, "c.activation overflows in the forward pass.");
  EXPECT_EQ(stopped.advice,
            "No loss scale helps: run halfscope diagnose 'my run.hscope' to fix c.");
  EXPECT_EQ(verdict("tf-keras", forward).site, "c.activation");
  EXPECT_EQ(verdict("apex", recorded(2000, 2000)).site, "c.activation") << "it divides by 0";
  EXPECT_EQ(verdict("torch", recorded(144, 200)).site, "c.activation")
      << "which drove the scale to where its inverse is infinite";
  const ScaleDemands gradients = recorded(0, 400);
  const ScalerVerdict high = verdict("deepspeed:min=16", gradients);
  EXPECT_EQ(high.site, "b.weight_grad");
  EXPECT_THAT(high.why, HasSubstr("b.weight_grad overflows in step "));
  EXPECT_THAT(high.why, HasSubstr("unless the loss scale is at most about 8."));
  EXPECT_EQ(high.advice, "Use min=4, or keep b in fp32.");
  EXPECT_EQ(verdict("static:64", gradients).advice,
            "Use a dynamic scale or static:4, or keep b in fp32.");
  EXPECT_EQ(verdict("apex:static=64", gradients).site, "b.weight_grad") << "it never skips";
  EXPECT_EQ(verdict("torch", gradients).why, "") << "a good end";
}

TEST(ScalerVerdicts, SayWhatAShortRunNeeds) {
  const ScaleDemands gradients = recorded(0, 6);
  const ScalerVerdict short_run = verdict("torch", gradients, "r.hscope");
  EXPECT_EQ(short_run.site, "b.weight_grad");
  EXPECT_EQ(short_run.why,
            "b.weight_grad overflows in step 0 unless the loss scale is at most about 8.");
  EXPECT_EQ(short_run.advice, "Train at least 9 steps longer, or start at init=4.");
  EXPECT_TRUE(is_good(trace("torch", recorded(0, 6 + 9)).end));
  EXPECT_TRUE(is_good(trace("torch:init=4", gradients).end));
  EXPECT_THAT(verdict("torch", recorded(6, 6), "r.hscope").advice,
              HasSubstr("No loss scale helps: run halfscope diagnose r.hscope to fix c."));
  ScaleDemands hidden = gradients;
  for (ScaleDemand& step : hidden.steps)
    step = {.ceiling = 64.0, .ceiling_site = 1, .hidden = true};
  EXPECT_EQ(verdict("torch", hidden).why,
            "b.weight_grad overflows in step 0 even at the run's own loss scale, 64 (2^6).");
}

TEST(ScalerVerdicts, NanNeedsMoreThanALossScale) {
  ScaleDemands demands = recorded(0, 40);
  for (ScaleDemand& step : demands.steps) step = {.ceiling = 0.0, .nan_site = 0};
  const ScalerVerdict nan = verdict("torch", demands, "r.hscope");
  EXPECT_EQ(nan.site, "a.weight_grad");
  EXPECT_EQ(nan.why, "a.weight_grad is NaN in step 0, though no gradient overflows.");
  EXPECT_EQ(
      nan.advice,
      "No loss scale helps: run halfscope diagnose r.hscope to find where the NaN comes from.");
  demands = recorded(40, 40);
  for (ScaleDemand& step : demands.steps) step.forward_nan = true;
  EXPECT_EQ(verdict("torch", demands).why, "c.activation is NaN in the forward pass.");
  demands = demands_of_pattern("F", 40);
  demands.loss_lost = 7;
  EXPECT_EQ(verdict("torch", demands, "r.hscope").why,
            "But the loss is NaN or infinite in step 7.");
  EXPECT_THAT(verdict("torch", demands, "r.hscope").advice,
              HasSubstr("halfscope diagnose r.hscope"));
}

/// Following the advice gives a good end.
TEST(ScalerVerdicts, AdviceWorks) {
  const ScaleDemands gradients = recorded(0, 400);
  EXPECT_FALSE(is_good(trace("deepspeed:min=16", gradients).end));
  EXPECT_TRUE(is_good(trace("deepspeed:min=4", gradients).end));
  EXPECT_FALSE(is_good(trace("static:64", gradients).end));
  EXPECT_TRUE(is_good(trace("static:4", gradients).end));
  ScaleDemands small = gradients;
  for (ScaleDemand& step : small.steps) step.ceiling = 0.25;
  EXPECT_FALSE(is_good(trace("tf-keras", small).end));
  EXPECT_THAT(verdict("tf-keras", small).advice,
              HasSubstr("Use a scaler that goes below 1, such as torch"));
  EXPECT_TRUE(is_good(trace("torch", small).end));
  const ScaleDemands clean = demands_of_pattern("F", 300000);
  EXPECT_EQ(verdict("torch", clean).advice, "Use a fixed one: static:65536.");
  EXPECT_TRUE(is_good(trace("static:65536", clean).end));
}

TEST(ScalerTraces, LimitingSites) {
  ScaleDemands demands;
  demands.sites = {"a", "b", "c"};
  demands.steps = {{.ceiling = 8.0, .floor = 0.5, .ceiling_site = 1, .floor_site = 2},
                   {.ceiling = 4.0, .floor = 2.0, .ceiling_site = 1, .floor_site = 2},
                   {.ceiling = 16.0, .ceiling_site = 0},
                   {.ceiling = 0.0}};
  const std::vector<LimitSite> ceilings = limiting_sites(demands, true);
  ASSERT_EQ(ceilings.size(), 2u);
  EXPECT_EQ(ceilings[0].site, "b");
  EXPECT_EQ(ceilings[0].steps, 2);
  EXPECT_EQ(ceilings[0].tightest, 4.0);
  EXPECT_EQ(limiting_sites(demands, false)[0].tightest, 2.0);
}

TEST(ScalerTraces, MadeUpTrajectories) {
  for (const std::string& name : gradient_shapes()) {
    EXPECT_EQ(gradient_shape(name, 100).size(), 100u) << name;
  }
  EXPECT_GT(gradient_shape("rising", 100).back().largest, 100.0);
  EXPECT_TRUE(std::isinf(gradient_shape("broken", 100).back().largest));
  EXPECT_EQ(demands_of(gradient_shape("broken", 100), kFp16).steps.back().ceiling, 0.0);
  EXPECT_THROW(gradient_shape("waves", 10), Error);
  EXPECT_THROW(demands_of_pattern("FFX", 0), Error);
  EXPECT_THROW(demands_of_pattern("", 5), Error);
}

TEST(ScalerTraces, ReadsTables) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("halfscope-gradients-" + std::to_string(::getpid()));
  const auto read = [&](const char* text) {
    std::ofstream(file) << text;
    return read_gradient_ranges(file.string());
  };
  const std::vector<GradientRange> rows = read("largest,smallest\n0.5,1e-6\n\n3\r\ninf,0\nnan\n");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].smallest, 1e-6);
  EXPECT_EQ(rows[1].largest, 3.0);
  EXPECT_EQ(rows[1].smallest, 0.0);
  EXPECT_TRUE(std::isinf(rows[2].largest));
  EXPECT_TRUE(std::isnan(rows[3].largest));
  for (const char* bad : {"", "largest\n", "1,2\n", "1\nx\n", "-1\n", "1,2,3\n"}) {
    EXPECT_THROW(read(bad), Error) << bad;
  }
  std::filesystem::remove(file);
  EXPECT_THROW(read_gradient_ranges(file.string()), Error);
}

TEST(ScalerTraces, AMillionStepsTakeLessThanASecond) {
  const ScaleDemands demands = demands_of(gradient_shape("spikes", 1000000), kFp16);
  const auto start = std::chrono::steady_clock::now();
  int64_t skipped = 0;
  for (const LossScalerConfig& scaler : usual_scalers()) {
    skipped += trace_scaler(scaler, demands).skipped;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  EXPECT_GT(skipped, 0);
  EXPECT_LT(spent.count(), 1.0);
}

}  // namespace
}  // namespace halfscope
