// SPDX-License-Identifier: MIT
// Steps that a device decides on its own and reports late equal the emulator's, step by step.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/models/models.h"
#include "core/policy/policy.h"
#include "tests/gpu/lockstep.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: trainings of these tests

class StepQueues : public OnCandidate {
 protected:
  /// Trains on the emulator and on the candidate, and compares everything that they report.
  static void expect_the_emulators(const TrainConfig& config, const Dataset& dataset) {
    TrainConfig other = config;
    for (LaneConfig& lane : other.lanes) lane.backend = &candidate();
    const Result expected = train(config, dataset), actual = train(other, dataset);
    expect_same_steps(expected.seen, actual.seen);
    EXPECT_TRUE(expected.seen.stats == actual.seen.stats);
    for (size_t i = 0; i < expected.seen.rows.size(); ++i) {
      const StepRow &a = expected.seen.rows[i], &b = actual.seen.rows[i];
      EXPECT_EQ(b.step, a.step);
      EXPECT_EQ(b.learning_rate, a.learning_rate);
      EXPECT_EQ(b.first_bad, a.first_bad);
      EXPECT_GE(b.ms, 0.0);
    }
    ASSERT_EQ(expected.seen.evals.size(), actual.seen.evals.size());
    for (size_t i = 0; i < expected.seen.evals.size(); ++i) {
      EXPECT_EQ(actual.seen.evals[i].step, expected.seen.evals[i].step);
      EXPECT_EQ(actual.seen.evals[i].loss, expected.seen.evals[i].loss);
    }
    EXPECT_EQ(actual.seen.ends, expected.seen.ends);
    expect_same_weights(expected.weights, actual.weights);
  }

  /// Two steps that overflow, and a scale that grows again after every two that do not.
  static TrainConfig moving_scale() {
    TrainConfig result = config(kMlp, "mixed_float16", "dynamic:1e7");
    result.steps = 12;
    result.optimizer = parse_optimizer("adam");
    result.lanes[0].scaler.growth_interval = 2;
    return result;
  }
};

TEST_P(StepQueues, SkipsUpdatesAndMovesTheScale) {
  const TrainConfig config = moving_scale();
  const Result seen = train(config);
  std::set<double> scales;
  int skipped = 0;
  for (const StepRow& row : seen.seen.rows) {
    scales.insert(row.loss_scale);
    skipped += row.skipped ? 1 : 0;
  }
  ASSERT_GT(skipped, 1);
  ASSERT_LT(skipped, 11);
  ASSERT_GT(scales.size(), 2u);
  expect_the_emulators(config, data());
}

TEST_P(StepQueues, KnowsEveryLossScale) {
  for (const char* scale : {"none", "static:1024", "static:1e38", "dynamic:4", "dynamic:1e-30"}) {
    SCOPED_TRACE(scale);
    TrainConfig config = test::config(kMlp, "mixed_float16", scale);
    config.steps = 4;
    expect_the_emulators(config, data());
  }
}

// The clipping factor comes from the norm; averages and states have separate formats.
TEST_P(StepQueues, ClipsAndAverages) {
  TrainConfig config = moving_scale();
  config.clip_norm = 0.05;
  config.optimizer = parse_optimizer("sgd:momentum=0.9");
  config.average = WeightAverage{.decay = 0.5};
  config.state_format = kBf16;
  expect_the_emulators(config, data());
  config.lanes[0].plan.clip = kFp16;
  expect_the_emulators(config, data());
}

// A skipped step has a beta1 of its own, but does not count in the correction of the next one.
TEST_P(StepQueues, OptionsChangeByStep) {
  TrainConfig config = moving_scale();
  config.groups = {parse_parameter_group("*.bias:lr=0.01")};
  config.schedule = parse_schedule("file:a.npz");
  config.schedule.series = {{{"beta1"}, {}}, {{"lr", "*.bias"}, {}}, {{"beta1", "*.bias"}, {}}};
  for (int step = 0; step < 12; ++step) {
    config.schedule.rates.push_back(0.001 * (step + 1));
    config.schedule.series[0].values.push_back(0.95 - 0.05 * step);
    config.schedule.series[1].values.push_back(0.002 * (12 - step));
    config.schedule.series[2].values.push_back(0.04 * step);
  }
  expect_the_emulators(config, data());
  config.optimizer = parse_optimizer("sgd:momentum=0.5,nesterov=true");
  for (size_t i : {0u, 2u}) {
    config.schedule.series[i].option.key = "momentum";
    config.schedule.series[i].values[0] = 0.5;
  }
  expect_the_emulators(config, data());
  config.optimizer = parse_optimizer("rmsprop:lr=0.001");
  expect_the_emulators(config, data());
}

