// SPDX-License-Identifier: MIT
// optimizer_state and unsafe_buffers on runs whose fault is known by construction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/diagnosis/diagnosis.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "tests/report/capture.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<Finding> of_rule(const RunView& run, const std::string& rule) {
  std::vector<Finding> found;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == rule) found.push_back(finding);
  }
  return found;
}

/// Everything in fp16 with optimizer state around 2^-28, most of which is flushed to zero, and
/// updates of 2^3 where full precision has updates of 2^-12.
RunSpec flushed_spec() {
  RunSpec spec = healthy_spec();
  spec.lanes[0].state = -28.0;
  spec.lanes[1] = {.name = "float16", .format = kFp16, .storage = kFp16, .loss_scale = 16384.0};
  spec.lanes[1].state = -28.0;
  spec.lanes[1].update = spec.lanes[1].late_update = 3.0;
  return spec;
}

TEST(OptimizerState, FlushedBesideUpdatesOutOfProportion) {
  const RunView run = make_run(flushed_spec());
  const auto state = of_rule(run, "optimizer_state");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].lane, 1);
  EXPECT_EQ(state[0].severity, Severity::error);
  EXPECT_THAT(state[0].site, testing::EndsWith(".weight_adam_v"));
  EXPECT_EQ(state[0].layer + ".weight_adam_v", state[0].site);
  EXPECT_EQ(state[0].step, 0);
  EXPECT_GT(std::get<double>(state[0].evidence.at("flushed_share")), 0.9);
  EXPECT_EQ(std::get<std::string>(state[0].evidence.at("storage")), "fp16");
  EXPECT_STREQ(action_name(state[0].action.edit), "format");
  EXPECT_THAT(state[0].action.layers, ElementsAre("conv1", "conv2", "fc1", "fc2"));
  EXPECT_THAT(state[0].text, HasSubstr("The largest update in fp32 is"));
  const auto advice = recommend(run, run_rules(run), 1);
  ASSERT_TRUE(advice);
  EXPECT_TRUE(advice->edit.fp32_layers().empty());
  EXPECT_EQ(nlohmann::json::parse(advice->plan_json)["variables"]["storage"], "fp32");
}

TEST(OptimizerState, NamesTheStepItBeginsAt) {
  RunSpec spec = flushed_spec();
  spec.lanes[1].update = -12.0;  // flushed from the start, but harmless until step 10
  const auto state = of_rule(make_run(spec), "optimizer_state");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].step, 10);
  EXPECT_THAT(state[0].text, HasSubstr("at step 10"));
}

TEST(OptimizerState, IsSilentWithoutHarm) {
  RunSpec harmless = flushed_spec();  // like a momentum, whose small values do not matter
  harmless.lanes[1].update = harmless.lanes[1].late_update = -12.0;
  EXPECT_TRUE(of_rule(make_run(harmless), "optimizer_state").empty());

  RunSpec fits = flushed_spec();  // nothing is flushed: the updates have another cause
  fits.lanes[1].state = -8.0;
  EXPECT_TRUE(of_rule(make_run(fits), "optimizer_state").empty());

  RunSpec wide = flushed_spec();
  wide.lanes[1].storage = kFp32;
  EXPECT_TRUE(of_rule(make_run(wide), "optimizer_state").empty());

  // Late in training updates are next to nothing in both lanes: a multiple of that is not much.
  RunSpec late = flushed_spec();
  late.lanes[0].late_update = -40.0;
  late.lanes[1].update = late.lanes[1].late_update = -12.0;
  EXPECT_TRUE(of_rule(make_run(late), "optimizer_state").empty());
}

TEST(OptimizerState, WithoutAReferenceItsUpdatesMustExceedTheWeights) {
  RunSpec spec = flushed_spec();
  spec.lanes.erase(spec.lanes.begin());
  const auto state = of_rule(make_run(spec), "optimizer_state");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_THAT(state[0].text, Not(HasSubstr("of fp32")));
  spec.lanes[0].update = spec.lanes[0].late_update = -8.0;
  EXPECT_TRUE(of_rule(make_run(spec), "optimizer_state").empty());
}

TEST(OptimizerState, OverflowIsEnough) {
  RunSpec spec = flushed_spec();
  spec.lanes[1].state = 17.0;
  spec.lanes[1].update = spec.lanes[1].late_update = -12.0;
  const auto state = of_rule(make_run(spec), "optimizer_state");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].severity, Severity::error);
  EXPECT_EQ(state[0].step, 0);
  EXPECT_THAT(state[0].text, HasSubstr("fp32 can represent it"));
  EXPECT_STREQ(action_name(state[0].action.edit), "format");
}

