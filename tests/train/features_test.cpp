// SPDX-License-Identifier: MIT
// Features of a training beyond plain steps: micro-batches, clipping, schedules, evaluations in
// between, early stopping, checkpoints, noise twins, buffers that survive a skip.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numbers>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/models/loss.h"
#include "core/models/models.h"
#include "core/numeric/formats/round.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests
namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  return fs::temp_directory_path() / ("halfscope-" + std::to_string(::getpid()) + "-" + name);
}

double distance(const NamedTensors& a, const NamedTensors& b) {
  double sum = 0.0;
  for (const auto& [path, tensor] : a) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const double d =
          static_cast<double>(tensor.data[i]) - static_cast<double>(b.at(path).data[i]);
      sum += d * d;
    }
  }
  return std::sqrt(sum);
}

// In double, four parts give the gradient of the whole batch, except for rounding.
TEST(MicroBatches, AddUpToTheBatch) {
  TrainConfig whole = config(kMlp, "float64", "none");
  TrainConfig parts = whole;
  parts.micro_batches = 4;
  const Result a = train(whole), b = train(parts);
  for (size_t i = 0; i < a.seen.rows.size(); ++i) {
    EXPECT_NEAR(a.seen.rows[i].loss, b.seen.rows[i].loss, 1e-13);
    EXPECT_NEAR(a.seen.rows[i].grad_norm, b.seen.rows[i].grad_norm, 1e-12);
    EXPECT_EQ(a.seen.rows[i].accuracy, b.seen.rows[i].accuracy);
  }
  EXPECT_LT(distance(a.weights, b.weights), 1e-6);  // weights() rounds to fp32
}

// The sum is rounded after every part: here element by element, with the reference rounding. What
// was left of an earlier step, even a NaN, is gone when the next one begins.
TEST(MicroBatches, TheSumIsRoundedAfterEveryPart) {
  constexpr int kParts = 300;
  const Executable exe = lower(build_mlp({256, 10}, 1, {1, 16, 16}), Plan{}, {{}, kParts, kBf16});
  const std::unique_ptr<Program> program = emulation_backend().compile(exe);
  const Node* sum = nullptr;
  for (const Node& node : exe.graph.nodes()) {
    if (node.op == "GradientSum" && node.path == "fc1" && sum == nullptr) sum = &node;
  }
  ASSERT_NE(sum, nullptr);
  program->write_scalar(exe.loss_scale, 1.0 / kParts);
  std::vector<float> nans(static_cast<size_t>(element_count(exe.graph.value(sum->inputs[0]).shape)),
                          NAN);
  program->write(sum->inputs[0], nans);
  std::vector<float> expected(nans.size(), 0.0f);
  for (int part = 0; part < kParts; ++part) {
    const size_t sample = static_cast<size_t>(part) % 80;
    std::vector<float> pixels;
    for (size_t i = 0; i < 256; ++i) {
      pixels.push_back(static_cast<float>(data().train.pixels[sample * 256 + i]) / 255.0f);
    }
    program->write(exe.input, pixels);
    program->write(exe.labels, std::vector<int32_t>{3});
    program->write_scalar(exe.keep_sum, part > 0 ? 1.0 : 0.0);
    program->run(Entry::grad, {});
    program->run(Entry::accumulate, {});
    const std::vector<float> gradient = program->read(sum->inputs[1]).data;
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = round_to_format(expected[i] + gradient[i], kBf16).value;
    }
  }
  EXPECT_EQ(program->read(sum->outputs[0]).data, expected);
}

