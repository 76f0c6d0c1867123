// SPDX-License-Identifier: MIT
// Networks of any kind train as in PyTorch in double (tests/oracle/any_network.py): regression,
// several inputs, a label for every position, a loss in the graph itself. Parts that do not match
// are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/models/loss.h"
#include "core/policy/policy.h"
#include "tests/train/oracle_networks.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using namespace test;  // NOLINT: helpers of these tests

constexpr OracleCase kCases[] = {
    {"regression", regression, "mse"},        {"two_inputs", two_inputs, "cross-entropy:scores"},
    {"sequence", sequence, "cross-entropy"},  {"own_loss", own_loss, "mean"},
    {"largest_moments", regression, "mse"},   {"betas_of_groups", regression, "mse"},
    {"momenta_of_groups", regression, "mse"}, {"dampened", regression, "mse"},
    {"centered", regression, "mse"},          {"maximized", regression, "mse"},
    {"maximized_groups", regression, "mse"},  {"cycled_momenta", regression, "mse"},
    {"cycled_betas", regression, "mse"},      {"cycled_rms_momenta", regression, "mse"},
    {"rates_of_groups", regression, "mse"}};

/// Parts of their batches have other means than the whole: their labels weigh differently.
constexpr OracleCase kWeighted[] = {
    {"weighted_classes", sequence, "cross-entropy,weights=0.25/2/0/1.5"},
    {"weighted_smoothed_classes", sequence, "cross-entropy,smoothing=0.25,weights=0.25/2/0/1.5"}};

class AnyNetwork : public testing::TestWithParam<OracleCase> {
 protected:
  const Json& json() const { return oracle().at(GetParam().name); }
};

void expect_pytorchs_training(const OracleCase& each) {
  const Json& json = oracle().at(each.name);
  const Dataset data = data_of(json);
  const test::Result result = test::train(config_of(each, "float64"), data);
  const std::vector<double> losses = json.at("losses");
  ASSERT_EQ(result.seen.rows.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(result.seen.rows[i].loss, losses[i], 1e-9 * std::fabs(losses[i])) << "step " << i;
  }
  const bool classifies = std::string(each.loss).starts_with("cross");
  EXPECT_EQ(std::isnan(result.seen.rows[0].accuracy), !classifies);
  const NamedTensors trained = tensors_of(json.at("trained"));
  ASSERT_EQ(result.weights.size(), trained.size());
  for (const auto& [path, tensor] : trained) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      EXPECT_NEAR(result.weights.at(path).data[i], tensor.data[i], 2e-7) << path;
    }
  }
}

TEST_P(AnyNetwork, TrainsInDoubleAsPyTorchDoes) { expect_pytorchs_training(GetParam()); }

