// SPDX-License-Identifier: MIT
// Measurements of probes while lanes train, on networks whose gradients and updates can be computed
// by hand; and that a training with probes equals the training without them, bit for bit.
#include "core/train/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/models/loss.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests
using testing::Contains;
using testing::UnorderedElementsAre;
using Of = Deviation::Of;

constexpr const char* kAll = "";

/// The mean of x a + factor x b: gradients are the means of x and of factor x, whatever a and b.
ModelBuilder constant_gradients(float factor) {
  return [factor](int64_t batch) {
    Model model;
    model.name = "constant_gradients";
    Graph& graph = model.graph;
    const ValueId x = graph.add_input("x", {batch, 1});
    const ValueId a = graph.add_variable("a.weight", {1}, {});
    const ValueId b = graph.add_variable("b.weight", {1}, {});
    const ValueId scaled = graph.add1("Mul", "scaled", {x, graph.add_constant(factor)});
    const ValueId sum = graph.add1(
        "Add", "sum", {graph.add1("Mul", "a", {x, a}), graph.add1("Mul", "b", {scaled, b})});
    const ValueId mean =
        graph.add1("ReduceMean", "mean", {sum},
                   {{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{1}}});
    model.outputs = {{"mean", mean}};
    add_loss(model, parse_loss("mean"));
    return model;
  };
}

Dataset numbers(const std::vector<float>& x) {
  Dataset data{.name = "numbers", .sample_shape = {}, .train = {}, .test = {}};
  const int64_t samples = static_cast<int64_t>(x.size());
  data.train.arrays = {{.name = "x", .sample_shape = {1}, .reals = x, .samples = samples}};
  return data;
}

/// Returns a plan that rounds nothing in these networks, because its only rule is for Conv.
Plan narrow_elsewhere() {
  Plan plan;
  plan.name = "narrow_elsewhere";
  PlanRule rule;
  rule.op = "Conv";
  rule.read = rule.write = kFp16;
  plan.rules.push_back(rule);
  return plan;
}

TrainConfig hand_made(const Plan& plan, float factor, float a, float b) {
  TrainConfig setup;
  setup.model = "constant_gradients";
  setup.build = constant_gradients(factor);
  setup.shuffle = setup.evaluate = false;
  setup.init = {{"a.weight", {{1}, {a}}}, {"b.weight", {{1}, {b}}}};
  setup.lanes = {lane(Plan{}, "none"), lane(plan, "none")};
  setup.errors.enabled = true;
  setup.errors.every = 1;
  return setup;
}

std::vector<Deviation> seen_of(const Collector& seen, int lane, Of of) {
  std::vector<Deviation> result;
  for (const auto& [which, deviation] : seen.deviations) {
    if (which == lane && deviation.of == of) result.push_back(deviation);
  }
  return result;
}

Deviation seen_of(const Collector& seen, int lane, Of of, const std::string& name) {
  for (const Deviation& each : seen_of(seen, lane, of)) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << "no " << deviation_name(of) << " of \"" << name << "\"";
  return {};
}

/// The steps of lane `which` among `lanes`.
std::vector<StepRow> rows_of(const Collector& seen, size_t which, size_t lanes) {
  std::vector<StepRow> rows;
  for (size_t i = which; i < seen.rows.size(); i += lanes) rows.push_back(seen.rows[i]);
  return rows;
}

