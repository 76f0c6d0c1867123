// SPDX-License-Identifier: MIT
// Errors of outputs in inference, compared with plain loops over the outputs that a run keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/train/runner.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using test::Collector;
using Of = Deviation::Of;

/// One input x of `width` numbers a sample.
Dataset samples_of(const std::vector<float>& values, int64_t width) {
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  data.test.arrays = {{.name = "x",
                       .sample_shape = {width},
                       .reals = values,
                       .samples = static_cast<int64_t>(values.size()) / width}};
  return data;
}

std::vector<float> reproducible_numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(splitmix64(static_cast<uint64_t>(i)) >> 40) * 0x1p-23f -
                     1.0f);
  }
  return values;
}

/// A hidden layer and scores, both requested.
Model two_outputs(int64_t batch) {
  Model model;
  model.name = "two_outputs";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {batch, 6});
  const ValueId first = graph.add_variable("fc1.weight", {6, 5}, {.bound = 1.0});
  const ValueId second = graph.add_variable("fc2.weight", {5, 3}, {.bound = 1.0});
  const ValueId hidden = graph.add1("Relu", "relu", {graph.add1("MatMul", "fc1", {x, first})});
  model.outputs = {{"scores", graph.add1("MatMul", "fc2", {hidden, second})}, {"hidden", hidden}};
  return model;
}

RunnerConfig lanes(const std::vector<std::string>& plans) {
  RunnerConfig config;
  for (const std::string& plan : plans) {
    config.lanes.push_back(test::lane(preset_plan(plan).value(), "none"));
  }
  config.errors.enabled = true;
  return config;
}

struct Seen {
  std::vector<Deviation> deviations;  ///< for lane 1
  std::vector<NamedTensors> outputs;  ///< by lane
};

Seen run(const Model& model, const RunnerConfig& config, const Dataset& data) {
  Seen result;
  Collector seen;
  Runner runner(model, config, data);
  runner.run(&seen, {}, std::atomic<bool>{false});
  for (const auto& [lane, deviation] : seen.deviations) {
    EXPECT_EQ(lane, 1) << "the reference is not judged";
    result.deviations.push_back(deviation);
  }
  for (size_t i = 0; i < config.lanes.size(); ++i) {
    result.outputs.push_back(runner.result(i).outputs);
  }
  return result;
}

struct Distance {
  double error = 0.0, ratio = 0.0, worst = 0.0;
};

/// docs/reference/verdicts.md.
Distance distance(const Tensor& x, const Tensor& truth) {
  const size_t samples = static_cast<size_t>(truth.shape[0]), width = truth.data.size() / samples;
  std::vector<double> differences(samples), sizes(samples);
  double own = 0.0, difference = 0.0, size = 0.0;
  for (size_t i = 0; i < truth.data.size(); ++i) {
    const double a = static_cast<double>(x.data[i]), b = static_cast<double>(truth.data[i]);
    differences[i / width] += (a - b) * (a - b);
    sizes[i / width] += b * b;
    own += a * a;
    difference += (a - b) * (a - b);
    size += b * b;
  }
  Distance result{.error = std::sqrt(difference / size), .ratio = std::sqrt(own / size)};
  const double least = 0.01 * size / static_cast<double>(samples);
  for (size_t i = 0; i < samples; ++i) {
    result.worst = std::max(result.worst, std::sqrt(differences[i] / std::max(sizes[i], least)));
  }
  return result;
}

TEST(InferenceProbe, ErrorsAreThoseOfTheOutputs) {
  for (const char* plan : {"bfloat16", "mixed_float16"}) {
    // The last batch has three samples and a row of zeros that does not count.
    const Dataset data = samples_of(reproducible_numbers(11 * 6), 6);
    const Seen seen = run(two_outputs(4), lanes({"float32", plan}), data);
    ASSERT_EQ(seen.deviations.size(), 2u);
    for (const Deviation& each : seen.deviations) {
      SCOPED_TRACE(each.name);
      const Tensor& own = seen.outputs[1].at(each.name);
      const Distance expected = distance(own, seen.outputs[0].at(each.name));
      EXPECT_EQ(each.of, Of::output);
      EXPECT_EQ(each.step, 3) << "batches";
      EXPECT_EQ(each.n, each.name == "scores" ? 33 : 55);
      EXPECT_EQ(each.broken, 0);
      EXPECT_GT(expected.error, 0.0);
      EXPECT_NEAR(each.error, expected.error, 1e-9);
      EXPECT_NEAR(each.ratio, expected.ratio, 1e-9);
      EXPECT_GT(each.spread, 0.0);
      EXPECT_GT(each.worst, 0.0);
      EXPECT_GT(each.worst_spread, 0.0);
    }
    EXPECT_EQ(seen.deviations[0].name, "scores");
    EXPECT_EQ(seen.deviations[1].name, "hidden");
  }
}

