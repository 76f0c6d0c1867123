// SPDX-License-Identifier: MIT
// The part of an output that is wrong, on tensors whose errors are worked out by hand.
#include "core/observe/worst_slice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/train/runner.h"
#include "tests/special_values.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using Floats = std::vector<float>;

/// Ten samples of a large channel and a small one.
Floats two_channels(float large, float small) {
  Floats values;
  for (int sample = 0; sample < 10; ++sample) values.insert(values.end(), {large, small});
  return values;
}

SlicedOutput sliced(const Shape& shape, const Floats& own, const Floats& truth,
                    const Floats& moved) {
  return {.shape = shape, .own = own, .truth = truth, .moved = {moved}};
}

WorstSlice channel_of(const SlicedOutput& output) {
  WorstSlice worst;
  find_worst_channel(output, worst);
  return worst;
}

TEST(WorstChannel, IsFoundBesideALargeOne) {
  const Floats truth = two_channels(1000.0f, 1.0f), own = two_channels(1000.0f, 1.75f);
  const Floats moved = two_channels(1001.0f, 1.0625f);
  const WorstSlice worst = channel_of(sliced({10, 2}, own, truth, moved));
  EXPECT_DOUBLE_EQ(worst.error, 0.75);
  EXPECT_DOUBLE_EQ(worst.spread, 0.0625);
  EXPECT_EQ(worst.axis, 1);
  EXPECT_EQ(worst.index, 1);
  EXPECT_TRUE(worst.suspicious());
  WorstSlice sample;
  find_worst_sample(sliced({10, 2}, own, truth, moved), sample);
  EXPECT_LT(sample.error, 0.001) << "no sample shows it";
}

TEST(WorstChannel, IsExcusedByItsSpread) {
  const Floats truth = two_channels(1000.0f, 1.0f), own = two_channels(1000.0f, 1.75f);
  const Floats still = truth, far = two_channels(1000.0f, 0.7f);
  EXPECT_FALSE(channel_of(sliced({10, 2}, own, truth, far)).suspicious()) << "3 x 0.3 > 0.75";
  // The largest of several movements counts.
  SlicedOutput output = sliced({10, 2}, own, truth, still);
  EXPECT_TRUE(channel_of(output).suspicious());
  output.moved = {still, far, still};
  EXPECT_NEAR(channel_of(output).spread, 0.3, 1e-6);
  const Floats lost = two_channels(1000.0f, kInf);
  output.moved = {lost};
  EXPECT_FALSE(channel_of(output).suspicious()) << "right results may not be finite there";
}

TEST(WorstChannel, ChannelsLieAlongAxisOneAndTheLastAxis) {
  // [5, 3, 4]: a plane of axis 1 has 20 numbers, a line of the last axis 15.
  Floats truth(60, 1.0f), own = truth;
  for (size_t i = 0; i < 5; ++i) {
    for (size_t k = 0; k < 4; ++k) own[i * 12 + 2 * 4 + k] = 1.5f;
  }
  const WorstSlice plane = channel_of(sliced({5, 3, 4}, own, truth, truth));
  EXPECT_DOUBLE_EQ(plane.error, 0.5);
  EXPECT_EQ(plane.axis, 1);
  EXPECT_EQ(plane.index, 2);
  own = truth;
  for (size_t i = 0; i < 15; ++i) own[i * 4 + 3] = 1.5f;
  const WorstSlice line = channel_of(sliced({5, 3, 4}, own, truth, truth));
  EXPECT_DOUBLE_EQ(line.error, 0.5);
  EXPECT_EQ(line.axis, 2);
  EXPECT_EQ(line.index, 3);
}

TEST(WorstChannel, NothingIsSaidOfDeadTinyAndShortOnes) {
  const Floats single(10, 1.0f);
  // 1e-7 of the usual channel: in units of 1e-5 of it.
  const Floats tiny_truth = two_channels(1.0f, 1e-7f), tiny_own = two_channels(1.0f, 0.0f);
  EXPECT_LT(channel_of(sliced({10, 2}, tiny_own, tiny_truth, tiny_truth)).error, 0.02);
  // All zero in the truth: no scale for an error.
  const Floats dead_truth = two_channels(1.0f, 0.0f), dead_own = two_channels(1.0f, 1e-3f);
  const WorstSlice dead = channel_of(sliced({10, 2}, dead_own, dead_truth, dead_truth));
  EXPECT_EQ(dead.index, 0);
  EXPECT_EQ(dead.error, 0.0);
  // Seven numbers that are not zero are too few.
  Floats few_truth = two_channels(1.0f, 1.0f), few_own = two_channels(1.0f, 2.0f);
  for (size_t sample = 0; sample < 3; ++sample) few_truth[2 * sample + 1] = 0.0f;
  EXPECT_EQ(channel_of(sliced({10, 2}, few_own, few_truth, few_truth)).index, 0);
  EXPECT_TRUE(std::isnan(channel_of(sliced({10, 1}, single, single, single)).error))
      << "it is the output";
}

TEST(WorstChannel, RoundingNoiseOfFp32IsLeftOut) {
  const Floats truth = two_channels(1.0f, 1e-4f), own = two_channels(1.0f, 3e-4f);
  SlicedOutput output = sliced({10, 2}, own, truth, truth);
  EXPECT_TRUE(channel_of(output).suspicious());
  const Floats noise = two_channels(1.0f, 1.2e-4f), firm = two_channels(1.0f, 1.05e-4f);
  output.moved_in_fp32 = noise;
  EXPECT_EQ(channel_of(output).index, 0) << "an ulp of fp32 changes it by 20%";
  output.moved_in_fp32 = firm;
  EXPECT_EQ(channel_of(output).index, 1) << "by 5%";
}