TEST(AnyNetwork, TrainsWithWeightsOfClassesAsPyTorchDoes) {
  for (const OracleCase& each : kWeighted) {
    SCOPED_TRACE(each.name);
    expect_pytorchs_training(each);
    const Json& json = oracle().at(each.name);
    const test::Result result = test::train(config_of(each, "float32"), data_of(json));
    const std::vector<double> losses = json.at("losses");
    EXPECT_NEAR(result.seen.rows.back().loss, losses.back(), 1e-5 * losses.back());
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
  EXPECT_THAT(refused(regression(4), "bce,axis=1"), HasSubstr("only cross-entropy has axis"));
  EXPECT_THAT(refused(regression(4), "mse,logits"), HasSubstr("cross-entropy and bce have logits"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,ignore=x"), HasSubstr("'x' is not a label"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,axis="), HasSubstr("'' is not the number"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,weights=1/x"),
              HasSubstr("'x' is not a weight"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,weights=1/"), HasSubstr("'' is not a weight"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,weights=-1/1"), HasSubstr("'-1' is not a wei"));
  EXPECT_THAT(refused(regression(4), "cross-entropy,weights=1/2/3"),
              HasSubstr("weights for 3 classes, but output 'y' has 2"));
  EXPECT_THAT(refused(regression(4), "bce,weights=1/2"), HasSubstr("only cross-entropy has wei"));
  Model vector = regression(4);
  vector.outputs[0].value = vector.graph.variables()[1].value;  // fc1.bias
  EXPECT_THAT(refused(vector, "cross-entropy"), HasSubstr("of shape [8]"));
  Model taken = regression(4);
  taken.graph.add_input("targets", {4, 2});
  EXPECT_THAT(refused(taken, "mse"), HasSubstr("already has an input 'targets'"));
}

/// A network whose output is its input times a weight of one, and the loss of the first step.
struct ScoreCase {
  Shape scores;  // of one sample
  Shape labels;
  std::string loss;
  const char* last = "";  // an operator behind the product, over `softmax_axis`
  int64_t softmax_axis = -1;
};

Model scored(const Shape& sample, int64_t batch, const ScoreCase& each) {
  Model model;
  model.name = "scored";
  Graph& graph = model.graph;
  Shape shape = sample;
  shape.insert(shape.begin(), batch);
  const ValueId x = graph.add_input("x", shape);
  const ValueId w = graph.add_variable("w", {1}, {});
  model.initial["w"] = {{1}, {1.0f}};
  ValueId y = graph.add1("Mul", "mul", {x, w});
  if (*each.last != 0) {
    Attributes attributes;
    if (std::string(each.last) == "Softmax") attributes["axis"] = each.softmax_axis;
    y = graph.add1(each.last, "last", {y}, attributes);
  }
  model.outputs = {{"y", y}};
  return model;
}

double noise(int64_t i) { return std::sin(1.7 * static_cast<double>(i) + 0.3); }

/// Trains one step of two samples; labels count from `first` on.
test::Result train_scored(const ScoreCase& each, std::vector<int32_t> labels,
                          std::vector<std::string>* notes = nullptr) {
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  SampleArray x{.name = "x", .sample_shape = each.scores, .samples = 2};
  for (int64_t i = 0; i < 2 * element_count(each.scores); ++i)
    x.reals.push_back(static_cast<float>(noise(i)));
  SampleArray y{.name = "labels", .sample_shape = each.labels, .samples = 2};
  y.integers = std::move(labels);
  data.train.arrays = {x, y};
  TrainConfig config = test::config("unused", "float64", "none");
  config.build = [&](int64_t batch) {
    Model model = scored(each.scores, batch, each);
    LossSpec spec = parse_loss(each.loss);
    spec.label_shape = each.labels;
    std::vector<std::string> said = add_loss(model, spec);
    if (notes != nullptr) *notes = std::move(said);
    return model;
  };
  config.batch = 2;
  config.steps = 1;
  config.shuffle = false;
  return test::train(config, data);
}

/// Mean cross-entropy of scores [2, before, classes, after] by hand; labels [2, before, after].
double cross_entropy_by_hand(int64_t before, int64_t classes, int64_t after,
                             const std::vector<int32_t>& labels, int32_t ignored) {
  double total = 0.0;
  int64_t count = 0, row = 0;
  for (int64_t outer = 0; outer < 2 * before; ++outer) {
    for (int64_t inner = 0; inner < after; ++inner, ++row) {
      const int32_t label = labels[static_cast<size_t>(row)];
      if (label == ignored) continue;
      const auto score = [&](int64_t c) {
        const int64_t at = (outer * classes + c) * after + inner;
        return static_cast<double>(static_cast<float>(noise(at)));
      };
      double sum = 0.0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(score(c));
      total += std::log(sum) - score(label);
      ++count;
    }
  }
  return total / static_cast<double>(count);
}

// PyTorch has the classes in dimension 1. The shape of the labels says which dimension it is; where
// it fits two, the option decides, and a note says so.
TEST(AnyNetwork, ClassesAreInAnyDimension) {
  const auto labels = [](int64_t count, int32_t classes) {
    std::vector<int32_t> list;
    for (int64_t i = 0; i < count; ++i)
      list.push_back(static_cast<int32_t>(7 * i + i / 3) % classes);
    return list;
  };
  const auto first_loss = [](const ScoreCase& each, const std::vector<int32_t>& list) {
    return train_scored(each, list).seen.rows.at(0).loss;
  };
  const std::vector<int32_t> pixels = labels(2 * 3 * 5, 4), words = labels(2 * 6, 4),
                             square = labels(2 * 4, 4);
  EXPECT_NEAR(first_loss({{4, 3, 5}, {3, 5}, "cross-entropy"}, pixels),
              cross_entropy_by_hand(1, 4, 15, pixels, -100), 1e-12);
  EXPECT_NEAR(first_loss({{3, 5, 4}, {3, 5}, "cross-entropy"}, pixels),
              cross_entropy_by_hand(15, 4, 1, pixels, -100), 1e-12);
  EXPECT_NEAR(first_loss({{4, 6}, {6}, "cross-entropy"}, words),
              cross_entropy_by_hand(1, 4, 6, words, -100), 1e-12);
  EXPECT_NEAR(first_loss({{6, 4}, {6}, "cross-entropy"}, words),
              cross_entropy_by_hand(6, 4, 1, words, -100), 1e-12);
  std::vector<std::string> notes;
  const double last =
      train_scored({{4, 4}, {4}, "cross-entropy"}, square, &notes).seen.rows.at(0).loss;
  EXPECT_NEAR(last, cross_entropy_by_hand(4, 4, 1, square, -100), 1e-12);
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("in dimension 2 or 1; the loss takes 2")));
  const double second =
      train_scored({{4, 4}, {4}, "cross-entropy,axis=1"}, square, &notes).seen.rows.at(0).loss;
  EXPECT_NEAR(second, cross_entropy_by_hand(1, 4, 4, square, -100), 1e-12);
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_THROW(first_loss({{4, 4}, {4}, "cross-entropy,axis=3"}, square), Error);
}