// 1024 equal gradients of 1 in bf16, which has 8 significand bits: at 256, adding another one is a
// tie that goes to even, and the sum stalls.
TEST(MicroBatches, ANarrowSumStandsStill) {
  Executable exe;
  Graph& graph = exe.graph;
  graph.add_variable("p.w", {1}, {});
  const ValueId gradient = graph.add_input("gradient", {1}), keep = graph.add_input("keep", {});
  const ValueId sum = add_gradient_sum(graph, 0, gradient, keep, kBf16);
  exe.entries[static_cast<size_t>(Entry::accumulate)] = {0};
  const std::unique_ptr<Program> program = emulation_backend().compile(exe);
  program->write(gradient, std::vector<float>{1.0f});
  for (int i = 0; i < 1024; ++i) {
    program->write_scalar(keep, i > 0 ? 1.0 : 0.0);
    program->run(Entry::accumulate, {});
  }
  EXPECT_EQ(program->read(sum).data, std::vector<float>{256.0f});
}

TEST(MicroBatches, TheSumIsASiteInItsFormat) {
  TrainConfig setup = config(kMlp, "mixed_float16", "static:1024");
  setup.micro_batches = 2;
  setup.sum_format = kFp16;
  Trainer trainer(setup, data());
  const RunInfo info = trainer.describe();
  int found = 0;
  for (const SiteInfo& site : info.lanes[0].sites) {
    if (site.name() != "fc1.weight_grad_sum") continue;
    EXPECT_EQ(site.format, kFp16);
    EXPECT_EQ(site.role, Role::weight_grad);
    EXPECT_EQ(site.phase, Phase::backward);
    ++found;
  }
  EXPECT_EQ(found, 1);
  // Each site counts the elements of both parts.
  const Result result = train(setup);
  for (const SiteInfo& site : info.lanes[0].sites) {
    const int64_t parts = site.phase == Phase::update ? 1 : 2;
    EXPECT_EQ(result.seen.stats[0][static_cast<size_t>(site.order)].n,
              parts * element_count(site.shape))
        << site.name();
  }
}

TEST(MicroBatches, MustDivideTheBatch) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.micro_batches = 5;
  EXPECT_THROW(train(setup), Error);
}

// One step of plain SGD moves the weights by rate * norm; clipped by rate * limit.
TEST(Clipping, LimitsTheStep) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 1;
  setup.optimizer.learning_rate = 0.5;
  TrainConfig still = setup;
  still.optimizer.learning_rate = 0.0;
  const Result start = train(still), free = train(setup);
  const double norm = free.seen.rows[0].grad_norm;
  EXPECT_NEAR(distance(free.weights, start.weights), 0.5 * norm, 1e-5);
  setup.clip_norm = 0.25 * norm;
  const Result clipped = train(setup);
  EXPECT_EQ(clipped.seen.rows[0].grad_norm, norm) << "told as it was before";
  EXPECT_NEAR(distance(clipped.weights, start.weights), 0.5 * 0.25 * norm, 1e-5);
  setup.clip_norm = 4.0 * norm;
  expect_same_weights(train(setup).weights, free.weights);
}

// The loss scale is divided out before: clipping does not depend on it.
TEST(Clipping, ActsOnUnscaledGradients) {
  TrainConfig one = config(kMlp, "float32", "static:1"),
              many = config(kMlp, "float32", "static:1024");
  one.clip_norm = many.clip_norm = 0.1;
  expect_same_weights(train(one).weights, train(many).weights);
}

TEST(Schedule, FactorsAreTheFormulas) {
  const auto at = [](const char* text, int64_t step, int64_t steps = 100) {
    return learning_rate(parse_schedule(text), 1.0, step, steps);
  };
  EXPECT_EQ(at("constant", 99), 1.0);
  EXPECT_EQ(at("step:every=30,gamma=0.5", 29), 1.0);
  EXPECT_EQ(at("step:every=30,gamma=0.5", 30), 0.5);
  EXPECT_EQ(at("step:every=30,gamma=0.5", 95), 0.125);
  EXPECT_EQ(at("cosine", 0), 1.0);
  EXPECT_NEAR(at("cosine", 50), 0.5, 1e-15);
  EXPECT_NEAR(at("cosine", 25), 0.5 * (1.0 + std::numbers::sqrt2 / 2.0), 1e-15);
  EXPECT_NEAR(at("cosine:floor=0.2", 100), 0.2, 1e-15);
  EXPECT_NEAR(at("linear:floor=0.2", 75), 0.4, 1e-15);
  EXPECT_EQ(at("constant:warmup=10", 0), 0.1);
  EXPECT_EQ(at("constant:warmup=10", 9), 1.0);
  EXPECT_NEAR(at("linear:warmup=20", 60), 0.5, 1e-15) << "t counts from the end of the warmup";
}