TEST(TrainingProbe, ALaneThatComputesAsTheReferenceHasNoError) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes.push_back(lane(narrow_elsewhere(), "none"));
  setup.optimizer.momentum = 0.9;
  setup.micro_batches = 2;
  setup.errors.enabled = true;
  setup.errors.every = 1;
  const Collector seen = train(setup).seen;
  const std::vector<Deviation> gradients = seen_of(seen, 1, Of::gradient);
  EXPECT_EQ(gradients.size(), 3u * (6 + 1)) << "steps of six variables and of all";
  for (const Deviation& each : gradients) {
    EXPECT_EQ(each.error, 0.0) << each.name << " at step " << each.step;
    EXPECT_NEAR(each.ratio, 1.0, 1e-12);
    EXPECT_EQ(each.broken, 0);
    EXPECT_GT(each.spread, 0.0) << "moved by ulps of fp32 it is not the same";
    EXPECT_LT(each.spread, 1e-4);
    EXPECT_TRUE(std::isnan(each.worst)) << "samples have no gradients of their own";
  }
  EXPECT_EQ(seen_of(seen, 1, Of::gradient, "fc1.weight").n, 256 * 40);
  const std::vector<Deviation> losses = seen_of(seen, 1, Of::loss);
  ASSERT_EQ(losses.size(), 3u);
  for (const Deviation& each : losses) {
    EXPECT_EQ(each.error, 0.0);
    EXPECT_EQ(each.n, 1);
    EXPECT_LT(each.spread, 1e-4);
  }
  for (const Of of : {Of::loss, Of::gradient, Of::weight}) {
    EXPECT_TRUE(seen_of(seen, 0, of).empty()) << "the reference is not judged";
  }
}

// Gradients of the parts: 1/4, and three times 3 * 2^-12. The latter is less than half an ulp of
// 1/4 in bf16 and is lost: 1/4 instead of 1/4 + 9 * 2^-12 = 1033 * 2^-12.
TEST(TrainingProbe, SumsOfMicroBatchesInBf16AreOffByWhatTheyLose) {
  TrainConfig setup = hand_made(narrow_elsewhere(), 8.0f, 0.3f, 0.7f);
  setup.batch = setup.micro_batches = 4;
  setup.steps = 3;
  setup.sum_format = kBf16;
  const float small = 3.0f * 0x1p-10f;
  const Collector seen = train(setup, numbers({1.0f, small, small, small})).seen;
  const std::vector<Deviation> gradients = seen_of(seen, 1, Of::gradient);
  ASSERT_EQ(gradients.size(), 9u);
  for (const Deviation& each : gradients) {
    EXPECT_NEAR(each.error, 9.0 / 1033.0, 1e-9) << each.name << " at step " << each.step;
    EXPECT_NEAR(each.ratio, 1024.0 / 1033.0, 1e-9);
    EXPECT_LT(each.spread, 1e-6);
  }
  // The lanes diverge, but the reference gets the lane's own weights.
  for (const Deviation& each : seen_of(seen, 1, Of::loss)) EXPECT_EQ(each.error, 0.0);
  EXPECT_NEAR(seen_of(seen, 1, Of::weight, "a.weight").error, 9.0 / 1033.0, 1e-5);
}

TEST(TrainingProbe, TheReferenceSumsAndKeepsItsStateInFp32) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.optimizer = parse_optimizer("adam:lr=0.01");
  setup.micro_batches = 4;
  const NamedTensors expected = train(setup).weights;
  setup.lanes.push_back(lane(narrow_elsewhere(), "none"));
  setup.errors.enabled = true;
  for (const bool sums : {true, false}) {
    TrainConfig narrow = setup;
    (sums ? narrow.sum_format : narrow.state_format) = kBf16;
    const Result result = train(narrow);
    expect_same_weights(result.weights, expected);
    const Deviation gradient = seen_of(result.seen, 1, Of::gradient, kAll);
    EXPECT_EQ(gradient.error > 0.0, sums) << "the state has no part in gradients";
    EXPECT_GT(seen_of(result.seen, 1, Of::weight, kAll).error, 1e-4);
  }
}