TEST(WorstChannel, ElementsThatAreNotFiniteAreLeftOut) {
  Floats truth = two_channels(1000.0f, 1.0f), own = two_channels(1000.0f, 1.5f);
  truth[1] = kInf;
  own[3] = kInf;
  EXPECT_DOUBLE_EQ(channel_of(sliced({10, 2}, own, truth, truth)).error, 0.5);
}

// Samples (1002, 998) and (998, 1002): whatever is common to both is taken away.
TEST(CompareDifferences, ACommonValueDoesNotHideThem) {
  const Floats truth{1002.0f, 998.0f, 998.0f, 1002.0f, 1002.0f, 998.0f, 998.0f, 1002.0f};
  Floats own = truth;
  for (float& value : own) value = 1000.0f;
  const WorstSlice lost = compare_differences(sliced({4, 2}, own, truth, truth));
  EXPECT_DOUBLE_EQ(lost.error, 1.0);
  EXPECT_EQ(lost.spread, 0.0);
  for (size_t i = 0; i < own.size(); ++i) own[i] = truth[i] + 50.0f;
  EXPECT_EQ(compare_differences(sliced({4, 2}, own, truth, truth)).error, 0.0);
  EXPECT_DOUBLE_EQ(compare_differences(sliced({4, 2}, truth, truth, own)).spread, 0.0);
  own = truth;
  own[0] += 2.0f;  // half of it affects the whole sample
  EXPECT_NEAR(compare_differences(sliced({4, 2}, own, truth, truth)).error, std::sqrt(2.0 / 32.0),
              1e-12);
  EXPECT_TRUE(std::isnan(compare_differences(sliced({2, 2, 2}, own, truth, truth)).error));
}

Plan all_in_fp16() {
  Plan plan;
  plan.name = "fp16";
  plan.defaults.read = plan.defaults.write = kFp16;
  return plan;
}

Deviation measured(const Model& model, const Floats& x, int64_t width, const std::string& name) {
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  data.test.arrays = {{.name = "x",
                       .sample_shape = {width},
                       .reals = x,
                       .samples = static_cast<int64_t>(x.size()) / width}};
  RunnerConfig config;
  config.lanes = {test::lane(preset_plan("float32").value(), "none"),
                  test::lane(all_in_fp16(), "none")};
  config.errors.enabled = true;
  test::Collector seen;
  Runner runner(model, config, data);
  runner.run(&seen, {}, std::atomic<bool>{false});
  for (const auto& [lane, each] : seen.deviations) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << name;
  return {};
}

// Probabilities of eight classes less their sum of 1, and the probabilities themselves.
TEST(InferenceNoise, AnOutputThatIsZeroOnPaperHasNoError) {
  Model model;
  model.name = "residual";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {16, 8});
  const ValueId y = graph.add1("Softmax", "softmax", {x}, {{"axis", int64_t{1}}});
  const ValueId sum = graph.add1("ReduceSum", "sum", {y},
                                 {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}});
  const ValueId rest = graph.add1("Sub", "rest", {sum, graph.add_constant(1.0f)});
  model.outputs = {{"p", y}, {"rest", rest}};
  Floats values;
  for (uint64_t i = 0; i < 128; ++i) {
    values.push_back(static_cast<float>(splitmix64(i) >> 40) * 0x1p-22f - 2.0f);
  }
  const Deviation rest_off = measured(model, values, 8, "rest");
  EXPECT_GT(rest_off.noise, kNoise);
  EXPECT_TRUE(std::isnan(rest_off.error) && std::isnan(rest_off.ratio));
  EXPECT_TRUE(std::isnan(rest_off.worst) && std::isnan(rest_off.worst_channel));
  EXPECT_EQ(rest_off.n, 16);
  const Deviation right = measured(model, values, 8, "p");
  EXPECT_LT(right.noise, 1e-6) << "measured, as an output of the lane is far off";
  EXPECT_GT(right.error, 0.0);
  EXPECT_LT(right.error, 0.001);
}

// (x + 1024) - 1024 loses all numbers below 1/2 in fp16; a channel of 1000 x is right.
TEST(InferenceNoise, AWrongChannelIsMeasured) {
  Model model;
  model.name = "channels";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {16, 2});
  const ValueId offset = graph.add_constant(Tensor{{2}, {1024.0f, 0.0f}});
  const ValueId scale = graph.add_constant(Tensor{{2}, {1.0f, 1000.0f}});
  const ValueId there = graph.add1("Add", "there", {x, offset});
  const ValueId back = graph.add1("Sub", "back", {there, offset});
  model.outputs = {{"y", graph.add1("Mul", "y", {back, scale})}};
  Floats values;
  for (int i = 0; i < 32; ++i) values.push_back(0.31f + 0.003f * static_cast<float>(i));
  const Deviation y = measured(model, values, 2, "y");
  EXPECT_LT(y.error, 0.002);
  EXPECT_DOUBLE_EQ(y.worst_channel, 1.0);
  EXPECT_LT(y.worst_channel_spread, 0.001);
  EXPECT_EQ(y.channel_axis, 1);
  EXPECT_EQ(y.channel, 0);
}

}  // namespace
}  // namespace halfscope
