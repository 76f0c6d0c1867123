// SPDX-License-Identifier: MIT
// Moving averages of the weights: what --ema accepts, averages that a format loses, skipped steps,
// checkpoints, evaluation, initial averages.
#include "core/lower/weight_average.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/lower/lower.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: helpers of these tests
namespace fs = std::filesystem;

TEST(WeightAverage, TextReadsBackAndMistakesAreNamed) {
  for (const char* text : {"0.999", "0.5:form=average",
                           "0.9999:form=average,format=bf16,compute=fp16", "0.9:format=e5m2"}) {
    EXPECT_EQ(weight_average_text(parse_weight_average(text)), text);
  }
  EXPECT_EQ(weight_average_text(parse_weight_average("0.9:form=lerp")), "0.9");
  for (const auto& [text, message] :
       {std::pair("1", "decay 1 is not between 0 and 1"), std::pair("0", "decay 0 is not"),
        std::pair("", "decay  is not"), std::pair("nan", "decay nan is not"),
        std::pair("0.9x", "decay 0.9x is not"),
        std::pair("0.9:form=mean", "unknown option 'form=mean'"),
        std::pair("0.9:steps=3", "unknown option 'steps=3'"),
        std::pair("0.9:format=bfloat15", "format=bfloat15: unknown format"),
        std::pair("0.9:format", "'format' is not KEY=VALUE"),
        std::pair("0.9:format=fp16:ftz-in", "only flushes operands")}) {
    try {
      parse_weight_average(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

/// A weight that climbs from 1 to 1.2 in 20000 steps; the average with decay 0.9999.
float average_of_ramp(WeightAverage::Form form, const FloatFormat& format, int64_t& lost) {
  Executable exe;
  Graph& graph = exe.graph;
  graph.add_variable("p.w", {1}, {});
  const ValueId moved = graph.add_input("moved", {1});
  graph.variables()[0].next = graph.add1("Assign", "p", {moved});
  const AverageValues values =
      add_weight_average(graph, 0, {.decay = 0.9999, .form = form}, format, kFp32);
  exe.entries[static_cast<size_t>(Entry::update)] = {0, 1};
  SiteInfo site;
  site.role = Role::update;
  site.phase = Phase::update;
  site.shape = {1};
  site.format = format;
  exe.taps = {{values.update, site}};
  const std::unique_ptr<Program> program = emulation_backend().compile(exe);
  program->write(values.average, std::vector<float>{1.0f});
  std::vector<TensorStats> stats(1);
  lost = 0;
  for (int step = 1; step <= 20000; ++step) {
    program->write(moved, std::vector<float>{1.0f + 1e-5f * static_cast<float>(step)});
    program->run(Entry::update, stats);
    lost += stats[0].lost;
  }
  return program->read(values.average).data[0];
}

// In closed form, the average of a ramp of slope s lags behind it by s d / (1 - d) (1 - d^n).
TEST(WeightAverage, StandsStillInBf16AndFp16ForTwentyThousandSteps) {
  constexpr double kSlope = 1e-5, kDecay = 0.9999, kSteps = 20000;
  const double lag = kSlope * kDecay / (1.0 - kDecay) * (1.0 - std::pow(kDecay, kSteps));
  for (const auto form : {WeightAverage::Form::lerp, WeightAverage::Form::average}) {
    int64_t lost = 0;
    const float full = average_of_ramp(form, kFp32, lost);
    EXPECT_NEAR(static_cast<double>(full), 1.0 + kSlope * kSteps - lag, 2e-3);
    EXPECT_LT(lost, 200);
    EXPECT_EQ(average_of_ramp(form, kBf16, lost), 1.0f);
    EXPECT_EQ(lost, 20000);
    EXPECT_EQ(average_of_ramp(form, kFp16, lost), 1.0f);
    EXPECT_EQ(lost, 20000);
  }
}

TrainConfig averaged(const std::string& plan, const std::string& scale, const std::string& text) {
  TrainConfig setup = config(kMlp, plan, scale);
  setup.average = parse_weight_average(text);
  return setup;
}

NamedTensors averages_after(const TrainConfig& setup, Collector* seen = nullptr) {
  Trainer trainer(setup, data());
  trainer.run(seen, {}, std::atomic<bool>{false});
  return trainer.averages(0);
}

// The weights after each number of steps, averaged here in double.
TEST(WeightAverage, IsTheAverageOfTheWeightsOfAllSteps) {
  TrainConfig setup = averaged("float64", "none", "0.75");
  setup.steps = 4;
  const NamedTensors ours = averages_after(setup);
  ASSERT_EQ(ours.size(), 6u);
  NamedTensors start, after;
  std::vector<NamedTensors> weights;
  for (int64_t steps = 0; steps <= 4; ++steps) {
    TrainConfig part = setup;
    part.steps = std::max<int64_t>(steps, 1);
    if (steps == 0) part.optimizer.learning_rate = 0.0;
    weights.push_back(train(part).weights);
  }
  for (const auto& [path, tensor] : ours) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      double e = static_cast<double>(weights[0].at(path).data[i]);
      for (size_t step = 1; step < weights.size(); ++step) {
        e = 0.75 * e + 0.25 * static_cast<double>(weights[step].at(path).data[i]);
      }
      EXPECT_NEAR(static_cast<double>(tensor.data[i]), e, 1e-7) << path;
    }
  }
}

TEST(WeightAverage, TrainingTakesNoNotice) {
  TrainConfig with = averaged("mixed_float16", "static:1024", "0.9:format=bf16");
  TrainConfig without = with;
  without.average.reset();
  expect_same_weights(train(with).weights, train(without).weights);
}

// Steps whose gradients overflow are skipped: the averages are those of the start, to the bit.
TEST(WeightAverage, SkippedStepsLeaveItAlone) {
  TrainConfig setup = averaged("mixed_float16", "dynamic:1e30", "0.9");
  Collector seen;
  const NamedTensors after = averages_after(setup, &seen);
  for (const StepRow& row : seen.rows) EXPECT_TRUE(row.skipped);
  TrainConfig still = setup;
  still.steps = 1;
  expect_same_weights(after, train(still).weights);
}

TEST(WeightAverage, ItsSitesHaveThePlansFormat) {
  TrainConfig setup = averaged("mixed_float16", "static:1024", "0.9999");
  setup.lanes[0].plan.average = kBf16;
  Collector seen;
  Trainer trainer(setup, data());
  trainer.run(&seen, {}, std::atomic<bool>{false});
  int found = 0;
  const RunInfo info = trainer.describe();
  for (const SiteInfo& site : info.lanes[0].sites) {
    if (!site.tensor.starts_with("weight_ema")) continue;
    const bool update = site.tensor == "weight_ema_update";
    EXPECT_EQ(site.format, kBf16);
    EXPECT_EQ(site.role, update ? Role::update : Role::state);
    EXPECT_EQ(site.phase, Phase::update);
    const TensorStats& stats = seen.stats.back().at(static_cast<size_t>(site.order));
    EXPECT_EQ(stats.n, element_count(site.shape));
    EXPECT_EQ(stats.lost > 0, update) << site.name();
    ++found;
  }
  EXPECT_EQ(found, 6);
}

TEST(WeightAverage, ResumesWithTheSameBits) {
  TrainConfig setup = averaged("bfloat16", "none", "0.9:form=average");
  setup.optimizer = parse_optimizer("adam");
  setup.steps = 6;
  Trainer whole(setup, data());
  whole.run(nullptr, {}, std::atomic<bool>{false});
  std::atomic<bool> stop{false};
  Trainer before(setup, data());
  before.run(
      nullptr, [&](const std::vector<StepRow>& rows) { stop = rows[0].step == 2; }, stop);
  const fs::path file =
      fs::temp_directory_path() / ("halfscope-" + std::to_string(::getpid()) + "-ema.npz");
  save_checkpoint(file, before.checkpoint());
  Trainer after(setup, data());
  after.resume(load_checkpoint(file));
  fs::remove(file);
  after.run(nullptr, {}, std::atomic<bool>{false});
  expect_same_weights(whole.averages(0), after.averages(0));
  TrainConfig other = setup;
  other.average->decay = 0.8;
  Trainer refuses(other, data());
  EXPECT_THROW(refuses.resume(before.checkpoint()), Error);
}

// The evaluation of a training with averages is that of a network which starts with them; after
// it the weights are the weights again.
TEST(WeightAverage, EvaluationsMayTakeIt) {
  for (const char* plan : {"float32", "mixed_float16", "float16", "float64"}) {
    SCOPED_TRACE(plan);
    TrainConfig setup = averaged(plan, "none", "0.5");
    setup.lanes[0].plan.average = kBf16;
    setup.evaluate = setup.evaluate_average = true;
    setup.evaluate_every = 1;
    Collector seen;
    const NamedTensors averages = averages_after(setup, &seen);
    TrainConfig plain = setup;
    plain.evaluate_average = false;
    expect_same_weights(train(setup).weights, train(plain).weights);
    TrainConfig start = config(kMlp, plan, "none");
    start.steps = 1;
    start.optimizer.learning_rate = 0.0;
    start.evaluate = true;
    start.init = averages;
    const EvalRow theirs = train(start).seen.evals.at(0);
    const double tolerance = std::string(plan) == "float64" ? 1e-6 : 0.0;
    EXPECT_NEAR(seen.evals.back().loss, theirs.loss, tolerance);
    EXPECT_EQ(seen.evals.back().accuracy, theirs.accuracy);
    EXPECT_NE(seen.evals.back().loss, train(plain).seen.evals.back().loss);
  }
}

TEST(WeightAverage, StartsWithTheWeightsOrWhatItIsGiven) {
  TrainConfig setup = averaged("float32", "none", "0.5");
  setup.optimizer.learning_rate = 0.0;
  const Result still = train(setup);
  expect_same_weights(averages_after(setup), still.weights);
  setup.steps = 1;
  const Tensor& bias = still.weights.at("fc1.bias");
  setup.init["fc1.bias.ema"] = {bias.shape, std::vector<float>(bias.data.size(), 4.0f)};
  const NamedTensors given = averages_after(setup);
  for (size_t i = 0; i < bias.data.size(); ++i) {
    EXPECT_EQ(given.at("fc1.bias").data[i], 4.0f + 0.5f * (bias.data[i] - 4.0f));
  }
  TrainConfig without = setup;
  without.average.reset();
  expect_same_weights(train(without).weights, still.weights);
  setup.init["fc9.bias.ema"] = bias;
  EXPECT_THROW(train(setup), Error);
}

}  // namespace
}  // namespace halfscope
