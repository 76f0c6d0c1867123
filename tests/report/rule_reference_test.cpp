// SPDX-License-Identifier: MIT
// Rules next to a full-precision lane that does no better, and the words that fit each optimizer
// and loss scale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/rules/rules.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<Finding> found_by(const RunView& run, const std::string& rule) {
  std::vector<Finding> found;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == rule) found.push_back(finding);
  }
  return found;
}

void add_sums(RunView& run, int lane, const std::string& site, double share,
              const std::string& accumulation) {
  SiteSums row{.step = 3, .site = run.find_site(lane, site).value(), .layer = "fc1"};
  row.accumulation = parse_accumulation(accumulation).value();
  row.counts = {.sums = 100, .products = 50000, .largest = 300.0};
  row.counts.swamped = static_cast<int64_t>(share * 50000.0);
  run.add_sums(lane, row);
}

// Tails of a softmax: the terms are too small for fp32, too.
TEST(SwampedBesideFp32, OnlyWhatFp32KeepsCounts) {
  for (const double theirs : {0.0, 0.15, 0.35}) {
    RunView run = make_run(healthy_spec());
    add_sums(run, 0, "fc1.activation", theirs, "fp32");
    add_sums(run, 1, "fc1.activation", 0.4, "format");
    const std::vector<Finding> found = found_by(run, "swamped_additions");
    ASSERT_EQ(found.size(), theirs > 0.3 ? 0u : 1u) << theirs;
    if (found.empty()) continue;
    EXPECT_EQ(found[0].lane, 1);
    EXPECT_NEAR(std::get<double>(found[0].evidence.at("worst_excess_share")), 0.4 - theirs, 1e-9);
    EXPECT_EQ(found[0].text.find("The fp32 lane loses 15% there.") != std::string::npos,
              theirs > 0.0);
  }
}

TEST(SwampedBesideFp32, SumsInFp32NeedAReferenceThatLosesLess) {
  for (const char* wide : {"fp32", "tensor-core:h100"}) {
    RunView alone = make_run(healthy_spec());
    add_sums(alone, 1, "fc1.activation", 0.9, wide);
    EXPECT_THAT(found_by(alone, "swamped_additions"), IsEmpty());
    add_sums(alone, 0, "fc1.activation", 0.9, "fp32");
    EXPECT_THAT(found_by(alone, "swamped_additions"), IsEmpty()) << "nor on float32 itself";
  }
  RunView worse = make_run(healthy_spec());
  add_sums(worse, 0, "fc1.activation", 0.01, "fp32");
  add_sums(worse, 1, "fc1.activation", 0.3, "tensor-core:h100");
  const std::vector<Finding> found = found_by(worse, "swamped_additions");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].action.text, Not(HasSubstr("wider")));
}

// One rounding in fp16 changes at most 2^-11: an output that close to the exact sum lost nothing.
TEST(SwampedBesideFp32, AResultThatIsRightLostNothing) {
  for (const double error : {0x1p-11, 0x1p-5}) {
    RunView run = make_run(healthy_spec());
    add_sums(run, 1, "fc1.activation", 0.4, "format");
    SiteError measured{.step = 3, .site = run.find_site(1, "fc1.activation").value()};
    measured.local_fp32 = measured.local_fp64 = error;
    run.add_error(1, measured);
    EXPECT_EQ(found_by(run, "swamped_additions").size(), error > 0x1p-9 ? 1u : 0u);
  }
}

/// Both lanes with the same small updates, in bf16 and in fp32.
RunSpec narrow_weights(double update) {
  RunSpec spec = healthy_spec();
  spec.lanes[0].update = spec.lanes[0].late_update = update;
  spec.lanes[1] = {
      .name = "bfloat16", .format = kBf16, .storage = kBf16, .loss_scale = 1.0, .dynamic = false};
  spec.lanes[1].update = spec.lanes[1].late_update = update;
  return spec;
}

TEST(UpdatesBesideFp32, WhatFp32LosesAsWellDoesNotCount) {
  // Weights are around 1: bf16 keeps updates from 2^-8 on, fp32 from 2^-24 on.
  EXPECT_EQ(found_by(make_run(narrow_weights(-12.0)), "lost_updates").size(), 1u);
  EXPECT_THAT(found_by(make_run(narrow_weights(-40.0)), "lost_updates"), IsEmpty());
  RunSpec alone = narrow_weights(-40.0);
  alone.lanes.erase(alone.lanes.begin());
  EXPECT_EQ(found_by(make_run(alone), "lost_updates").size(), 1u);
}