// Without loss scaling every step is taken: results after an overflow say nothing about the state's
// format.
TEST(OptimizerState, WhatFollowsAnOverflowIsNoCause) {
  RunSpec spec = flushed_spec();
  layer_of(spec, "conv2").activation = 17.0;
  spec.lanes[1].dynamic = false;
  const RunView run = make_run(spec);
  EXPECT_TRUE(of_rule(run, "optimizer_state").empty());
  const auto overflow = of_rule(run, "forward_overflow");
  ASSERT_EQ(overflow.size(), 1u);
  EXPECT_EQ(overflow[0].severity, Severity::error);
}

/// One step of hand-made statistics after the other, in the lane float16 of flushed_spec().
class ByHand {
 public:
  ByHand() : run_(make_run(flushed_spec()).info(), RunStatus::complete) {}
  void step(int64_t step, double loss, bool skipped = false) {
    run_.add_step(1, {.step = step, .loss = loss, .loss_scale = 1024.0, .skipped = skipped});
  }
  void stats(int64_t step, const std::string& site, const TensorStats& stats) {
    run_.add_window(1, run_.find_site(1, site).value(), {.step = step, .stats = stats});
  }
  const RunView& run() const { return run_; }

 private:
  RunView run_;
};

constexpr TensorStats kFlushed{.n = 4, .underflow = 3, .max_abs = 1e-6f};
constexpr TensorStats kHuge{.n = 4, .max_abs = 100.0f};
constexpr TensorStats kOverflow{.n = 4, .overflow = 2, .max_abs = 1e6f};
constexpr TensorStats kFine{.n = 4, .max_abs = 1.0f};

TEST(OptimizerState, ConsequencesAreDemotedAndWhatCameBeforeIsNot) {
  const auto made = [](int64_t overflow_step) {
    ByHand run;
    for (int64_t step = 0; step < 6; ++step) {
      const bool overflows = step == overflow_step;
      run.step(step, overflows ? NAN : 1.0, overflows);
      if (overflows) {
        run.stats(step, "conv2.activation", kOverflow);
        continue;
      }
      run.stats(step, "conv2.activation", kFine);
      run.stats(step, "fc1.weight_adam_v", kFlushed);
      run.stats(step, "fc1.weight_update", step < 3 ? kFine : kHuge);
    }
    return run;
  };
  const ByHand after = made(4);
  const auto state = of_rule(after.run(), "optimizer_state");
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].step, 3);
  EXPECT_EQ(state[0].site, "fc1.weight_adam_v");
  const auto consequence = of_rule(after.run(), "forward_overflow");
  ASSERT_EQ(consequence.size(), 1u);
  EXPECT_EQ(consequence[0].severity, Severity::info);
  EXPECT_STREQ(action_name(consequence[0].action.edit), "none");
  EXPECT_THAT(consequence[0].action.text, HasSubstr("Caused by the optimizer state above"));
  const auto advice = recommend(after.run(), run_rules(after.run()), 1);
  ASSERT_TRUE(advice);
  EXPECT_TRUE(advice->edit.fp32_layers().empty());
  EXPECT_EQ(nlohmann::json::parse(advice->plan_json)["variables"]["storage"], "fp32");

  const ByHand before = made(1);
  const auto cause = of_rule(before.run(), "forward_overflow");
  ASSERT_EQ(cause.size(), 1u);
  EXPECT_EQ(cause[0].severity, Severity::error);
  EXPECT_THAT(recommend(before.run(), run_rules(before.run()), 1)->edit.fp32_layers(),
              ElementsAre("conv2"));
}

/// A lane with a running mean that ends as its plan lets it.
RunView buffers(const std::string& commit, bool skipped, const TensorStats& mean,
                const FloatFormat& format = kFp32, const std::string& backend = "emulated") {
  RunInfo info = make_run(healthy_spec()).info();
  LaneInfo& lane = info.lanes[1];
  lane.backend = backend;
  auto plan = nlohmann::ordered_json::parse(lane.plan_json);
  if (!commit.empty()) plan["variables"]["buffers"] = commit;
  lane.plan_json = plan.dump();
  SiteInfo site{.path = "conv2",
                .tensor = "running_mean",
                .role = Role::state,
                .phase = Phase::forward,
                .op = "BatchNormalization",
                .format = format,
                .shape = {4}};
  site.order = static_cast<int>(lane.sites.size());
  lane.sites.push_back(site);
  RunView run(std::move(info), RunStatus::complete);
  for (int64_t step = 0; step < 3; ++step) {
    const bool bad = step == 1 && skipped;
    run.add_step(1, {.step = step, .loss = 1.0, .loss_scale = 1024.0, .skipped = bad});
    run.add_window(1, site.order, {.step = step, .stats = step == 0 ? kFine : mean});
  }
  return run;
}

