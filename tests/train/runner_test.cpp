// SPDX-License-Identifier: MIT
// Inference in lanes: outputs against a plain evaluation in double, accuracies against the
// trainer's own evaluation, statistics of every site, comparisons of lanes, batches that do not
// divide.
#include "core/train/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/train/failing_backend.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using testing::Contains;
using testing::HasSubstr;

RunnerConfig lanes(const std::vector<std::string>& plans) {
  RunnerConfig config;
  for (const std::string& plan : plans) {
    config.lanes.push_back(test::lane(preset_plan(plan).value(), "none"));
  }
  return config;
}

/// `samples` vectors of six numbers with a label each.
Dataset vectors(int64_t samples) {
  Dataset data{.name = "vectors", .sample_shape = {}, .train = {}, .test = {}};
  SampleArray array{.name = "input", .sample_shape = {6}, .samples = samples};
  for (int64_t i = 0; i < samples * 6; ++i) {
    array.reals.push_back(
        static_cast<float>(splitmix64(static_cast<uint64_t>(i)) >> 40) * 0x1p-23f - 1.0f);
  }
  data.test.arrays.push_back(std::move(array));
  return data;
}

Model mlp(int64_t batch) { return build_network("mlp:6-5-3", batch, {6}, 3); }

/// Computes the same network with plain loops in double.
std::vector<double> mlp_by_hand(const NamedTensors& weights, const float* x) {
  std::vector<double> values(x, x + 6);
  for (const std::string path : {"fc1", "fc2"}) {
    const Tensor& w = weights.at(path + ".weight");
    std::vector<double> next;
    for (int64_t out = 0; out < w.shape[0]; ++out) {
      double sum = static_cast<double>(weights.at(path + ".bias").data[static_cast<size_t>(out)]);
      for (size_t in = 0; in < values.size(); ++in) {
        sum +=
            values[in] * static_cast<double>(w.data[static_cast<size_t>(out) * values.size() + in]);
      }
      next.push_back(path == "fc1" ? std::max(sum, 0.0) : sum);
    }
    values = next;
  }
  return values;
}

NamedTensors outputs_of(const Model& model, const RunnerConfig& config, const Dataset& data,
                        TapSink* sink = nullptr, size_t lane = 0) {
  Runner runner(model, config, data);
  runner.run(sink, {}, std::atomic<bool>{false});
  EXPECT_EQ(runner.samples_done(), data.test.size());
  return runner.result(lane).outputs;
}

// Padding must not affect any output.
TEST(Runner, SumsOverABatchNeedWholeBatches) {
  Model model = mlp(4);
  const ValueId mean = model.graph.add1("ReduceMean", "mean", {model.outputs[0].value});
  model.outputs.push_back({"mean", mean});
  const Dataset eight = vectors(8), ten = vectors(10);
  Runner whole(model, lanes({"float32"}), eight);
  whole.run(nullptr, {}, std::atomic<bool>{false});
  EXPECT_EQ(whole.result(0).outputs.at("mean").shape[0], 2);
  try {
    Runner(model, lanes({"float32"}), ten);
    ADD_FAILURE() << "two of four samples are padding";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("output 'mean' of shape"));
    EXPECT_THAT(error.hint(), HasSubstr("use --batch 2, or --limit 8"));
  }
}

TEST(Runner, OutputsAreTheNetworks) {
  const Dataset data = vectors(11);
  const NamedTensors weights = initial_weights(mlp(1).graph, 1);
  for (const int64_t batch : {1, 4, 11}) {
    const NamedTensors outputs = outputs_of(mlp(batch), lanes({"float64"}), data);
    ASSERT_EQ(outputs.size(), 1u);
    const Tensor& logits = outputs.at("logits");
    ASSERT_EQ(logits.shape, (Shape{11, 3})) << "the zeros of the last batch are left out";
    for (size_t i = 0; i < 11; ++i) {
      const std::vector<double> wanted =
          mlp_by_hand(weights, data.test.arrays[0].reals.data() + 6 * i);
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(logits.data[3 * i + c], static_cast<float>(wanted[c])) << i;
      }
    }
  }
}