// Gradients that overflow because the scale is still coming down say nothing.
TEST(TrainingProbe, GradientsOfSkippedStepsAreLeftOut) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes.push_back(lane(preset_plan("mixed_float16").value(), "dynamic:33554432"));
  setup.steps = 48;
  setup.errors.enabled = true;
  const Collector seen = train(setup).seen;
  const std::vector<StepRow> rows = rows_of(seen, 1, 2);
  ASSERT_TRUE(rows[0].skipped && rows[1].skipped) << "the scale is too large";
  ASSERT_FALSE(rows[24].skipped || rows[47].skipped);
  // Sampled are 0, 24 and 47, and powers of two until there are gradients.
  std::set<int64_t> expected{24, 47}, losses{0, 24, 47};
  for (size_t step = 1; step < 48; step *= 2) {
    losses.insert(static_cast<int64_t>(step));
    if (rows[step].skipped) continue;
    expected.insert(static_cast<int64_t>(step));
    break;
  }
  std::set<int64_t> steps, loss_steps;
  for (const Deviation& each : seen_of(seen, 1, Of::gradient)) {
    EXPECT_EQ(each.broken, 0);
    EXPECT_LT(each.error, 0.1) << "unscaled, as the reference's are";
    steps.insert(each.step);
  }
  for (const Deviation& each : seen_of(seen, 1, Of::loss)) loss_steps.insert(each.step);
  EXPECT_EQ(steps, expected);
  EXPECT_EQ(loss_steps, losses) << "the loss does not depend on the scale";
}

// Without a scale that could decrease, an infinite gradient counts as the lane's result.
TEST(TrainingProbe, GradientsThatAreNotFiniteCountWhereNothingIsScaled) {
  Plan plan = narrow_elsewhere();
  PlanRule rule;
  rule.op = "Mul";
  rule.read = rule.write = kFp16;
  plan.rules.push_back(rule);
  TrainConfig setup = hand_made(plan, 40000.0f, 1.0f, 0.0f);
  setup.batch = 1;
  setup.steps = 1;
  // 2 * 40000 is infinite in fp16; the gradient of a is 2.
  const Collector seen = train(setup, numbers({2.0f})).seen;
  const Deviation b = seen_of(seen, 1, Of::gradient, "b.weight");
  EXPECT_EQ(b.broken, 1);
  EXPECT_TRUE(std::isnan(b.error));
  EXPECT_EQ(seen_of(seen, 1, Of::gradient, "a.weight").error, 0.0);
  EXPECT_EQ(seen_of(seen, 1, Of::gradient, kAll).broken, 1);
  EXPECT_EQ(seen_of(seen, 1, Of::loss, kAll).broken, 1) << "infinity times 0";
}

TEST(TrainingProbe, NothingIsMeasuredUnasked) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes.push_back(lane(preset_plan("mixed_bfloat16").value(), "none"));
  EXPECT_TRUE(train(setup).seen.deviations.empty());
  setup.errors.enabled = true;
  setup.lanes.erase(setup.lanes.begin());
  EXPECT_TRUE(train(setup).seen.deviations.empty()) << "there is no reference";
}

TEST(TrainingProbe, ASmallerExtentLeavesOutWhatItSays) {
  using Extent = ErrorSampling::Extent;
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.lanes.push_back(lane(preset_plan("mixed_bfloat16").value(), "none"));
  setup.errors.enabled = true;
  const auto seen = [&](Extent extent) {
    setup.errors.extent = extent;
    return train(setup).seen;
  };
  const Collector all = seen(Extent::tensors), some = seen(Extent::batches),
                  least = seen(Extent::movement);
  EXPECT_FALSE(all.errors.empty());
  EXPECT_TRUE(some.errors.empty());
  EXPECT_TRUE(least.errors.empty());
  EXPECT_EQ(seen_of(all, 1, Of::loss).size(), 3u);
  EXPECT_EQ(seen_of(some, 1, Of::loss).size(), 3u);
  EXPECT_TRUE(seen_of(least, 1, Of::loss).empty());
  // Whatever is measured has the same bits.
  const double moved = seen_of(all, 1, Of::weight, kAll).error;
  EXPECT_GT(moved, 0.0);
  EXPECT_EQ(seen_of(some, 1, Of::weight, kAll).error, moved);
  EXPECT_EQ(seen_of(least, 1, Of::weight, kAll).error, moved);
  EXPECT_EQ(seen_of(some, 1, Of::gradient, kAll).error, seen_of(all, 1, Of::gradient, kAll).error);
}

/// Weights of all lanes after a training.
struct AllLanes {
  Collector seen;
  std::vector<NamedTensors> weights, averages;
};