// torch.optim.lr_scheduler.OneCycleLR(sgd, max_lr=1, total_steps=20) and with other arguments.
TEST(Schedule, OneCycleIsTorchs) {
  const auto at = [](const char* text, int64_t step) {
    return learning_rate(parse_schedule(text), 1.0, step, 20);
  };
  EXPECT_NEAR(at("onecycle", 0), 0.040000000000000036, 1e-15);
  EXPECT_NEAR(at("onecycle", 1), 0.1316718427000253, 1e-15);
  EXPECT_NEAR(at("onecycle", 4), 0.90832815729997474, 1e-15);
  EXPECT_NEAR(at("onecycle", 5), 1, 1e-15);
  EXPECT_NEAR(at("onecycle", 12), 0.50000199999999995, 1e-15);
  EXPECT_NEAR(at("onecycle", 19), 3.9999999999999998e-06, 1e-15);
  EXPECT_NEAR(at("onecycle:div=10,final_div=100,start=0.25,anneal=linear", 0), 0.10000000000000001,
              1e-15);
  EXPECT_NEAR(at("onecycle:div=10,final_div=100,start=0.25,anneal=linear", 1), 0.32500000000000001,
              1e-15);
  EXPECT_NEAR(at("onecycle:div=10,final_div=100,start=0.25,anneal=linear", 4), 1, 1e-15);
  EXPECT_NEAR(at("onecycle:div=10,final_div=100,start=0.25,anneal=linear", 5), 0.93340000000000001,
              1e-15);
  EXPECT_NEAR(at("onecycle:div=10,final_div=100,start=0.25,anneal=linear", 12), 0.46720000000000006,
              1e-15);
  EXPECT_NEAR(at("onecycle:div=10,final_div=100,start=0.25,anneal=linear", 19),
              0.0010000000000000009, 1e-15);
}

// numpy.float16 at every operation of the formulas.
TEST(Schedule, InAFormatEveryOperationRounds) {
  const auto at = [](const char* text, double rate, int64_t step) {
    return learning_rate(parse_schedule(text), rate, step, 60, kFp16);
  };
  EXPECT_EQ(at("cosine:floor=0.1", 0.3, 7), 0x1.2a00000000000p-2);
  EXPECT_EQ(at("linear", 0.3, 7), 0x1.0f80000000000p-2);
  EXPECT_EQ(at("step:every=7,gamma=0.9", 0.3, 7), 0x1.1480000000000p-2);
  EXPECT_EQ(at("onecycle", 0.3, 7), 0x1.dd80000000000p-4);
  EXPECT_EQ(at("onecycle:start=0.2,anneal=linear", 0.3, 7), 0x1.9000000000000p-3);
  EXPECT_EQ(at("cosine:floor=0.1", 0.3, 31), 0x1.43c0000000000p-3);
  EXPECT_EQ(at("linear", 0.3, 31), 0x1.2900000000000p-3);
  EXPECT_EQ(at("step:every=7,gamma=0.9", 0.3, 31), 0x1.9300000000000p-3);
  EXPECT_EQ(at("onecycle", 0.3, 31), 0x1.cd00000000000p-3);
  EXPECT_EQ(at("onecycle:start=0.2,anneal=linear", 0.3, 31), 0x1.6680000000000p-3);
  EXPECT_EQ(at("cosine:floor=0.1", 0.3, 59), 0x1.eec0000000000p-6);
  EXPECT_EQ(at("linear", 0.3, 59), 0x1.4680000000000p-8);
  EXPECT_EQ(at("step:every=7,gamma=0.9", 0.3, 59), 0x1.0840000000000p-3);
  EXPECT_EQ(at("onecycle", 0.3, 59), 0x1.4000000000000p-20);
  EXPECT_EQ(at("onecycle:start=0.2,anneal=linear", 0.3, 59), 0x0.0p+0);
  EXPECT_EQ(at("constant:warmup=9", 0.3, 4), 0x1.5580000000000p-3);
}