// Rows with PyTorch's label -100, or the one that is named, do not count.
TEST(AnyNetwork, IgnoredLabelsDoNotCount) {
  const auto first_loss = [](const std::string& loss, const std::vector<int32_t>& list) {
    return train_scored({{6, 4}, {6}, loss}, list).seen.rows.at(0);
  };
  std::vector<int32_t> labels{0, 1, -100, 3, 2, -100, 1, 1, 0, -100, 2, 3};
  EXPECT_NEAR(first_loss("cross-entropy", labels).loss,
              cross_entropy_by_hand(6, 4, 1, labels, -100), 1e-12);
  const double accuracy = first_loss("cross-entropy", labels).accuracy;
  std::replace(labels.begin(), labels.end(), -100, 255);
  const StepRow named = first_loss("cross-entropy,ignore=255", labels);
  EXPECT_NEAR(named.loss, cross_entropy_by_hand(6, 4, 1, labels, 255), 1e-12);
  EXPECT_EQ(named.accuracy, accuracy);
  try {
    first_loss("cross-entropy", labels);
    ADD_FAILURE() << "255 is no class";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("label 255"));
    EXPECT_THAT(error.hint(), HasSubstr("cross-entropy,ignore=255"));
  }
}

// A Softmax or Sigmoid in front of the loss is part of the loss, and a note says so; with `logits`
// the loss takes another one. A Softmax over another dimension is no part of it.
TEST(AnyNetwork, ProbabilitiesAsOutputs) {
  const std::vector<int32_t> labels{0, 1, 2, 3, 2, 0, 1, 1};
  std::vector<std::string> notes;
  const auto first_loss = [&](const char* loss, int64_t axis) {
    return train_scored({{4, 4}, {4}, loss, "Softmax", axis}, labels, &notes).seen.rows.at(0).loss;
  };
  EXPECT_NEAR(first_loss("cross-entropy,axis=2", 2), cross_entropy_by_hand(4, 4, 1, labels, -100),
              1e-12);
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("is a Softmax")));
  const double twice = first_loss("cross-entropy,axis=2,logits", 2);
  EXPECT_THAT(notes, testing::IsEmpty());
  double by_hand = 0.0;
  for (int64_t row = 0; row < 8; ++row) {
    double sum = 0.0, again = 0.0;
    std::vector<double> p;
    for (int64_t c = 0; c < 4; ++c)
      p.push_back(std::exp(static_cast<double>(static_cast<float>(noise(row * 4 + c)))));
    for (const double each : p) sum += each;
    for (double& each : p) again += std::exp(each /= sum);
    by_hand += (std::log(again) - p[static_cast<size_t>(labels[static_cast<size_t>(row)])]) / 8.0;
  }
  EXPECT_NEAR(twice, by_hand, 1e-12);
  const double other = first_loss("cross-entropy,axis=2", 1);
  EXPECT_THAT(notes, testing::IsEmpty());
  EXPECT_EQ(other, first_loss("cross-entropy,axis=2,logits", 1));
  Model model = scored({4}, 2, {{4}, {}, "", "Sigmoid"});
  EXPECT_THAT(add_loss(model, parse_loss("bce")), testing::ElementsAre(HasSubstr("is a Sigmoid")));
  Model same = scored({4}, 2, {{4}, {}, "", "Sigmoid"});
  EXPECT_THAT(add_loss(same, parse_loss("bce,logits")), testing::IsEmpty());
}

// An encoder whose features could be taken for scores.
TEST(AnyNetwork, TheFirstOfSeveralOutputsIsTakenAndSaid) {
  Model model;
  model.name = "two";
  const ValueId x = model.graph.add_input("x", {4, 3});
  model.outputs = {{"features", model.graph.add1("Neg", "neg", {x})},
                   {"scores", model.graph.add1("Abs", "abs", {x})}};
  Model named = model, mean = model;
  EXPECT_THAT(add_loss(model, parse_loss("cross-entropy")),
              testing::ElementsAre("the loss uses output 'features', the first of 2; name another "
                                   "as in --loss cross-entropy:scores"));
  EXPECT_THAT(add_loss(named, parse_loss("cross-entropy:scores")), testing::IsEmpty());
  EXPECT_THAT(add_loss(mean, parse_loss("mse")),
              testing::ElementsAre(HasSubstr("--loss mse:scores")));
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
  const auto refusal = [&]() -> std::string {
    try {
      Trainer(config, data).resume(checkpoint);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(), "accepted");
  config.network["loss"] = "other";
  EXPECT_EQ(refusal(), "the checkpoint was made without --loss");
  config.network.clear();
  config.build = [](int64_t batch) {  // the same settings, but the file has changed
    Model model = builder(kCases[0])(batch);
    model.graph.add_constant(2.0f);
    return model;
  };
  EXPECT_EQ(refusal(), "the checkpoint was made with another network in --model");
}

}  // namespace
}  // namespace halfscope