AllLanes train_all(const TrainConfig& setup, const Dataset& dataset) {
  AllLanes result;
  Trainer trainer(setup, dataset);
  trainer.run(&result.seen, {}, std::atomic<bool>{false});
  for (int i = 0; i < static_cast<int>(setup.lanes.size()); ++i) {
    result.weights.push_back(trainer.weights(i));
    result.averages.push_back(trainer.averages(i));
  }
  return result;
}

void expect_probes_change_nothing(TrainConfig setup, const Dataset& dataset) {
  setup.errors.enabled = false;
  const AllLanes without = train_all(setup, dataset);
  setup.errors.enabled = true;
  setup.errors.every = 1;
  const AllLanes with = train_all(setup, dataset);
  EXPECT_TRUE(without.seen.deviations.empty());
  EXPECT_FALSE(with.seen.deviations.empty());
  expect_same_steps(with.seen, without.seen);
  for (size_t i = 0; i < setup.lanes.size(); ++i) {
    SCOPED_TRACE(setup.lanes[i].name());
    expect_same_weights(with.weights[i], without.weights[i]);
    expect_same_weights(with.averages[i], without.averages[i]);
  }
}

/// A convolution with batch normalization for small_images().
Model normalized(int64_t batch) {
  Model model;
  model.name = "normalized";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("input", {batch, 3, 8, 8});
  const ValueId kernel = graph.add_variable("conv.weight", {4, 3, 3, 3}, {.bound = 0.3});
  const ValueId conv = graph.add1("Conv", "conv", {x, kernel});
  const ValueId mean = graph.add_buffer("norm.running_mean", {4}, {});
  const ValueId variance = graph.add_buffer("norm.running_var", {4}, {.center = 1.0});
  const std::vector<ValueId> norm =
      graph.add("BatchNormalization", "norm",
                {conv, graph.add_variable("norm.weight", {4}, {.center = 1.0}),
                 graph.add_variable("norm.bias", {4}, {}), mean, variance},
                {{"training_mode", int64_t{1}}, {"epsilon", 1e-5}, {"momentum", 0.9}});
  for (Variable& variable : graph.variables()) {
    if (variable.value == mean) variable.next = norm[1];
    if (variable.value == variance) variable.next = norm[2];
  }
  const ValueId pooled =
      graph.add1("GlobalAveragePool", "pool", {graph.add1("Relu", "relu", {norm[0]})});
  const ValueId flat = graph.add1("Flatten", "flatten", {pooled});
  const ValueId head = graph.add_variable("head.weight", {4, 10}, {.bound = 0.5});
  model.outputs = {{"scores", graph.add1("MatMul", "head", {flat, head})}};
  add_loss(model, parse_loss("cross-entropy"));
  return model;
}

TrainConfig normalized_config() {
  TrainConfig setup = config("normalized", "float32", "none");
  setup.build = normalized;
  return setup;
}

/// float32 as frameworks treat its running statistics, by another name.
Plan float32_with_framework_buffers() {
  Plan plan;
  plan.name = "float32_framework";
  plan.buffers = BufferCommit::always;
  return plan;
}

TEST(TrainingProbe, TrainingGoesOnAsIfNobodyLooked) {
  TrainConfig setup = normalized_config();
  Plan framework = preset_plan("mixed_float16").value();
  framework.name = "framework";
  framework.buffers = BufferCommit::always;
  setup.lanes.push_back(lane(framework, "dynamic:65536"));
  setup.lanes.push_back(lane(preset_plan("bfloat16").value(), "none"));
  setup.optimizer.momentum = 0.9;
  setup.average = parse_weight_average("0.5");
  setup.micro_batches = 2;
  setup.steps = 3;
  ASSERT_NO_FATAL_FAILURE(expect_probes_change_nothing(setup, small_images()));
  // For a reference whose forward pass writes its running statistics itself.
  setup.lanes[0] = lane(float32_with_framework_buffers(), "none");
  setup.lanes.pop_back();
  ASSERT_NO_FATAL_FAILURE(expect_probes_change_nothing(setup, small_images()));
}