TEST(Schedule, NumbersThatTheFormatCannotHoldMakeNan) {
  const Schedule schedule =
      parse_schedule("onecycle:div=1e16,final_div=2.1926e-14,start=0.25,anneal=linear");
  const auto at = [&](int64_t step, const FloatFormat& format) {
    return learning_rate(schedule, 0.199375, step, 60, format);
  };
  EXPECT_EQ(at(0, kFp16), 0.0) << "0.199375 / 1e16";
  EXPECT_NEAR(at(0, kFp32), 1.99375e-17, 1e-22);
  EXPECT_NEAR(at(14, kFp16), 0.199375, 1e-4) << "the top";
  EXPECT_TRUE(std::isnan(at(15, kFp16))) << "0 / 0";
  EXPECT_NEAR(at(59, kFp32), 1.99375e-17 / 2.1926e-14, 1e-12);
  EXPECT_EQ(at(59, kBf16), 0x1p-10) << "bf16 has the range, and an ulp of 0.2 is left";
}

TEST(Schedule, TextReadsBackAndMistakesAreNamed) {
  for (const char* text :
       {"constant", "constant:warmup=5", "step:every=30,gamma=0.5", "step:every=7",
        "cosine:floor=0.01,warmup=100", "linear", "constant:format=fp16",
        "onecycle:div=1e+16,final_div=0.5,start=0.25,anneal=linear,format=bf16", "onecycle"}) {
    EXPECT_EQ(schedule_text(parse_schedule(text)), text);
  }
  for (const char* text :
       {"cosin", "step", "step:gamma=0.5", "cosine:every=3", "cosine:warmup", "cosine:warmup=-1",
        "cosine:warmup=1.5", "cosine:floor=x", "onecycle:div=0", "onecycle:start=1",
        "onecycle:warmup=3", "onecycle:anneal=step", "linear:format=fp3", ""}) {
    EXPECT_THROW(parse_schedule(text), Error) << text;
  }
}

TEST(Schedule, IsWhatTheStepsRunWith) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 4;
  setup.optimizer.learning_rate = 0.5;
  setup.schedule = parse_schedule("step:every=2,gamma=0");
  const Result stopped = train(setup);
  EXPECT_EQ(stopped.seen.rows[1].learning_rate, 0.5);
  EXPECT_EQ(stopped.seen.rows[2].learning_rate, 0.0);
  TrainConfig shorter = setup;
  shorter.steps = 2;
  expect_same_weights(stopped.weights, train(shorter).weights);
}

TEST(Evaluation, HappensOnTheWayAndOnceAtTheEnd) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 5;
  setup.evaluate = true;
  setup.evaluate_every = 2;
  std::vector<int64_t> steps;
  for (const EvalRow& row : train(setup).seen.evals) steps.push_back(row.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4, 5}));
  setup.steps = 4;
  steps.clear();
  for (const EvalRow& row : train(setup).seen.evals) steps.push_back(row.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 4})) << "not twice at the end";
}

// With a rate of 0 no evaluation is better than the first.
TEST(EarlyStop, CountsEvaluationsWithoutABetterLoss) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 50;
  setup.evaluate = true;
  setup.evaluate_every = 2;
  setup.patience = 3;
  setup.optimizer.learning_rate = 0.0;
  const Result still = train(setup);
  EXPECT_EQ(still.seen.rows.size(), 8u) << "the first evaluation, and three that are no better";
  EXPECT_EQ(still.seen.ends, std::vector<RunEnd>{RunEnd::early_stop});
  setup.optimizer.learning_rate = 0.1;
  setup.steps = 10;
  const Result learns = train(setup);
  EXPECT_EQ(learns.seen.rows.size(), 10u);
  EXPECT_EQ(learns.seen.ends, std::vector<RunEnd>{RunEnd::complete});
}

