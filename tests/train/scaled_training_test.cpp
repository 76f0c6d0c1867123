// SPDX-License-Identifier: MIT
// Training under the frameworks' loss scalers: what is skipped, with which scale gradients are made
// and unscaled, weights that become NaN, errors that end a lane, and checkpoints.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "tests/train/small_training.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;

TrainConfig setup_of(const std::string& plan, const std::string& scale, int64_t steps) {
  TrainConfig setup = config(kMlp, plan, scale);
  setup.steps = steps;
  setup.optimizer = parse_optimizer("sgd:lr=0.05");
  return setup;
}

std::vector<double> scales_of(const Collector& seen) {
  std::vector<double> scales;
  for (const StepRow& row : seen.rows) scales.push_back(row.loss_scale);
  return scales;
}

std::string skips_of(const Collector& seen) {
  std::string text;
  for (const StepRow& row : seen.rows) text += row.skipped ? 'O' : 'F';
  return text;
}

// Powers of two multiply exactly, so that nothing but the trajectory can make a difference.
TEST(TrainingUnderAScaler, EqualTrajectoriesGiveEqualBits) {
  const Result torch = train(setup_of("mixed_float16", "dynamic:16777216", 40));
  const std::string skipped = skips_of(torch.seen);
  ASSERT_THAT(skipped, testing::StartsWith("O"));
  ASSERT_THAT(skipped, testing::EndsWith("FFFF"));
  for (const char* same : {"torch:init=16777216", "tf-keras:init=16777216", "keras3:init=16777216",
                           "apex:init=16777216", "deepspeed:init=16777216,hysteresis=1"}) {
    const Result other = train(setup_of("mixed_float16", same, 40));
    expect_same_weights(other.weights, torch.weights);
    expect_same_steps(other.seen, torch.seen);
  }
  // Hysteresis costs a step.
  const Result delayed = train(setup_of("mixed_float16", "deepspeed:init=16777216", 40));
  EXPECT_EQ(skips_of(delayed.seen), ("O" + skipped).substr(0, 40));
  EXPECT_EQ(delayed.seen.rows[1].loss_scale, 16777216.0);
}

TEST(TrainingUnderAScaler, ScalesFollowTheRules) {
  const Result result = train(setup_of("mixed_float16", "torch:init=1024,interval=3", 8));
  EXPECT_EQ(scales_of(result.seen),
            (std::vector<double>{1024, 1024, 1024, 2048, 2048, 2048, 4096, 4096}));
  const Result python = train(setup_of("mixed_float16", "apex-fp16-utils:init=1024,window=2", 6));
  EXPECT_EQ(scales_of(python.seen), (std::vector<double>{1024, 1024, 2048, 2048, 4096, 4096}));
}

TEST(TrainingUnderAScaler, TfKerasCountsSkippedStepsForAdam) {
  const auto trained = [](const char* optimizer, const char* scale) {
    TrainConfig setup = setup_of("mixed_float16", scale, 12);
    setup.optimizer = parse_optimizer(optimizer);
    return train(setup);
  };
  const Result keras = trained("adam", "tf-keras:init=16777216"),
               torch = trained("adam", "torch:init=16777216");
  ASSERT_TRUE(keras.seen.rows[0].skipped);
  EXPECT_EQ(skips_of(keras.seen), skips_of(torch.seen));
  EXPECT_NE(keras.weights.at("fc1.weight").data, torch.weights.at("fc1.weight").data)
      << "the bias correction is that of a later step";
  expect_same_weights(trained("sgd", "tf-keras:init=16777216").weights,
                      trained("sgd", "torch:init=16777216").weights);
}

TEST(TrainingUnderAScaler, Keras3DividesByTheScale) {
  const auto weights = [](const char* scale) {
    return train(setup_of("mixed_float16", scale, 1)).weights.at("fc1.weight").data;
  };
  // A scale that is no power of two: g / 1000 and g * fp32(1 / 1000) differ in some last places.
  const std::vector<float> divided = weights("keras3:init=1000"),
                           multiplied = weights("tf-keras:init=1000");
  EXPECT_NE(divided, multiplied);
  for (size_t i = 0; i < divided.size(); ++i) EXPECT_NEAR(divided[i], multiplied[i], 1e-7);
  EXPECT_EQ(divided, weights("keras3:static=1000"));
  EXPECT_EQ(multiplied, weights("static:1000"));
}

bool any_nan(const NamedTensors& weights) {
  return std::any_of(weights.begin(), weights.end(), [](const auto& each) {
    const std::vector<float>& data = each.second.data;
    return std::any_of(data.begin(), data.end(), [](float w) { return std::isnan(w); });
  });
}