TEST(UnsafeBuffers, ASkippedStepLeavesItsInfinities) {
  const TensorStats spoiled{.n = 4, .pos_inf = 1, .max_abs = 1.0f};
  const auto found = of_rule(buffers("always", true, spoiled), "unsafe_buffers");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].layer, "conv2");
  EXPECT_EQ(found[0].site, "conv2.running_mean");
  EXPECT_EQ(found[0].step, 1);
  EXPECT_THAT(found[0].text,
              HasSubstr("step 1 was skipped, but the forward pass had already updated"));
  EXPECT_THAT(found[0].action.layers, ElementsAre("conv2"));

  EXPECT_TRUE(of_rule(buffers("on_step", true, spoiled), "unsafe_buffers").empty());
  EXPECT_TRUE(of_rule(buffers("", true, spoiled), "unsafe_buffers").empty());
  EXPECT_TRUE(of_rule(buffers("always", false, spoiled), "unsafe_buffers").empty())
      << "no step was skipped: the loss tells";
  EXPECT_TRUE(of_rule(buffers("always", true, kFine), "unsafe_buffers").empty());
}

// A variance of 250,000 in fp16. No step is skipped, and training does not read it.
TEST(UnsafeBuffers, StatisticsAreLargerThanTheirFormat) {
  const TensorStats large{.n = 4, .overflow = 2, .max_abs = 250000.0f};
  const auto found = of_rule(buffers("", false, large, kFp16), "unsafe_buffers");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].cause, Mechanism::forward_overflow);
  EXPECT_EQ(found[0].mechanism,
            "conv2.running_mean reaches 250000, but the largest fp16 number is 65504");
  EXPECT_THAT(found[0].action.edit.fp32_layers(), ElementsAre("conv2"));
  EXPECT_TRUE(of_rule(buffers("", false, kFine, kFp16), "unsafe_buffers").empty());
}

// The same as PyTorch's tensors show it: only that the variance is infinite.
TEST(UnsafeBuffers, CapturedStatisticsAreInfiniteAlthoughTheForwardPassIsFinite) {
  const TensorStats infinite{.n = 4, .pos_inf = 4};
  const RunView run = buffers("always", false, infinite, kFp16, "pytorch");
  const auto found = of_rule(run, "unsafe_buffers");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].cause, Mechanism::forward_overflow);
  EXPECT_EQ(found[0].step, 1);
  EXPECT_EQ(found[0].mechanism,
            "conv2.running_mean is infinite: it is larger than 65504, the largest fp16 number");
  EXPECT_THAT(found[0].text, HasSubstr("every evaluation does"));
  const Diagnosis diagnosis = diagnose(run, run_rules(run), 1, {}, {});
  ASSERT_EQ(diagnosis.root.size(), 1u);
  EXPECT_TRUE(diagnosis.chain.empty()) << "no layer reads it in training";
  EXPECT_THAT(found[0].action.edit.fp32_layers(), ElementsAre("conv2"));

  const RunView wide = buffers("always", false, infinite, kFp32, "pytorch");
  EXPECT_TRUE(of_rule(wide, "unsafe_buffers").empty());
  const RunView lost = changed(
      run, [](const SiteInfo&, TensorStats&) {},
      [](StepRow& row) { row.loss = row.step == 1 ? std::nan("") : row.loss; });
  EXPECT_TRUE(of_rule(lost, "unsafe_buffers").empty()) << "the step was not finite anyway";
  RunView earlier = run;
  const int conv2 = run.find_site(1, "conv2.activation").value();
  earlier.add_window(1, conv2, {.step = 0, .stats = {.n = 4, .pos_inf = 1}});
  EXPECT_TRUE(of_rule(earlier, "unsafe_buffers").empty()) << "they read an infinity";
}

TEST(UnsafeBuffers, ASkippedStepThatNobodyRecordedIsSuspect) {
  RunView run = buffers("always", true, kFine);
  run.add_step(1, {.step = 3, .loss = 1.0, .loss_scale = 1024.0, .skipped = true});
  const auto found = of_rule(run, "unsafe_buffers");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_EQ(found[0].step, 3);
  EXPECT_THAT(found[0].text, HasSubstr("1 step was skipped (first: step 3)"));
  RunView safe = buffers("on_step", true, kFine);
  safe.add_step(1, {.step = 3, .loss = 1.0, .loss_scale = 1024.0, .skipped = true});
  EXPECT_TRUE(of_rule(safe, "unsafe_buffers").empty());
}

}  // namespace
}  // namespace halfscope::test
