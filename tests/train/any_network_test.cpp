// SPDX-License-Identifier: MIT
// Networks of any kind train as in PyTorch in double (tests/oracle/any_network.py): regression,
// several inputs, a label for every position, a loss in the graph itself. Parts that do not match
// are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/models/loss.h"
#include "core/policy/policy.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using test::Collector;

const Json& oracle() {
  static const Json cases = [] {
    std::ifstream file(HALFSCOPE_SOURCE_DIR "/tests/oracle/vectors/any_network.json");
    return Json::parse(file);
  }();
  return cases;
}

ValueId linear(Graph& graph, const std::string& path, ValueId x, int64_t out) {
  const int64_t in = graph.value(x).shape.back();
  const ValueId w = graph.add_variable(path + ".weight", {out, in}, {});
  const ValueId b = graph.add_variable(path + ".bias", {out}, {});
  return graph.add1("Gemm", path, {x, w, b}, {{"transB", int64_t{1}}});
}

Model regression(int64_t batch) {
  Model model;
  model.name = "regression";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("input", {batch, 3});
  const ValueId hidden = graph.add1("Relu", "relu1", {linear(graph, "fc1", x, 8)});
  model.outputs = {{"y", linear(graph, "fc2", hidden, 2)}};
  return model;
}

Model two_inputs(int64_t batch) {
  Model model;
  model.name = "two_inputs";
  Graph& graph = model.graph;
  const ValueId a = graph.add_input("a", {batch, 3}), b = graph.add_input("b", {batch, 5});
  const ValueId sum =
      graph.add1("Add", "add", {linear(graph, "fc_a", a, 6), linear(graph, "fc_b", b, 6)});
  const ValueId relu = graph.add1("Relu", "relu", {sum});
  model.outputs = {{"hidden", relu}, {"scores", linear(graph, "fc_out", relu, 4)}};
  return model;
}

Model sequence(int64_t batch) {
  Model model;
  model.name = "sequence";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {batch, 5, 3});
  const ValueId rows = graph.add1("Reshape", "rows", {x}, {{"shape", Shape{-1, 3}}});
  model.outputs = {{"scores", graph.add1("Reshape", "scores", {linear(graph, "head", rows, 4)},
                                         {{"shape", Shape{batch, 5, 4}}})}};
  return model;
}

Model own_loss(int64_t batch) {
  Model model;
  model.name = "own_loss";
  Graph& graph = model.graph;
  const ValueId x = graph.add_input("x", {batch, 3});
  const ValueId difference = graph.add1("Sub", "sub", {linear(graph, "fc", x, 3), x});
  const ValueId square = graph.add1("Mul", "square", {difference, difference});
  const ValueId fourth = graph.add1("Mul", "fourth", {square, square});
  const ValueId mean = graph.add1("ReduceMean", "mean", {fourth},
                                  {{"axes", std::vector<int64_t>{0, 1}}, {"keepdims", int64_t{1}}});
  model.outputs = {{"difference", difference}, {"mean", mean}};
  return model;
}

struct Case {
  const char* name;
  Model (*build)(int64_t);
  const char* loss;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

constexpr Case kCases[] = {{"regression", regression, "mse"},
                           {"two_inputs", two_inputs, "cross-entropy:scores"},
                           {"sequence", sequence, "cross-entropy"},
                           {"own_loss", own_loss, "mean"}};

ModelBuilder builder(const Case& each) {
  return [each](int64_t batch) {
    Model model = each.build(batch);
    add_loss(model, parse_loss(each.loss));
    return model;
  };
}

Dataset data_of(const Json& json) {
  Dataset data{.name = "oracle", .sample_shape = {}, .train = {}, .test = {}};
  for (const auto& [name, array] : json.at("arrays").items()) {
    const DoubleTensor tensor{array.at("shape").get<Shape>(),
                              array.at("data").get<std::vector<double>>()};
    data.train.arrays.push_back(sample_array(name, tensor, "oracle"));
  }
  return data;
}

NamedTensors tensors_of(const Json& json) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : json.items()) {
    tensors[name] = {tensor.at("shape").get<Shape>(), tensor.at("data").get<std::vector<float>>()};
  }
  return tensors;
}