TEST(UpdatesBesideFp32, ALossScaleIsMentionedWhereThereIsOne) {
  RunSpec spec = narrow_weights(-12.0);
  const std::string plain = found_by(make_run(spec), "lost_updates").at(0).text;
  EXPECT_THAT(plain, Not(HasSubstr("loss scale")));
  spec.lanes[1].loss_scale = 1024.0;
  EXPECT_THAT(
      found_by(make_run(spec), "lost_updates").at(0).text,
      HasSubstr("A loss scale does not help, because it is divided out before the update."));
}

/// Gradients so small that fp16 flushes most of them at a scale of 1.
RunSpec tiny_gradients() {
  RunSpec spec = healthy_spec();
  for (LayerSpec& layer : spec.layers) layer.gradient = -26.0;
  spec.lanes[1].loss_scale = 1.0;
  spec.lanes[1].dynamic = false;
  return spec;
}

TEST(GradientsBesideFp32, ThoseWhoseUpdatesFp32LosesDoNotCount) {
  RunSpec spec = tiny_gradients();
  const std::vector<Finding> found = found_by(make_run(spec), "gradient_underflow");
  EXPECT_FALSE(found.empty());
  for (const Finding& each : found) {
    EXPECT_THAT(each.text, AllOf(HasSubstr("without loss scaling"), HasSubstr("2^-25 or smaller")));
    EXPECT_THAT(each.mechanism, testing::StartsWith(each.layer + " underflows fp16: "));
  }
  spec.lanes[0].update = spec.lanes[0].late_update = -40.0;
  EXPECT_THAT(found_by(make_run(spec), "gradient_underflow"), IsEmpty());
  EXPECT_THAT(found_by(make_run(spec), "loss_scale_window"), IsEmpty());
}

// A bias whose gradient is zero is the sum of numbers that cancel: what is left is rounding.
TEST(GradientsBesideFp32, RoundingErrorsOfAZeroSumDoNotCount) {
  for (const double noise : {-5.0, -40.0}) {
    RunInfo info = make_run(tiny_gradients()).info();
    RunView run(info, RunStatus::complete);
    const auto window = [&](int lane, const std::string& name, double magnitude) {
      const std::vector<float> values(64, static_cast<float>(std::exp2(magnitude)));
      std::vector<float> rounded(64);
      const int site = run.find_site(lane, name).value();
      const FloatFormat& format = run.lane(lane).sites[static_cast<size_t>(site)].format;
      run.add_window(lane, site, {.step = 0, .stats = measure(values, rounded, format)});
    };
    for (int lane = 0; lane < 2; ++lane) {
      run.add_step(lane, {.step = 0, .loss = 1.0});
      window(lane, "pool1.activation", 0.0);
      window(lane, "conv2.activation_grad", -4.0);
    }
    window(0, "conv2.weight_grad", noise);
    window(1, "conv2.weight_grad", -30.0);  // all flushed
    EXPECT_EQ(found_by(run, "gradient_underflow").size(), noise < -20.0 ? 0u : 1u);
  }
}

TEST(StateBesideFp32, OnlyStateThatStepsAreDividedByMakesThemTooLarge) {
  RunSpec spec = healthy_spec();
  spec.lanes[0].state = -28.0;
  spec.lanes[1] = {.name = "float16", .format = kFp16, .storage = kFp16, .loss_scale = 16384.0};
  spec.lanes[1].state = -28.0;
  spec.lanes[1].update = spec.lanes[1].late_update = 3.0;
  const RunView adam = make_run(spec);
  ASSERT_EQ(found_by(adam, "optimizer_state").size(), 1u);
  EXPECT_THAT(found_by(adam, "optimizer_state")[0].text, HasSubstr("divided by its square root"));
  // The same numbers as the momentum of SGD.
  RunInfo info = adam.info();
  for (LaneInfo& lane : info.lanes) {
    for (SiteInfo& site : lane.sites) {
      if (site.tensor == "weight_adam_v") site.tensor = "weight_momentum";
    }
  }
  RunView sgd(info, RunStatus::complete);
  for (int lane = 0; lane < 2; ++lane) {
    for (const StepRow& row : adam.steps(lane)) sgd.add_step(lane, row);
    for (const SiteInfo& site : info.lanes[static_cast<size_t>(lane)].sites) {
      for (const PackedWindow& window : adam.windows(lane, site.order)) {
        sgd.add_window(lane, site.order, window);
      }
    }
  }
  EXPECT_THAT(found_by(sgd, "optimizer_state"), IsEmpty());
}