TEST(TrainingProbe, RandomRoundingDrawsTheSameNumbers) {
  TrainConfig setup = config(kMlp, "float32", "static:1024");
  Plan random = preset_plan("bfloat16").value();
  random.name = "random";
  random.defaults.rounding = random.storage_rounding = parse_rounding("stochastic").value();
  setup.lanes.push_back(lane(random, "none"));
  setup.lanes.push_back(lane(preset_plan("fp8_delayed").value(), "none"));
  setup.optimizer = parse_optimizer("adam:lr=0.01");
  setup.clip_norm = 0.5;
  expect_probes_change_nothing(setup, data());
}

/// In these networks, every value except the weights' next ones is a bf16 number anyway.
Plan stored_in_bf16() {
  Plan plan;
  plan.name = "stored_in_bf16";
  plan.storage = plan.defaults.read = plan.defaults.write = kBf16;
  return plan;
}

// One step moves a by 2^-12 and b by 8 * 2^-12. Below 1, neighbours in bf16 are 2^-8 apart; below
// 1/2, 2^-9. So a stays unchanged and b moves correctly.
TEST(TrainingDeviations, WeightsThatDoNotMoveHaveLostTheirWholeWay) {
  TrainConfig setup = hand_made(stored_in_bf16(), 8.0f, 1.0f, 0.5f);
  setup.optimizer.learning_rate = 0x1p-12;
  setup.batch = 2;
  setup.steps = 4;
  const Collector seen = train(setup, numbers({1.0f, 1.0f})).seen;
  const std::vector<Deviation> weights = seen_of(seen, 1, Of::weight);
  ASSERT_EQ(weights.size(), 3u);
  const Deviation a = seen_of(seen, 1, Of::weight, "a.weight");
  EXPECT_EQ(a.step, 4);
  EXPECT_EQ(a.n, 1);
  EXPECT_EQ(a.error, 1.0);
  EXPECT_EQ(a.ratio, 0.0);
  EXPECT_TRUE(std::isnan(a.spread)) << "no twins";
  const Deviation b = seen_of(seen, 1, Of::weight, "b.weight");
  EXPECT_EQ(b.error, 0.0);
  EXPECT_EQ(b.ratio, 1.0);
  const Deviation all = seen_of(seen, 1, Of::weight, kAll);
  EXPECT_NEAR(all.error, std::sqrt(1.0 / 65.0), 1e-12);
  EXPECT_NEAR(all.ratio, std::sqrt(64.0 / 65.0), 1e-12);
  EXPECT_EQ(all.n, 2);
}

// Gradients do not depend on the weights, so that a twin goes float32's way from where it starts.
// Its start is 2^-8 away, four times as far as it goes.
TEST(TrainingDeviations, WaysOfTwinsBeginAtTheirOwnStart) {
  TrainConfig setup = hand_made(Plan{}, 8.0f, 0.7f, 0.3f);
  setup.lanes[1].noise_seed = 1;
  setup.lanes[1].noise_bits = {{"a.weight", 7}, {"b.weight", 7}};
  setup.lanes[1].own_name = "twin";
  setup.optimizer.learning_rate = 0x1p-12;
  setup.batch = 2;
  setup.steps = 4;
  const Collector seen = train(setup, numbers({1.0f, 1.0f})).seen;
  for (const std::string name : {"a.weight", "b.weight", ""}) {
    const Deviation way = seen_of(seen, 1, Of::weight, name);
    EXPECT_LT(way.error, 1e-3) << name;
    EXPECT_NEAR(way.ratio, 1.0, 1e-3) << name;
  }
}