TEST(TrainingUnderAScaler, WeightsBecomeNanWhereTheyDoInTheFramework) {
  constexpr const char* kTiny = "2.938735877055719e-39";  // 2^-128
  const Result torch = train(setup_of("mixed_float16", std::string("torch:init=") + kTiny, 2));
  EXPECT_FALSE(torch.seen.rows[0].skipped) << "its gradients are all 0, which is finite";
  EXPECT_TRUE(any_nan(torch.weights));
  EXPECT_TRUE(torch.seen.rows[1].skipped) << "then everything is NaN";
  const Result keras = train(setup_of("mixed_float16", std::string("keras3:init=") + kTiny, 2));
  EXPECT_EQ(skips_of(keras.seen), "FF");
  EXPECT_FALSE(any_nan(keras.weights)) << "0 / 2^-128 is 0";
  // A static scale of Keras or apex applies what overflowed; static:X and DeepSpeed skip it.
  EXPECT_TRUE(any_nan(train(setup_of("mixed_float16", "apex:static=1e12", 2)).weights));
  EXPECT_FALSE(any_nan(train(setup_of("mixed_float16", "deepspeed:static=1e12", 2)).weights));
}

TEST(TrainingUnderAScaler, DeepSpeedEndsTheTrainingAtItsMinimum) {
  TrainConfig setup =
      setup_of("mixed_float16", "deepspeed:init=1099511627776,min=549755813888,hysteresis=1", 9);
  try {
    train(setup);
    FAIL() << "DeepSpeed raises";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::runtime);
    EXPECT_THAT(error.what(), HasSubstr("lane mixed_float16 failed at step 1: the loss scale is "
                                        "already at its minimum, 549755813888"));
    EXPECT_THAT(error.hint(), HasSubstr("diagnose"));
  }
  // Other lanes go on.
  setup.lanes.push_back(lane(preset_plan("bfloat16").value(), "none"));
  Trainer trainer(setup, data());
  Collector seen;
  const std::atomic<bool> stop{false};
  trainer.run(&seen, {}, stop);
  ASSERT_EQ(trainer.lost_lanes().size(), 1u);
  EXPECT_EQ(trainer.lost_lanes()[0].step, 1);
  EXPECT_EQ(seen.rows.size(), 1u + 9u);
}

TEST(TrainingUnderAScaler, ResumingKeepsItsWholeState) {
  for (const char* scale :
       {"deepspeed:init=67108864,window=3,hysteresis=3", "apex-fp16-utils:init=67108864,window=3",
        "apex:init=16777216,window=4", "keras3:init=67108864,interval=4"}) {
    for (const int64_t last : {0, 5}) {
      const TrainConfig setup = setup_of("mixed_float16", scale, 10);
      std::atomic<bool> stop{false};
      const std::atomic<bool> never{false};
      Collector whole_rows, rows;
      Trainer whole(setup, data()), first(setup, data()), second(setup, data());
      whole.run(&whole_rows, {}, never);
      first.run(
          &rows, [&](const std::vector<StepRow>& each) { stop = each[0].step == last; }, stop);
      const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                         ("halfscope-scaler-" + std::to_string(::getpid()));
      save_checkpoint(file, first.checkpoint());
      second.resume(load_checkpoint(file));
      std::filesystem::remove(file);
      second.run(&rows, {}, never);
      expect_same_weights(whole.weights(0), second.weights(0));
      expect_same_steps(whole_rows, rows);
    }
  }
}

// DeepSpeed's and apex's older tests add up each tensor in fp32.
TEST(TrainingUnderAScaler, ASumOverflowsBeforeItsElementsDo) {
  const auto setup = [](const std::string& scale) {
    TrainConfig one = setup_of("float32", scale, 1);
    one.batch = 1;  // nothing averages the gradients
    return one;
  };
  const std::vector<SiteInfo> sites = Trainer(setup("static:1"), data()).describe().lanes[0].sites;
  const Result plain = train(setup("static:1"));
  double sum = 0.0, most = 0.0;
  for (const SiteInfo& site : sites) {
    if (site.phase != Phase::backward) continue;
    const TensorStats& stats = plain.seen.stats[0][static_cast<size_t>(site.order)];
    most = std::max(most, static_cast<double>(stats.max_abs));
    if (site.role == Role::weight_grad) sum = std::max(sum, std::abs(stats.sum));
  }
  const double largest = std::numeric_limits<float>::max();
  const int exponent = static_cast<int>(std::ceil(std::log2(largest / sum)));
  ASSERT_LE(exponent, 127) << "sum " << sum;
  ASSERT_LT(most * std::exp2(exponent), largest) << "this network does not show it";
  const auto first_step = [&](const char* kind, int log2) {
    const std::string scale = std::string(kind) + ":init=" + std::to_string(std::exp2(log2));
    return train(setup(scale)).seen.rows[0];
  };
  const StepRow row = first_step("apex-fp16-utils", exponent);
  EXPECT_TRUE(row.skipped);
  EXPECT_TRUE(std::isfinite(row.grad_norm)) << "all gradients are finite";
  EXPECT_FALSE(first_step("apex-fp16-utils", exponent - 10).skipped);
  EXPECT_FALSE(first_step("torch", exponent).skipped);
  EXPECT_FALSE(first_step("deepspeed", exponent).skipped) << "ZeRO looks at elements";
}

}  // namespace
}  // namespace halfscope::test