TrainConfig config_of(const Case& each, const std::string& plan) {
  const Json& json = oracle().at(each.name);
  TrainConfig config = test::config("unused", plan, "none");
  config.build = builder(each);
  config.loss = each.loss;
  config.optimizer = parse_optimizer(json.at("optimizer").get<std::string>());
  config.batch = json.at("batch");
  config.steps = json.at("steps");
  config.shuffle = false;
  config.init = tensors_of(json.at("weights"));
  return config;
}

class AnyNetwork : public testing::TestWithParam<Case> {
 protected:
  const Json& json() const { return oracle().at(GetParam().name); }
};

TEST_P(AnyNetwork, TrainsInDoubleAsPyTorchDoes) {
  const Dataset data = data_of(json());
  const test::Result result = test::train(config_of(GetParam(), "float64"), data);
  const std::vector<double> losses = json().at("losses");
  ASSERT_EQ(result.seen.rows.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(result.seen.rows[i].loss, losses[i], 1e-9 * std::fabs(losses[i])) << "step " << i;
  }
  const bool classifies = std::string(GetParam().loss).starts_with("cross");
  EXPECT_EQ(std::isnan(result.seen.rows[0].accuracy), !classifies);
  const NamedTensors trained = tensors_of(json().at("trained"));
  ASSERT_EQ(result.weights.size(), trained.size());
  for (const auto& [path, tensor] : trained) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      EXPECT_NEAR(result.weights.at(path).data[i], tensor.data[i], 2e-7) << path;
    }
  }
}

TEST_P(AnyNetwork, InFp32ItIsNearThatAndRecordsEverySite) {
  const Dataset data = data_of(json());
  const test::Result result = test::train(config_of(GetParam(), "float32"), data);
  const std::vector<double> losses = json().at("losses");
  EXPECT_NEAR(result.seen.rows.back().loss, losses.back(), 1e-4 * losses.back());
  for (const TensorStats& stats : result.seen.stats[0]) EXPECT_GT(stats.n, 0);
}