struct ResumeCase {
  std::string name, model, optimizer;
  int64_t micro_batches;
};

class Resume : public testing::TestWithParam<ResumeCase> {};

// 5 steps, a checkpoint on disk, 4 more in a new trainer: the same bits as 9 at a stretch, in every
// lane, statistics included.
TEST_P(Resume, GivesTheSameBits) {
  const ResumeCase& each = GetParam();
  const bool images = each.model == "resnet20";
  const Dataset& set = images ? small_images() : data();
  TrainConfig setup =
      config(each.model, "mixed_float16", "dynamic:1e9");  // skips first, then grows
  setup.lanes[0].scaler.growth_interval = 3;
  setup.lanes.push_back(lane(preset_plan("float64").value(), "none"));
  setup.lanes.push_back(lane(preset_plan("bfloat16").value(), "none"));
  setup.optimizer = parse_optimizer(each.optimizer);
  setup.schedule = parse_schedule("cosine:warmup=2");
  setup.micro_batches = each.micro_batches;
  setup.steps = 9;
  const std::atomic<bool> never{false};

  Collector straight;
  Trainer whole(setup, set);
  whole.run(&straight, {}, never);

  const fs::path file = scratch(each.name + ".npz");
  Collector first;
  std::atomic<bool> stop{false};
  Trainer before(setup, set);
  before.run(
      &first, [&](const std::vector<StepRow>& rows) { stop = rows[0].step == 4; }, stop);
  save_checkpoint(file, before.checkpoint());
  Collector second;
  Trainer after(setup, set);
  after.resume(load_checkpoint(file));
  after.run(&second, {}, never);
  fs::remove(file);

  ASSERT_EQ(first.rows.size(), 15u);
  ASSERT_EQ(second.rows.size(), 12u);
  EXPECT_EQ(second.rows[0].step, 5);
  first.rows.insert(first.rows.end(), second.rows.begin(), second.rows.end());
  first.stats.insert(first.stats.end(), second.stats.begin(), second.stats.end());
  expect_same_steps(straight, first);
  for (int lane = 0; lane < 3; ++lane)
    expect_same_weights(whole.weights(lane), after.weights(lane));
  int skipped = 0;
  for (const StepRow& row : straight.rows) skipped += row.skipped ? 1 : 0;
  EXPECT_GT(skipped, 0) << "the test means to cross skipped steps";
}

INSTANTIATE_TEST_SUITE_P(
    All, Resume,
    testing::Values(ResumeCase{"sgd", kMlp, "sgd:momentum=0.9,weight_decay=0.01", 1},
                    ResumeCase{"adam", kMlp, "adam", 4}, ResumeCase{"adamw", kMlp, "adamw", 1},
                    ResumeCase{"rmsprop", kMlp, "rmsprop:momentum=0.5", 2},
                    ResumeCase{"centered", kMlp, "rmsprop:centered=true", 1},
                    ResumeCase{"dampened", kMlp, "sgd:momentum=0.9,dampening=0.5", 1},
                    ResumeCase{"buffers", "resnet20", "sgd:momentum=0.9", 2}),
    [](const auto& each) { return each.param.name; });

TEST(Checkpoint, WhatIsDamagedIsNamed) {
  const fs::path file = scratch("damaged.npz");
  TrainConfig setup = config(kMlp, "mixed_float16", "dynamic");
  setup.lanes[0].plan.name = "a/variable/b";  // names may contain anything except commas
  const Checkpoint good = Trainer(setup, data()).checkpoint();
  save_checkpoint(file, good);
  Trainer(setup, data()).resume(load_checkpoint(file));
  const auto refuses = [&](auto change) {
    Checkpoint bad = good;
    change(bad);
    save_checkpoint(file, bad);
    EXPECT_THROW(load_checkpoint(file), Error);
  };
  refuses([](Checkpoint& c) { c.step = -5; });
  refuses([](Checkpoint& c) { c.stale_evaluations = -1; });
  // Scales of some frameworks do reach 0.
  refuses([](Checkpoint& c) { c.lanes.begin()->second.scaler.scale = -1.0; });
  refuses([](Checkpoint& c) { c.lanes.begin()->second.scaler.scale = NAN; });
  refuses([](Checkpoint& c) { c.lanes.begin()->second.updates = -1; });
  fs::remove(file);
  TrainConfig shorter = setup;
  shorter.steps = 2;
  Checkpoint far = good;
  far.step = 3;
  Trainer trainer(shorter, data());
  EXPECT_THROW(trainer.resume(far), Error);
}