TEST_P(StepQueues, AddsMicroBatches) {
  TrainConfig config = moving_scale();
  config.micro_batches = 4;
  expect_the_emulators(config, data());
  config.every = 3;  // the counters of most steps stay on the device
  expect_the_emulators(config, data());
  config.every = 0;
  expect_the_emulators(config, data());
}

TEST_P(StepQueues, DrawsTheSameWords) {
  TrainConfig config = moving_scale();
  Plan& plan = config.lanes[0].plan;
  plan = preset_plan("bfloat16").value();
  plan.defaults.rounding.mode = plan.storage_rounding.mode = RoundingMode::stochastic;
  expect_the_emulators(config, data());
}

TEST_P(StepQueues, RunningStatisticsMoveWithUpdatesOnly) {
  TrainConfig config = test::config("resnet20", "mixed_float16", "dynamic:1e9");
  config.batch = 8;
  config.steps = 4;
  expect_the_emulators(config, small_images());
}

// Evaluations, comparisons and checkpoints in between find the previous step reported and the lane
// in the right state.
TEST_P(StepQueues, CanBeInterrupted) {
  TrainConfig config = moving_scale();
  config.evaluate = true;
  config.evaluate_every = 5;
  expect_the_emulators(config, data());

  const TrainConfig whole = [&] {
    TrainConfig on_device = config;
    on_device.lanes[0].backend = &candidate();
    return on_device;
  }();
  const Result expected = train(whole);
  std::atomic<bool> stop{false};
  Trainer first(whole, data());
  Collector seen;
  first.run(
      &seen, [&](const std::vector<StepRow>& rows) { stop = stop || rows[0].step == 6; }, stop);
  EXPECT_EQ(static_cast<int64_t>(seen.rows.size()), first.step());
  EXPECT_EQ(seen.ends, std::vector<RunEnd>{RunEnd::interrupted});
  EXPECT_EQ(first.step(), 8) << "the step after the one that was told was launched";
  Trainer second(whole, data());
  second.resume(first.checkpoint());
  second.run(nullptr, {}, std::atomic<bool>{false});
  expect_same_weights(expected.weights, second.weights(0));
}

TEST_P(StepQueues, TellsStepsOfAllLanesTogether) {
  TrainConfig both = moving_scale();
  both.lanes.insert(both.lanes.begin(), lane(preset_plan("float32").value(), "none"));
  both.lanes.push_back(both.lanes[1]);
  both.lanes[2].backend = &candidate();
  both.lanes[2].own_name = "device";
  both.errors = {.enabled = true, .every = 4, .pairs = {{"device", "mixed_float16"}}};
  Trainer trainer(both, data());
  Collector seen;
  std::vector<int64_t> told;
  trainer.run(
      &seen,
      [&](const std::vector<StepRow>& rows) {
        ASSERT_EQ(rows.size(), 3u);
        for (const StepRow& row : rows) EXPECT_EQ(row.step, rows[0].step);
        EXPECT_EQ(rows[1].loss, rows[2].loss);
        EXPECT_EQ(rows[1].loss_scale, rows[2].loss_scale);
        told.push_back(rows[0].step);
      },
      std::atomic<bool>{false});
  ASSERT_EQ(told.size(), 12u);
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], static_cast<int64_t>(i));
  ASSERT_EQ(seen.rows.size(), 36u);
  EXPECT_FALSE(seen.errors.empty());
  for (const auto& [lane, error] : seen.errors) {
    EXPECT_EQ(lane, 2);
    EXPECT_EQ(error.differing, 0) << "site " << error.site << ", step " << error.step;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, StepQueues,
                         testing::Values(Candidate::host, Candidate::shuffled, Candidate::cuda),
                         candidate_name);

}  // namespace
}  // namespace halfscope