// Parts of a batch have the same mean as the whole; in double the sum's order changes the last
// bits.
TEST_P(AnyNetwork, MicroBatchesAddUp) {
  const Dataset data = data_of(json());
  TrainConfig parts = config_of(GetParam(), "float64");
  parts.micro_batches = 2;
  const test::Result whole = test::train(config_of(GetParam(), "float64"), data),
                     split = test::train(parts, data);
  for (size_t i = 0; i < whole.seen.rows.size(); ++i) {
    EXPECT_NEAR(split.seen.rows[i].loss, whole.seen.rows[i].loss, 1e-11) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Oracle, AnyNetwork, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// The test part has five samples; batches of two use four of them.
TEST(AnyNetwork, EvaluationsWithoutLabelsTakeWholeBatches) {
  Dataset data = data_of(oracle().at("own_loss"));
  data.test.arrays = data.train.arrays;
  SampleArray& x = data.test.arrays[0];
  x.samples = 5;
  x.reals.resize(15);
  TrainConfig config = config_of(kCases[3], "float64");
  config.batch = 2;
  config.steps = 1;
  config.optimizer.learning_rate = 0.0;
  config.evaluate = true;
  EXPECT_EQ(Trainer(config, data).describe().test_samples, 4);
  const test::Result result = test::train(config, data);
  ASSERT_EQ(result.seen.evals.size(), 1u);
  EXPECT_TRUE(std::isnan(result.seen.evals[0].accuracy));
  // By hand: the mean of the fourth powers over the first four samples.
  const NamedTensors weights = tensors_of(oracle().at("own_loss").at("weights"));
  double mean = 0.0;
  for (size_t sample = 0; sample < 4; ++sample) {
    for (size_t out = 0; out < 3; ++out) {
      double y = static_cast<double>(weights.at("fc.bias").data[out]);
      for (size_t in = 0; in < 3; ++in) {
        y += static_cast<double>(weights.at("fc.weight").data[out * 3 + in]) *
             static_cast<double>(x.reals[sample * 3 + in]);
      }
      mean += std::pow(y - static_cast<double>(x.reals[sample * 3 + out]), 4.0) / 12.0;
    }
  }
  EXPECT_NEAR(result.seen.evals[0].loss, mean, 1e-12);
  config.batch = 8;
  EXPECT_THROW(Trainer(config, data), Error) << "five samples make no batch of eight";
}

// A head that the loss does not depend on keeps its weights.
TEST(AnyNetwork, WhatTheLossDoesNotDependOnStays) {
  const Dataset data = data_of(oracle().at("regression"));
  TrainConfig config = config_of(kCases[0], "float32");
  config.build = [](int64_t batch) {
    Model model = regression(batch);
    const ValueId hidden = model.graph.node(1).outputs[0];
    model.outputs.push_back({"other", linear(model.graph, "other", hidden, 3)});
    model.initial["other.weight"] = {{3, 8}, std::vector<float>(24, 0.25f)};
    add_loss(model, parse_loss("mse:y"));
    return model;
  };
  const test::Result result = test::train(config, data);
  EXPECT_EQ(result.weights.at("other.weight").data, std::vector<float>(24, 0.25f));
  EXPECT_NE(result.weights.at("fc1.weight").data, config.init.at("fc1.weight").data);
}

// The loss's own nodes are fp32 in a plan that does everything else in fp16.
TEST(AnyNetwork, TheLossIsInFp32UnlessAPlanNamesIt) {
  Model model = regression(4);
  add_loss(model, parse_loss("mse"));
  Plan plan = preset_plan("float16").value();
  const auto formats = [&](const Executable& exe) {
    std::string text;
    for (const LayerInfo& layer : exe.layers) {
      if (layer.path.starts_with("loss")) text += format_name(layer.write) + " ";
    }
    return text;
  };
  EXPECT_EQ(formats(lower(model, plan, {})), "fp32 ");
  Plan named = plan;
  named.rules.push_back({.path = "loss", .op = "", .read = kFp16, .write = kFp16});
  EXPECT_EQ(formats(lower(model, named, {})), "fp16 ");
  plan.rules.push_back({.path = "loss", .op = "", .stagewise = true});
  EXPECT_EQ(formats(lower(model, plan, {})), "fp32 fp32 fp32 ");
  plan.rules.push_back({.path = "loss/Mul", .op = "", .read = kFp16, .write = kFp16});
  EXPECT_EQ(formats(lower(model, plan, {})), "fp32 fp16 fp32 ");
}

TEST(AnyNetwork, TheOptimizersStateHasAFormatOfItsOwn) {
  const Dataset data = data_of(oracle().at("two_inputs"));
  TrainConfig reference = config_of(kCases[1], "float32");
  const double right = test::train(reference, data).seen.rows.back().loss;
  reference.state_format = kBf16;
  EXPECT_EQ(test::train(reference, data).seen.rows.back().loss, right)
      << "of references it is fp32";
  TrainConfig config = config_of(kCases[1], "float32");
  config.lanes.back().plan.average_compute = kBf16;  // without averages, but no reference any more
  const test::Result exact = test::train(config, data);
  config.state_format = kBf16;
  const test::Result result = test::train(config, data);
  EXPECT_NE(result.seen.rows.back().loss, exact.seen.rows.back().loss);
  EXPECT_NEAR(result.seen.rows.back().loss, exact.seen.rows.back().loss, 0.05);
  Model model = builder(kCases[1])(4);
  const Executable exe =
      lower(model, Plan{}, {.optimizer = parse_optimizer("adam"), .state_format = kBf16});
  size_t states = 0;
  for (const Variable& variable : exe.graph.variables()) {
    const bool state = variable.path.find(".adam_") != std::string::npos;
    EXPECT_EQ(exe.graph.value(variable.value).format, state ? kBf16 : kFp32) << variable.path;
    states += state ? 1 : 0;
  }
  EXPECT_EQ(states, 12u);
}

std::string refusal(const TrainConfig& config, const Dataset& data) {
  try {
    Trainer trainer(config, data);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return std::string(error.what()) + "|" + error.hint();
  }
  return "accepted";
}

TEST(AnyNetwork, DataThatDoesNotFitIsAUsageError) {
  const Dataset good = data_of(oracle().at("two_inputs"));  // a, b, labels
  const TrainConfig config = config_of(kCases[1], "float32");
  EXPECT_EQ(refusal(config, good), "accepted");

  Dataset renamed = good;
  renamed.train.arrays[0].name = "c";
  EXPECT_EQ(refusal(config, renamed), "accepted") << "one of each is left over";
  renamed.train.arrays[1].name = "d";
  EXPECT_THAT(refusal(config, renamed), HasSubstr("no array for the network's input 'a'"));
  EXPECT_THAT(refusal(config, renamed), HasSubstr("a, b, labels; the data has: c, d, labels"));

  Dataset missing = good;
  missing.train.arrays.erase(missing.train.arrays.begin());
  EXPECT_THAT(refusal(config, missing), HasSubstr("input 'a'"));

  Dataset wide = good;
  wide.train.arrays[1].sample_shape = {6};
  wide.train.arrays[1].reals.resize(72);
  EXPECT_THAT(refusal(config, wide),
              HasSubstr("input 'b' has shape [4, 5], but a sample has shape [6]"));

  Dataset fractions = good;
  SampleArray& labels = fractions.train.arrays[2];
  labels.reals.assign(labels.integers.begin(), labels.integers.end());
  labels.integers.clear();
  EXPECT_THAT(refusal(config, fractions), HasSubstr("'labels' takes integers"));

  Dataset beyond = good;
  beyond.train.arrays[2].integers[3] = 4;
  EXPECT_THROW(Trainer(config, beyond), Error);

  TrainConfig fixed = config;
  fixed.build = [](int64_t) { return builder(kCases[1])(3); };
  EXPECT_THAT(refusal(fixed, good), HasSubstr("takes 3 samples at once, not 4"));
  fixed.batch = 6;
  fixed.micro_batches = 2;
  EXPECT_EQ(refusal(fixed, good), "accepted");

  EXPECT_THAT(refusal(config, test::data()), HasSubstr("the data has: images and labels"));
}

TEST(AnyNetwork, LossesThatDoNotFitAreUsageErrors) {
  const auto refused = [](Model model, const std::string& loss) -> std::string {
    try {
      add_loss(model, parse_loss(loss));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what()) + "|" + error.hint();
    }
    return "accepted";
  };
  EXPECT_THAT(refused(own_loss(4), "meen"), HasSubstr("|did you mean mean?"));
  EXPECT_THAT(refused(own_loss(4), "difference"), HasSubstr("of shape [4, 3] is not a loss"));
  EXPECT_THAT(refused(own_loss(4), "mse:nothing"), HasSubstr("no output 'nothing'"));
  EXPECT_THAT(refused(own_loss(4), ""), HasSubstr("has no name"));
  EXPECT_EQ(refused(own_loss(4), "mse:mean"), "accepted");
  EXPECT_EQ(refused(own_loss(4), "bce:mean"), "accepted");
  EXPECT_THAT(refused(regression(4), "cross-entropy,smoothing=1"),
              HasSubstr("'1' is not a smooth"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,smoothing="), HasSubstr("'' is not a smooth"));
  EXPECT_THAT(refused(regression(4), "mse,smoothing=0.1"), HasSubstr("only cross-entropy has"));
  Model vector = regression(4);
  vector.outputs[0].value = vector.graph.variables()[1].value;  // fc1.bias
  EXPECT_THAT(refused(vector, "cross-entropy"), HasSubstr("of shape [8]"));
  Model taken = regression(4);
  taken.graph.add_input("targets", {4, 2});
  EXPECT_THAT(refused(taken, "mse"), HasSubstr("already has an input 'targets'"));
}

TEST(AnyNetwork, AFileKeepsItsWeightsAndCheckpointsTellLossesApart) {
  const Dataset data = data_of(oracle().at("regression"));
  TrainConfig config = config_of(kCases[0], "float32");
  const NamedTensors weights = std::exchange(config.init, {});
  config.build = [weights](int64_t batch) {
    Model model = builder(kCases[0])(batch);
    model.initial = weights;
    return model;
  };
  EXPECT_EQ(Trainer(config, data).weights(0).at("fc1.weight").data, weights.at("fc1.weight").data);
  const Checkpoint checkpoint = Trainer(config, data).checkpoint();
  config.loss = "other";
  EXPECT_THROW(Trainer(config, data).resume(checkpoint), Error);
}

}  // namespace
}  // namespace halfscope