// Evaluations of a training are inference, too: running statistics, no losses in the way.
TEST(Runner, ScoresAreThoseOfTheTrainersEvaluation) {
  const Dataset& data = test::small_images();
  for (const char* plan : {"float32", "mixed_float16", "float64"}) {
    TrainConfig config = test::config("resnet20", plan, "none");
    config.steps = 2;
    config.evaluate = true;
    const test::Result trained = test::train(config, data);
    RunnerConfig run = lanes({plan});
    run.init = trained.weights;
    run.labels.values = data.test.labels;
    Runner runner(build_network("resnet20", 16, data.sample_shape, 10), run, data);
    runner.run(nullptr, {}, std::atomic<bool>{false});
    EXPECT_EQ(runner.result(0).scored, 48);
    EXPECT_NEAR(runner.result(0).accuracy(), trained.seen.evals.at(0).accuracy, 1e-12) << plan;
    EXPECT_NEAR(runner.result(0).auc, trained.seen.evals.at(0).auc, 1e-12) << plan;
  }
}

TEST(Runner, EverySiteIsMeasuredAndLanesAreCompared) {
  const Dataset data = vectors(8);
  RunnerConfig config = lanes({"float32", "float16"});
  config.errors.enabled = true;
  test::Collector seen;
  Runner runner(mlp(4), config, data);
  const RunInfo info = runner.describe();
  EXPECT_TRUE(info.inference);
  EXPECT_EQ(info.steps_planned, 2);
  runner.run(&seen, {}, std::atomic<bool>{false});
  ASSERT_EQ(seen.stats.size(), 4u) << "two batches of two lanes";
  std::vector<std::string> names;
  for (size_t lane = 0; lane < 2; ++lane) {
    const std::vector<SiteInfo>& sites = info.lanes[lane].sites;
    ASSERT_EQ(seen.stats[lane].size(), sites.size());
    for (const SiteInfo& site : sites) {
      const TensorStats& stats = seen.stats[lane][static_cast<size_t>(site.order)];
      EXPECT_EQ(stats.n, element_count(site.shape)) << site.name();
      if (lane == 1) names.push_back(site.name() + " " + format_name(site.format));
    }
  }
  EXPECT_THAT(
      names, testing::ElementsAre("input.input fp16", "fc1.weight fp16", "fc1.bias fp16",
                                  "fc1.activation fp16", "relu1.activation fp16", "fc2.weight fp16",
                                  "fc2.bias fp16", "fc2.activation fp16"));
  EXPECT_EQ(seen.ends, std::vector<RunEnd>{RunEnd::complete});
  // The first tensor to differ is the data itself, rounded to fp16.
  ASSERT_FALSE(seen.errors.empty());
  std::set<int> compared;
  for (const auto& [lane, error] : seen.errors) {
    EXPECT_EQ(lane, 1);
    compared.insert(error.site);
    if (error.site == 3) {
      EXPECT_GT(error.differing, 0);
      EXPECT_GT(error.local_fp64, 0.0);
      EXPECT_LT(error.local_fp64, 0x1p-11) << "one rounding to fp16";
    }
  }
  EXPECT_EQ(compared.size(), 8u);
  for (const StepRow& row : seen.rows) {
    EXPECT_TRUE(std::isnan(row.loss));
    EXPECT_TRUE(std::isnan(row.accuracy));
    EXPECT_EQ(row.first_bad, -1);
  }
}

TEST(Runner, RecordingChangesNothing) {
  const Dataset data = vectors(8);
  RunnerConfig config = lanes({"float16"}), quiet = config;
  quiet.every = 0;
  test::Collector seen;
  EXPECT_EQ(outputs_of(mlp(4), config, data, &seen).at("logits").data,
            outputs_of(mlp(4), quiet, data).at("logits").data);
}

TEST(Runner, AnOverflowIsSeenWhereItHappens) {
  Dataset data = vectors(4);
  data.test.arrays[0].reals[7] = 1e5f;
  test::Collector seen;
  outputs_of(mlp(4), lanes({"float16"}), data, &seen);
  EXPECT_EQ(seen.rows.at(0).first_bad, 0) << "the data";
  EXPECT_EQ(seen.stats.at(0).at(0).overflow, 1);
}