// The movement of a is a 32nd of b's. It counts as a tenth of the usual one of two elements: (1 +
// 1024) / 2 / 100, in squares of it.
TEST(TrainingDeviations, WaysOfNextToNothingCountAsATenthOfTheUsualOne) {
  TrainConfig setup = hand_made(stored_in_bf16(), 32.0f, 1.0f, 0.25f);
  setup.optimizer.learning_rate = 0x1p-12;
  setup.batch = 2;
  setup.steps = 4;
  const Collector seen = train(setup, numbers({1.0f, 1.0f})).seen;
  const Deviation a = seen_of(seen, 1, Of::weight, "a.weight");
  EXPECT_NEAR(a.error, std::sqrt(1.0 / 5.125), 1e-12);
  EXPECT_TRUE(std::isnan(a.ratio));
  EXPECT_NEAR(seen_of(seen, 1, Of::weight, kAll).error, std::sqrt(1.0 / 1025.0), 1e-12);
}

// Half way to the weight in each of four steps. In units of 2^-9 fp32's average of b moves by 0.5,
// 1.25, 2.125, 3.0625; in bf16, where 0.5 ties to even and what follows is whole, by 0, 1, 2, 3.
TEST(TrainingDeviations, AveragesAreMeasuredAsWeightsAre) {
  Plan plan;
  plan.name = "averaged_in_bf16";
  plan.average = kBf16;
  TrainConfig setup = hand_made(plan, 8.0f, 1.0f, 0.5f);
  setup.optimizer.learning_rate = 0x1p-12;
  setup.average = parse_weight_average("0.5");
  setup.batch = 2;
  setup.steps = 4;
  const Collector seen = train(setup, numbers({1.0f, 1.0f})).seen;
  for (const Deviation& each : seen_of(seen, 1, Of::weight)) EXPECT_EQ(each.error, 0.0);
  ASSERT_EQ(seen_of(seen, 1, Of::average).size(), 3u);
  const Deviation a = seen_of(seen, 1, Of::average, "a.weight");
  EXPECT_EQ(a.error, 1.0);
  EXPECT_EQ(a.ratio, 0.0);
  const Deviation b = seen_of(seen, 1, Of::average, "b.weight");
  EXPECT_NEAR(b.error, 0.0625 / 3.0625, 1e-12);
  EXPECT_NEAR(b.ratio, 3.0 / 3.0625, 1e-12);
  const double lost = 3.0625 * 3.0625 + 64.0 * 0.0625 * 0.0625;
  EXPECT_NEAR(seen_of(seen, 1, Of::average, kAll).error, std::sqrt(lost / (65.0 * 3.0625 * 3.0625)),
              1e-12);
}

double norm_of_difference(const Tensor& x, const Tensor& truth, double& size) {
  double difference = 0.0;
  size = 0.0;
  for (size_t i = 0; i < truth.data.size(); ++i) {
    const double right = static_cast<double>(truth.data[i]);
    difference += std::pow(static_cast<double>(x.data[i]) - right, 2);
    size += right * right;
  }
  size = std::sqrt(size);
  return std::sqrt(difference);
}

TEST(TrainingDeviations, EveryRunningStatisticIsListedOnce) {
  TrainConfig setup = normalized_config();
  setup.lanes.push_back(lane(preset_plan("mixed_bfloat16").value(), "none"));
  Plan always = preset_plan("mixed_bfloat16").value();
  always.name = "always";
  always.buffers = BufferCommit::always;
  setup.lanes.push_back(lane(always, "none"));
  setup.errors.enabled = true;
  setup.steps = 2;
  const AllLanes trained = train_all(setup, small_images());
  const std::multiset<std::string> expected{"norm.running_mean", "norm.running_var"};
  for (const int which : {1, 2}) {
    std::multiset<std::string> names;
    for (const Deviation& each : seen_of(trained.seen, which, Of::buffer)) {
      names.insert(each.name);
      double size = 0.0;
      const double distance =
          norm_of_difference(trained.weights[static_cast<size_t>(which)].at(each.name),
                             trained.weights[0].at(each.name), size);
      EXPECT_NEAR(each.error, distance / size, 1e-9 + 1e-6 * each.error) << each.name;
      EXPECT_EQ(each.broken, 0);
      EXPECT_EQ(each.step, 2);
    }
    EXPECT_EQ(names, expected);
  }
}

}  // namespace
}  // namespace halfscope