// Moving the reference's weights must not show in the batches that follow.
TEST(InferenceProbe, TheReferenceIsPutBackAfterItWasMoved) {
  const Dataset data = samples_of(reproducible_numbers(12 * 6), 6);
  RunnerConfig config = lanes({"float32", "float16"});
  config.errors.every = 1;
  const Seen probed = run(two_outputs(4), config, data);
  config.errors.enabled = false;
  Runner plain(two_outputs(4), config, data);
  plain.run(nullptr, {}, std::atomic<bool>{false});
  for (size_t i = 0; i < 2; ++i) {
    test::expect_same_weights(probed.outputs[i], plain.result(i).outputs);
  }
}

Model product(int64_t batch) {
  Model model;
  model.name = "product";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {batch, 2});
  const ValueId w = graph.add_variable("w", {2}, {.bound = 0.0, .center = 1.0});
  const ValueId y = graph.add1("Mul", "mul", {x, w});
  model.outputs = {{"y", y}, {"best", graph.add1("ArgMax", "best", {y}, {{"axis", int64_t{1}}})}};
  return model;
}

// 1 and 1 + 2^-9 are one number in bf16, and the first of two equal ones is the largest.
TEST(InferenceProbe, IndicesCountByTheShareThatDiffers) {
  const float above = 1.0f + 0x1p-9f;
  const Dataset data = samples_of({1.0f, above, 2.0f, 1.0f, 1.0f, 3.0f, 1.0f, above}, 2);
  const Seen seen = run(product(4), lanes({"float32", "bfloat16"}), data);
  ASSERT_EQ(seen.outputs[0].at("best").data, (std::vector<float>{1, 0, 1, 1}));
  ASSERT_EQ(seen.outputs[1].at("best").data, (std::vector<float>{0, 0, 1, 0}));
  ASSERT_EQ(seen.deviations.size(), 2u);
  const Deviation& best = seen.deviations[1];
  EXPECT_EQ(best.name, "best");
  EXPECT_EQ(best.n, 4);
  EXPECT_DOUBLE_EQ(best.error, std::sqrt(0.5));
  EXPECT_TRUE(std::isnan(best.worst) && std::isnan(best.ratio));
  const Deviation& y = seen.deviations[0];
  EXPECT_NEAR(y.error, std::sqrt(2.0 * 0x1p-18 / (2.0 + 2.0 * above * above + 5.0 + 10.0)), 1e-12);
}

// x and w are c = 1 + 2^-9 and move by u = 2^-10 each, so that x w is (c +- u)^2 or c^2 - u^2.
TEST(InferenceProbe, TheSpreadIsOfOneUlpOfTheLanesFormat) {
  constexpr double kUlp = 0x1p-10, kValue = 1.0 + 0x1p-9;
  const float value = static_cast<float>(kValue);
  const Dataset data = samples_of({value, value}, 2);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RunnerConfig config = lanes({"float32", "mixed_float16"});
    for (LaneConfig& lane : config.lanes) {
      // Element-wise operators of the preset take what comes: this one reads fp16.
      if (lane.plan.name == "float32") continue;
      lane.plan = Plan{};
      lane.plan.name = "fp16";
      lane.plan.defaults.read = lane.plan.defaults.write = kFp16;
    }
    config.seed = seed;
    config.init = {{"w", {{2}, {value, value}}}};
    const Seen seen = run(product(1), config, data);
    const Deviation& y = seen.deviations.at(0);
    EXPECT_LT(y.error, 1e-3) << "one rounding";
    std::set<double> possible;
    std::vector<double> products{2.0 * kValue * kUlp + kUlp * kUlp,
                                 2.0 * kValue * kUlp - kUlp * kUlp, kUlp * kUlp};
    for (double& product : products) product /= kValue * kValue;
    for (const double a : products) {
      for (const double b : products) possible.insert(std::sqrt((a * a + b * b) / 2.0));
    }
    const auto near = std::min_element(possible.begin(), possible.end(), [&](double a, double b) {
      return std::fabs(a - y.spread) < std::fabs(b - y.spread);
    });
    EXPECT_NEAR(y.spread, *near, 1e-7) << "seed " << seed;
    EXPECT_DOUBLE_EQ(y.worst_spread, y.spread) << "one sample";
  }
}

TEST(InferenceProbe, WhatIsNotFiniteIsCounted) {
  // 300 * 300 is beyond 65504.
  RunnerConfig config = lanes({"float32", "float16"});
  config.init = {{"w", {{2}, {300.0f, 1.0f}}}};
  const Seen seen = run(product(2), config, samples_of({300.0f, 1.0f, 1.0f, 2.0f}, 2));
  const Deviation& y = seen.deviations.at(0);
  EXPECT_EQ(y.broken, 1);
  EXPECT_EQ(y.n, 4);
  EXPECT_EQ(y.error, 0.0) << "of the others";
}

}  // namespace
}  // namespace halfscope