/// Two inputs, two outputs, one of which is an input's sum; and no dimension for samples.
Model two_by_two() {
  Model model;
  model.name = "two_by_two";
  Graph& graph = model.graph;
  const ValueId a = graph.add_input("a", {3}), b = graph.add_input("b.c", {3});
  graph.add_input("unused", {7});
  const ValueId sum = graph.add1("Add", "add", {a, b});
  const ValueId total = graph.add1("ReduceSum", "total", {sum}, {{"keepdims", int64_t{0}}});
  model.outputs = {{"sum", sum}, {"total", total}, {"a again", a}};
  return model;
}

// Data with labels needs no name that the network has.
TEST(Runner, TheOnlyArrayGoesToTheOnlyInput) {
  Dataset data = vectors(4);
  const std::vector<float> named = outputs_of(mlp(4), lanes({"float32"}), data).at("logits").data;
  data.test.arrays[0].name = "pictures";
  data.test.arrays.push_back(
      {.name = "labels", .sample_shape = {}, .integers = {0, 1, 2, 0}, .samples = 4});
  EXPECT_EQ(outputs_of(mlp(4), lanes({"float32"}), data).at("logits").data, named);
  data.test.arrays[1].name = "more";
  EXPECT_THROW(Runner(mlp(4), lanes({"float32"}), data), Error);
}

TEST(Runner, SeveralInputsAndOutputsByName) {
  Dataset data{.name = "pairs", .sample_shape = {}, .train = {}, .test = {}};
  data.test.arrays = {
      {.name = "b.c", .sample_shape = {3}, .reals = {.5f, 1, 2, 3, 4, 5}, .samples = 2},
      {.name = "a", .sample_shape = {3}, .integers = {1, 2, 3, -4, -5, -6}, .samples = 2}};
  const NamedTensors outputs = outputs_of(two_by_two(), lanes({"float32"}), data);
  EXPECT_EQ(outputs.at("sum").shape, (Shape{2, 3}));
  EXPECT_EQ(outputs.at("sum").data, (std::vector<float>{1.5f, 3, 5, -1, -1, -1}));
  EXPECT_EQ(outputs.at("total").shape, Shape{2});
  EXPECT_EQ(outputs.at("total").data, (std::vector<float>{9.5f, -3}));
  EXPECT_EQ(outputs.at("a again").data, (std::vector<float>{1, 2, 3, -4, -5, -6}));
  std::vector<std::string> names;
  const RunInfo info = Runner(two_by_two(), lanes({"float32"}), data).describe();
  for (const SiteInfo& site : info.lanes[0].sites) {
    names.push_back(site.name());
  }
  EXPECT_THAT(names, testing::ElementsAre("input.input", "input.b_c", "add.activation",
                                          "total.activation"));
}

TEST(Runner, ImagesGoChannelsLastWhereTheNetworkWantsThat) {
  const Dataset& data = test::small_images();
  const auto pass_on = [](Shape shape) {
    Model model;
    model.name = "pass";
    const ValueId x = model.graph.add_input("image", std::move(shape));
    model.outputs = {{"out", model.graph.add1("Neg", "neg", {x})}};
    return model;
  };
  const std::vector<float> first =
      outputs_of(pass_on({16, 3, 8, 8}), lanes({"float32"}), data).at("out").data;
  const std::vector<float> last =
      outputs_of(pass_on({16, 8, 8, 3}), lanes({"float32"}), data).at("out").data;
  const std::vector<float> flat =
      outputs_of(pass_on({16, 192, 1}), lanes({"float32"}), data).at("out").data;
  EXPECT_EQ(first, flat);
  ASSERT_EQ(first.size(), last.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const size_t sample = i / 192, channel = i / 64 % 3, pixel = i % 64;
    ASSERT_EQ(first[i], last[sample * 192 + pixel * 3 + channel]);
    ASSERT_EQ(first[i], -static_cast<float>(data.test.pixels[i]) / 255.0f);
  }
}