TEST(Checkpoint, IsWrittenEverySoManyStepsAndAtTheEnd) {
  const fs::path file = scratch("every.npz");
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 5;
  setup.checkpoint = file;
  setup.checkpoint_every = 2;
  std::vector<int64_t> seen;
  Trainer trainer(setup, data());
  const std::atomic<bool> never{false};
  trainer.run(
      nullptr,
      [&](const std::vector<StepRow>&) {
        seen.push_back(fs::exists(file) ? load_checkpoint(file).step : 0);
      },
      never);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 0, 2, 2, 4}))
      << "progress comes before the checkpoint of its step";
  EXPECT_EQ(load_checkpoint(file).step, 5);
  fs::remove(file);
}

TEST(NoiseTwins, DifferByOneUlpInEveryWeight) {
  TrainConfig setup = config(kMlp, "float32", "none");
  setup.steps = 0;
  const NamedTensors plain = train(setup).weights;
  setup.lanes[0].noise_seed = 1;
  const NamedTensors first = train(setup).weights;
  setup.lanes[0].noise_seed = 2;
  const NamedTensors second = train(setup).weights;
  int64_t up = 0, same = 0, total = 0;
  for (const auto& [path, tensor] : plain) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      const float a = tensor.data[i], b = first.at(path).data[i];
      EXPECT_TRUE(b == std::nextafter(a, INFINITY) || b == std::nextafter(a, -INFINITY))
          << path << " " << i;
      up += std::fabs(b) > std::fabs(a) ? 1 : 0;
      same += b == second.at(path).data[i] ? 1 : 0;
      ++total;
    }
  }
  EXPECT_NEAR(static_cast<double>(up) / static_cast<double>(total), 0.5, 0.02);
  EXPECT_NEAR(static_cast<double>(same) / static_cast<double>(total), 0.5, 0.02)
      << "two twins are strangers";
}

NamedTensors running_statistics(const NamedTensors& weights) {
  NamedTensors result;
  for (const auto& [path, tensor] : weights) {
    if (path.ends_with(".running_mean") || path.ends_with(".running_var")) result[path] = tensor;
  }
  return result;
}

// A scale that makes every gradient overflow: all steps are skipped.
TEST(Buffers, StayAsTheyAreInASkippedStep) {
  TrainConfig setup = config("resnet20", "mixed_float16", "static:1e30");
  const Result skipped = train(setup, small_images());
  for (const StepRow& row : skipped.seen.rows) EXPECT_TRUE(row.skipped);
  setup.steps = 0;
  const NamedTensors start = train(setup, small_images()).weights;
  EXPECT_EQ(running_statistics(start).size(), 38u);
  expect_same_weights(skipped.weights, start);

  setup.steps = 3;
  setup.lanes[0].plan.buffers = BufferCommit::always;
  const Result always = train(setup, small_images());
  for (const StepRow& row : always.seen.rows) EXPECT_TRUE(row.skipped);
  EXPECT_GT(distance(running_statistics(always.weights), running_statistics(start)), 0.1)
      << "as frameworks do, they moved on in spite of the skips";
}

TEST(Buffers, BothWaysAgreeWhereNothingIsSkipped) {
  TrainConfig setup = config("resnet20", "float32", "none");
  const Result on_step = train(setup, small_images());
  setup.lanes[0].plan.buffers = BufferCommit::always;
  const Result always = train(setup, small_images());
  expect_same_weights(on_step.weights, always.weights);
  expect_same_steps(on_step.seen, always.seen);
}