// v is flushed in the first step, and 500 times too large from then on: nothing is flushed any
// more.
TEST(StateBesideFp32, WhatTheStateIsLikeAfterTheBlowUpDoesNotCount) {
  RunSpec spec = healthy_spec();
  spec.lanes[0].state = -8.0;
  spec.lanes[1] = {.name = "float16", .format = kFp16, .storage = kFp16, .loss_scale = 16384.0};
  spec.lanes[1].state = -8.0;
  const RunView made = make_run(spec);
  RunView run(made.info(), RunStatus::complete);
  const int state = run.find_site(1, "fc1.weight_adam_v").value();
  const int update = run.find_site(1, "fc1.weight_update").value();
  for (int64_t step = 0; step < 200; ++step) {
    run.add_step(1, {.step = step, .loss = 1.0});
    const TensorStats flushed{.n = 4, .underflow = step == 0 ? 2 : 0, .max_abs = 1.0f};
    run.add_window(1, state, {.step = step, .stats = flushed});
    run.add_window(1, update, {.step = step, .stats = {.n = 4, .max_abs = 500.0f}});
  }
  const std::vector<Finding> found = found_by(run, "optimizer_state");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(std::get<double>(found[0].evidence.at("judged_flushed_share")), 0.5);
  EXPECT_THAT(found[0].mechanism,
              HasSubstr("50% of the non-zero values of fc1.weight_adam_v become 0 at step 0 "
                        "(0.25% over the run), and updates reach 500"))
      << "2 of 4 in step 0, 2 of 800 in all";
}

TEST(StateBesideFp32, AdviceNamesTheSettingThatKeepsItNarrow) {
  RunSpec spec = healthy_spec();
  spec.lanes[1] = {.name = "float16", .format = kFp16, .storage = kFp16, .loss_scale = 16384.0};
  spec.lanes[1].state = 17.0;
  const RunView made = make_run(spec);
  EXPECT_TRUE(found_by(made, "optimizer_state").at(0).action.edit.has(FixKind::weights_fp32));
  RunInfo info = made.info();
  auto plan = nlohmann::ordered_json::parse(info.lanes[1].plan_json);
  plan["variables"]["storage"] = "fp32";  // weights are in fp32 already
  info.lanes[1].plan_json = plan.dump();
  RunView state(info, RunStatus::complete);
  for (const SiteInfo& site : info.lanes[1].sites) {
    for (const PackedWindow& window : made.windows(1, site.order)) {
      state.add_window(1, site.order, window);
    }
  }
  const Finding finding = found_by(state, "optimizer_state").at(0);
  EXPECT_TRUE(finding.action.edit.empty());
  EXPECT_THAT(finding.action.text, HasSubstr("--optimizer-state"));
}

/// The lane mixed_float16 with these scales; negative ones were skipped because of fc2's gradient.
RunView scales(const std::vector<double>& steps, const char* setting = "dynamic:65536") {
  RunInfo info = make_run(healthy_spec()).info();
  info.lanes[1].loss_scale = setting;
  RunView run(std::move(info), RunStatus::complete);
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t step = static_cast<int64_t>(i);
    const bool skipped = steps[i] < 0.0;
    run.add_step(
        1, {.step = step, .loss = 1.0, .loss_scale = std::fabs(steps[i]), .skipped = skipped});
    TensorStats stats{.n = 4, .max_abs = 1.0f};
    if (skipped) stats = {.n = 4, .overflow = 1, .max_abs = 131072.0f};
    run.add_window(1, run.find_site(1, "fc2.activation_grad").value(),
                   {.step = step, .stats = stats});
  }
  return run;
}

TEST(Calibration, SkipsThatDynamicScalingNeedsAreRemarks) {
  std::vector<double> start;
  for (int step = 0; step < 20; ++step)
    start.push_back(std::ldexp(step < 8 ? -1 : 1, 16 - std::min(step, 8)));
  std::vector<double> probes;  // grows every third step, and comes down at once
  for (int step = 0; step < 300; ++step) probes.push_back(step % 4 == 3 ? -2048.0 : 1024.0);
  for (const std::vector<double>& steps : {start, probes, std::vector<double>{-65536.0, 32768.0},
                                           std::vector<double>{1024.0, 1024.0, -2048.0}}) {
    const RunView run = scales(steps);
    EXPECT_EQ(found_by(run, "first_non_finite").at(0).severity, Severity::info) << steps.size();
  }
  EXPECT_THAT(found_by(scales(probes), "first_non_finite")[0].text,
              HasSubstr("75 of 300 steps were skipped. This is normal"));
}