TEST(Runner, DelayedScalesMoveOnFromBatchToBatch) {
  Dataset data = vectors(8);
  for (float& x : data.test.arrays[0].reals) x *= 1000.0f;  // beyond e4m3fn at scale 1
  test::Collector seen;
  Runner runner(mlp(4), lanes({"fp8_delayed"}), data);
  runner.run(&seen, {}, std::atomic<bool>{false});
  EXPECT_GT(seen.stats.at(0).at(0).overflow, 0);
  EXPECT_EQ(seen.stats.at(1).at(0).overflow, 0);
}

TEST(Runner, WhatDoesNotFitIsAUsageError) {
  const auto refused = [](const Model& model, const RunnerConfig& config, const Dataset& data) {
    try {
      Runner runner(model, config, data);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Dataset data = vectors(4);
  RunnerConfig labelled = lanes({"float32"});
  labelled.labels.values = {0, 1, 2};
  EXPECT_EQ(refused(mlp(2), labelled, data), "there are 3 labels for 4 samples");
  labelled.labels.values = {0, 1, 2, 3};
  EXPECT_EQ(refused(mlp(2), labelled, data), "label 3 is not in 0..2");
  labelled.labels.ignored = 3;
  EXPECT_EQ(refused(mlp(2), labelled, data), "accepted");
  labelled.labels.values = {0, 1, 2, -1};
  EXPECT_EQ(refused(mlp(2), labelled, data), "label -1 is not in 0..2") << "not the ignored one";
  labelled.labels.output = "logit";
  EXPECT_EQ(refused(mlp(2), labelled, data), "the network has no output 'logit'");
  EXPECT_THAT(refused(build_network("mlp:7-3", 2, {7}, 3), lanes({"float32"}), data),
              HasSubstr("input 'input' has shape [2, 7], but a sample has shape [6]"));
  EXPECT_THAT(refused(mlp(2), lanes({}), data), HasSubstr("there are no lanes"));
  EXPECT_THAT(refused(mlp(2), lanes({"float32"}), Dataset{}), HasSubstr("no samples"));
  RunnerConfig pairs = lanes({"float32", "float16"});
  pairs.errors = {.enabled = true, .every = 1, .pairs = {{"float16", "float23"}}};
  EXPECT_THAT(refused(mlp(2), pairs, data), HasSubstr("there is no lane 'float23'"));
}

/// Returns the outputs of a lane; nothing for a failed one.
std::vector<float> logits(const Runner& runner, size_t lane) {
  return runner.result(lane).outputs.at("logits").data;
}

// The second of three lanes fails in its third batch: the others give what they give without it,
// and the run file has the batches before.
TEST(RunnerLanes, OneThatFailsEndsAlone) {
  const Dataset data = vectors(20);
  for (const bool out_of_memory : {false, true}) {
    const test::FailingBackend failing(Entry::eval, 3, out_of_memory);
    RunnerConfig config = lanes({"float32", "mixed_float16", "bfloat16"});
    config.errors.enabled = true;
    config.errors.every = 1;
    config.lanes[1].backend = &failing;
    Runner runner(mlp(4), config, data);
    const std::string file = testing::TempDir() + "halfscope_lost_batch.hscope";
    Recorder recorder(file, {.force = true});
    recorder.begin(runner.describe());
    int batches = 0;
    runner.run(
        &recorder, [&](const std::vector<StepRow>&) { ++batches; }, std::atomic<bool>{false});
    EXPECT_EQ(batches, 5);
    ASSERT_EQ(runner.lost_lanes().size(), 1u);
    EXPECT_EQ(runner.lost_lanes()[0].name, "mixed_float16");
    EXPECT_EQ(runner.lost_lanes()[0].step, 2);
    EXPECT_EQ(runner.lost_lanes()[0].why,
              out_of_memory ? "out of memory" : "CUDA launch: unspecified launch failure");
    EXPECT_FALSE(runner.has_lane(1));
    EXPECT_TRUE(runner.has_lane(2));

    RunnerConfig without = lanes({"float32", "bfloat16"});
    Runner alone(mlp(4), without, data);
    alone.run(nullptr, {}, std::atomic<bool>{false});
    EXPECT_EQ(logits(runner, 0), logits(alone, 0));
    EXPECT_EQ(logits(runner, 2), logits(alone, 1));
    EXPECT_EQ(logits(runner, 1).size(), 2u * 4u * 3u) << "the batches before";

    const RunView run = RunView::open(file);
    EXPECT_EQ(run.status(), RunStatus::complete);
    EXPECT_EQ(run.steps(0).size(), 5u);
    EXPECT_EQ(run.steps(1).size(), 2u);
    EXPECT_EQ(run.steps(2).size(), 5u);
  }
}

// A comparison has to find out which of the two lanes cannot be read.
TEST(RunnerLanes, TheOneThatFailsAComparisonIsLost) {
  const Dataset data = vectors(8);
  const test::FailingBackend failing(Entry::begin, 1);  // in comparisons
  RunnerConfig config = lanes({"float32", "mixed_float16"});
  config.errors.enabled = true;
  config.lanes[1].backend = &failing;
  Runner runner(mlp(4), config, data);
  test::Collector seen;
  runner.run(&seen, {}, std::atomic<bool>{false});
  ASSERT_EQ(runner.lost_lanes().size(), 1u);
  EXPECT_EQ(runner.lost_lanes()[0].name, "mixed_float16");
  EXPECT_EQ(seen.rows.size(), 2u);
  EXPECT_EQ(seen.ends, std::vector<RunEnd>{RunEnd::complete});
}

TEST(RunnerLanes, OneWithoutMemoryIsLostBeforeTheFirstBatch) {
  const Dataset data = vectors(8);
  const test::FailingBackend failing(test::FailingBackend::SetUp::compile, [] {
    throw DeviceError("CUDA allocation of 3 MiB: out of memory", "lower --batch");
  });
  RunnerConfig config = lanes({"float32", "mixed_float16", "bfloat16"});
  config.errors.enabled = true;
  config.lanes[0].backend = &failing;
  Runner runner(mlp(4), config, data);
  const std::string file = testing::TempDir() + "halfscope_lost_at_once.hscope";
  Recorder recorder(file, {.force = true});
  recorder.begin(runner.describe());
  runner.run(&recorder, {}, std::atomic<bool>{false});
  ASSERT_EQ(runner.lost_lanes().size(), 1u);
  EXPECT_EQ(runner.lost_lanes()[0].step, 0);
  EXPECT_FALSE(runner.has_lane(0));
  EXPECT_TRUE(runner.result(0).outputs.empty());
  const RunView run = RunView::open(file);
  EXPECT_EQ(run.status(), RunStatus::complete);
  ASSERT_TRUE(run.lost(0));
  EXPECT_EQ(run.lost(0)->why, "CUDA allocation of 3 MiB: out of memory");
  EXPECT_EQ(run.steps(0).size(), 0u);
  EXPECT_EQ(run.steps(1).size(), 2u);

  config.lanes = {config.lanes[0]};
  try {
    const Runner alone(mlp(4), config, data);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "lane float32: CUDA allocation of 3 MiB: out of memory");
    EXPECT_EQ(error.hint(), "lower --batch");
  }
}

TEST(RunnerLanes, TheLastOneEndsTheRun) {
  const Dataset data = vectors(20);
  const test::FailingBackend first(Entry::eval, 2), second(Entry::eval, 4, true);
  RunnerConfig config = lanes({"float32", "bfloat16"});
  config.lanes[0].backend = &first;
  config.lanes[1].backend = &second;
  Runner runner(mlp(4), config, data);
  test::Collector seen;
  try {
    runner.run(&seen, {}, std::atomic<bool>{false});
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "lane bfloat16 failed at batch 3: out of memory");
    EXPECT_EQ(error.hint(), "lower --batch or --limit, or run fewer lanes");
  }
  EXPECT_EQ(seen.ends, std::vector<RunEnd>{RunEnd::interrupted});
  EXPECT_EQ(seen.rows.size(), 1u + 3u);
}

}  // namespace
}  // namespace halfscope