// Running statistics after one step from 0 and 1: 0.1 of the batch's mean, 0.9 + 0.1 of the sample
// variance, worked out here from conv1's own activation.
TEST(Buffers, AreTheExponentialMeanOfTheBatches) {
  TrainConfig setup = config("resnet20", "float64", "none");
  setup.steps = 1;
  setup.shuffle = false;
  const Dataset& set = small_images();
  Trainer trainer(setup, set);
  const NamedTensors start = trainer.weights(0);
  const std::atomic<bool> never{false};
  trainer.run(nullptr, {}, never);
  const NamedTensors end = trainer.weights(0);
  const std::vector<float>& w = start.at("conv1.weight").data;
  for (size_t channel = 0; channel < 16; ++channel) {
    std::vector<double> y;
    for (int64_t sample = 0; sample < setup.batch; ++sample) {
      for (int64_t r = 0; r < 8; ++r) {
        for (int64_t c = 0; c < 8; ++c) {
          double sum = 0.0;
          for (int64_t in = 0; in < 3; ++in) {
            for (int64_t i = -1; i <= 1; ++i) {
              for (int64_t j = -1; j <= 1; ++j) {
                if (r + i < 0 || r + i > 7 || c + j < 0 || c + j > 7) continue;
                const size_t pixel =
                    static_cast<size_t>(((sample * 3 + in) * 8 + r + i) * 8 + c + j);
                const size_t tap = static_cast<size_t>(
                    ((static_cast<int64_t>(channel) * 3 + in) * 3 + i + 1) * 3 + j + 1);
                sum += static_cast<double>(w[tap]) *
                       static_cast<double>(static_cast<float>(set.train.pixels[pixel]) / 255.0f);
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
    double mean = 0.0, var = 0.0;
    for (double value : y) mean += value / static_cast<double>(y.size());
    for (double value : y)
      var += (value - mean) * (value - mean) / static_cast<double>(y.size() - 1);
    EXPECT_NEAR(static_cast<double>(end.at("bn1.running_mean").data[channel]), 0.1 * mean, 1e-7);
    EXPECT_NEAR(static_cast<double>(end.at("bn1.running_var").data[channel]), 0.9 + 0.1 * var,
                1e-6);
  }
}

// After one step from 1 with momentum 0.9 the running variance is 0.9 + 0.1 var, where var of the
// sample is n / (n - 1) that of the population: n = 16 images of 8 x 8 values a channel in bn1.
TEST(Buffers, RunningVariancesTakeTheVarianceThatIsAskedFor) {
  const Dataset& images = small_images();
  const auto after_a_step = [&](std::optional<RunningVariance> variance) {
    TrainConfig setup = config("resnet20", "float64", "none");
    setup.steps = 1;
    setup.build = [&images, variance](int64_t batch) {
      Model network = build_model("resnet20", batch, images.sample_shape, images.classes);
      if (variance) set_running_variance(network, *variance);
      return network;
    };
    return train(setup, images).weights.at("bn1.running_var").data;
  };
  const std::vector<float> sample = after_a_step(RunningVariance::sample),
                           population = after_a_step(RunningVariance::population);
  EXPECT_EQ(after_a_step(std::nullopt), sample) << "as PyTorch";
  constexpr double kN = 16 * 8 * 8;
  for (size_t c = 0; c < sample.size(); ++c) {
    const double of_population = (static_cast<double>(population[c]) - 0.9) / 0.1,
                 of_sample = (static_cast<double>(sample[c]) - 0.9) / 0.1;
    EXPECT_NEAR(of_sample, of_population * kN / (kN - 1.0), 2e-6);
    EXPECT_NE(sample[c], population[c]);
  }
  Model without = build_model("lenet", 4, {1, 16, 16}, 10);
  EXPECT_THROW(set_running_variance(without, RunningVariance::sample), Error);
}

}  // namespace
}  // namespace halfscope