// The skips of the start are not late, however many they are.
TEST(Calibration, OnlyLateSkipsAreCalledLate) {
  std::vector<double> steps;
  for (int step = 0; step < 200; ++step) {
    steps.push_back(std::ldexp(step < 8 || step == 100 ? -1 : 1, 16 - std::min(step, 8)));
  }
  EXPECT_THAT(found_by(scales(steps), "first_non_finite")[0].text,
              HasSubstr("9 of 200 steps were skipped, 1 of them long after the start of dynamic"));
  for (int step = 0; step < 8; ++step) steps[static_cast<size_t>(step)] = 256.0;
  EXPECT_THAT(found_by(scales(steps), "first_non_finite")[0].text,
              HasSubstr("1 of 200 steps was skipped, long after the start of dynamic"));
}

TEST(Calibration, AScaleThatDoesNotSettleIsAWarning) {
  std::vector<double> down;  // never grows, and comes down again and again
  for (int step = 0; step < 300; ++step) {
    down.push_back(std::ldexp(step % 10 == 9 ? -1.0 : 1.0, 30 - step / 10));
  }
  const Finding finding = found_by(scales(down), "first_non_finite").at(0);
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.text, HasSubstr("the loss scale does not settle"));
}

// The failure that ends a run is not the skip at its beginning, which was overcome.
TEST(Calibration, IsNotWhereALaterFailureStarts) {
  RunInfo info = make_run(healthy_spec()).info();
  info.lanes[1].loss_scale = "dynamic:65536";
  RunView run(std::move(info), RunStatus::complete);
  for (int64_t step = 0; step < 8; ++step) {
    run.add_step(1, {.step = step,
                     .loss = step < 5 ? 1.0 : NAN,
                     .loss_scale = step < 1 ? 65536.0 : 32768.0,
                     .skipped = step == 0 || step >= 5});
  }
  const auto window = [&](int64_t step, const char* site, const TensorStats& stats) {
    run.add_window(1, run.find_site(1, site).value(), {.step = step, .stats = stats});
  };
  window(0, "fc2.activation_grad", {.n = 4, .overflow = 1, .max_abs = 1e6f});
  for (int64_t step = 1; step < 5; ++step) window(step, "fc2.activation_grad", {.n = 4});
  window(4, "fc1.weight_update", {.n = 4, .nan = 1});
  for (int64_t step = 5; step < 8; ++step) window(step, "fc1.weight", {.n = 4, .nan = 1});
  const Finding finding = found_by(run, "first_non_finite").at(0);
  EXPECT_EQ(finding.severity, Severity::error);
  EXPECT_EQ(finding.site, "fc1.weight_update");
  EXPECT_EQ(finding.step, 4);
}

// fp16 ends at 65504: a scale of 65536 that is read in it is infinite, and the gradients with it.
TEST(Calibration, ALossScaleBeyondTheFormatIsAMatterOfTheScale) {
  for (const bool dynamic : {true, false}) {
    RunInfo info = make_run(healthy_spec()).info();
    LaneInfo& lane = info.lanes[1];
    lane.loss_scale = dynamic ? "dynamic:65536" : "static:65536";
    SiteInfo scale{.path = "loss",
                   .tensor = "loss_scale",
                   .role = Role::input,
                   .op = "Mul",
                   .format = kFp16,
                   .shape = {}};
    scale.order = static_cast<int>(lane.sites.size());
    lane.sites.push_back(scale);
    RunView run(std::move(info), RunStatus::complete);
    for (int64_t step = 0; step < 40; ++step) {
      const bool skipped = !dynamic || step == 0;
      run.add_step(1, {.step = step,
                       .loss = 1.0,
                       .loss_scale = skipped ? 65536.0 : 32768.0,
                       .skipped = skipped});
      run.add_window(
          1, scale.order,
          {.step = step, .stats = {.n = 1, .overflow = skipped ? 1 : 0, .max_abs = 65536.0f}});
    }
    EXPECT_THAT(found_by(run, "forward_overflow"), IsEmpty());
    const Finding finding = found_by(run, "first_non_finite").at(0);
    EXPECT_EQ(finding.severity, dynamic ? Severity::info : Severity::warning);
    if (dynamic) continue;
    EXPECT_EQ(finding.action.edit.loss_scale(), 16384.0) << "one power of two to spare";
  }
}

}  // namespace
}  // namespace halfscope::test
