// SPDX-License-Identifier: MIT
// Losses in a file, and what else trains: losses beside their definitions by hand, the gradient of
// fake quantization, normalizations by computed statistics, the largest elements of a line.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/models/loss.h"
#include "tests/onnx/torch_files.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using test::random_values;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kRows = 6, kClasses = 4;

std::vector<double> logs_by_hand(const std::vector<float>& scores) {
  std::vector<double> logs;
  for (size_t row = 0; row < scores.size() / kClasses; ++row) {
    double sum = 0.0;
    for (size_t c = 0; c < kClasses; ++c)
      sum += std::exp(static_cast<double>(scores[row * kClasses + c]));
    for (size_t c = 0; c < kClasses; ++c)
      logs.push_back(static_cast<double>(scores[row * kClasses + c]) - std::log(sum));
  }
  return logs;
}

void set_reduction(::onnx::NodeProto& node, const std::string& how) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("reduction");
  attribute.set_type(::onnx::AttributeProto::STRING);
  attribute.set_s(how);
}

Tensor result(const FileBuilder& file, const std::vector<Tensor>& inputs) {
  Plan plan;
  plan.double_precision = true;
  return test::run(test::start(file.import().model, plan), inputs)[0];
}

// Every reduction, with and without weights of classes, of labels of which some do not count.
TEST(FileLosses, AreThoseOfTheirDefinition) {
  const std::vector<float> scores = random_values(kRows * kClasses, 1);
  const std::vector<float> labels{0, 3, 2, -100, 1, 3}, weights{1.0f, 2.0f, 0.5f, 3.0f};
  const std::vector<double> logs = logs_by_hand(scores);
  for (const bool weighted : {false, true}) {
    double total = 0.0, share = 0.0;
    std::vector<float> each;
    for (size_t row = 0; row < kRows; ++row) {
      const auto label = static_cast<size_t>(std::max(labels[row], 0.0f));
      const double weight = labels[row] < 0.0f ? 0.0
                            : weighted         ? static_cast<double>(weights[label])
                                               : 1.0;
      share += weight;
      total -= weight * logs[row * kClasses + label];
      each.push_back(static_cast<float>(-weight * logs[row * kClasses + label]));
    }
    for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
      const bool of_scores = std::string(op) == "SoftmaxCrossEntropyLoss";
      const auto loss = [&](const std::string& how) {
        FileBuilder file;
        file.input("x", {kRows, kClasses}).input("t", {kRows}, 7).output("loss");
        if (weighted) file.floats("w", {kClasses}, weights);
        if (!of_scores) file.node("LogSoftmax", {"x"}, {"p"}, "softmax");
        ::onnx::NodeProto& node = file.node(op, {of_scores ? "x" : "p", "t"}, {"loss"}, "l");
        if (weighted) node.add_input("w");
        set_reduction(node, how);
        test::set_int(node, "ignore_index", -100);
        return result(file, {Tensor{{kRows, kClasses}, scores}, Tensor{{kRows}, labels}});
      };
      SCOPED_TRACE(op);
      EXPECT_NEAR(loss("mean").data[0], total / share, 1e-6);
      EXPECT_NEAR(loss("sum").data[0], total, 1e-6);
      test::expect_close(loss("none"), Tensor{{kRows}, each}, 1e-6);
    }
  }
}

// Classes come second, whatever follows.
TEST(FileLosses, OfPixels) {
  const std::vector<float> scores = random_values(2 * kClasses * 3, 2);
  const std::vector<float> labels{0, 3, 2, 1, 1, 3};
  FileBuilder file;
  file.input("x", {2, kClasses, 3}).input("t", {2, 3}, 7).output("loss");
  set_reduction(file.node("SoftmaxCrossEntropyLoss", {"x", "t"}, {"loss"}, "l"), "none");
  const Tensor loss = result(file, {Tensor{{2, kClasses, 3}, scores}, Tensor{{2, 3}, labels}});
  std::vector<float> rows;
  for (size_t n = 0; n < 2; ++n) {
    for (size_t p = 0; p < 3; ++p) {
      for (size_t c = 0; c < kClasses; ++c) rows.push_back(scores[(n * kClasses + c) * 3 + p]);
    }
  }
  const std::vector<double> logs = logs_by_hand(rows);
  std::vector<float> expected;
  for (size_t row = 0; row < 6; ++row)
    expected.push_back(
        static_cast<float>(-logs[row * kClasses + static_cast<size_t>(labels[row])]));
  test::expect_close(loss, Tensor{{2, 3}, expected}, 1e-6);
}

// PyTorch's exporters write targets that are probabilities into the same operator.
TEST(FileLosses, OfProbabilities) {
  const std::vector<float> scores = random_values(2 * kClasses, 3);
  const std::vector<float> targets{0.1f, 0.2f, 0.3f, 0.4f, 0.0f, 1.0f, 0.0f, 0.0f};
  FileBuilder file;
  file.input("x", {2, kClasses}).input("t", {2, kClasses}).output("loss");
  file.node("SoftmaxCrossEntropyLoss", {"x", "t"}, {"loss"}, "l");
  const std::vector<double> logs = logs_by_hand(scores);
  double mean = 0.0;
  for (size_t i = 0; i < logs.size(); ++i) mean -= static_cast<double>(targets[i]) * logs[i] / 2.0;
  EXPECT_NEAR(result(file, {Tensor{{2, kClasses}, scores}, Tensor{{2, kClasses}, targets}}).data[0],
              mean, 1e-6);
}

TEST(FileLosses, LargestElementsInTheirOrder) {
  const Tensor x{{2, 4}, {3, 1, 4, 1, 5, 9, 2, 6}};
  for (const int which : {0, 1, 2, 3}) {  // largest or smallest, of reals or of integers
    const bool largest = which % 2 == 0;
    FileBuilder file;
    file.input("x", {2, 4}, which < 2 ? 1 : 7).output("v").output("i").integers("k", {1}, {3});
    test::set_int(file.node("TopK", {"x", "k"}, {"v", "i"}, "top"), "largest", largest ? 1 : 0);
    const std::vector<Tensor> top =
        test::run(test::start(file.import().model, Plan{}), std::vector<Tensor>{x});
    if (largest) {
      EXPECT_THAT(top[0].data, ElementsAre(4, 3, 1, 9, 6, 5));
      EXPECT_THAT(top[1].data, ElementsAre(2, 0, 1, 1, 3, 0));
    } else {
      EXPECT_THAT(top[0].data, ElementsAre(1, 1, 3, 2, 5, 6));
      EXPECT_THAT(top[1].data, ElementsAre(1, 3, 0, 2, 0, 3));
    }
  }
}

// A normalization without running statistics computes the statistics of the batch before it.
TEST(FileLosses, NormalizationsByComputedStatistics) {
  const Tensor x{{2, 2, 2}, random_values(8, 4)};
  const std::vector<float> scale{2.0f, -1.0f}, bias{0.5f, 0.25f};
  for (const bool training : {false, true}) {
    FileBuilder file;
    file.input("x", {2, 2, 2}).output("y").floats("w", {2}, scale).floats("b", {2}, bias);
    test::set_ints(file.node("ReduceMean", {"x"}, {"m"}, "mean"), "axes", {0, 2});
    test::set_int(*file.graph().mutable_node(0), "keepdims", 0);
    file.node("Identity", {"m"}, {"v"}, "variance");
    ::onnx::NodeProto& norm =
        file.node("BatchNormalization", {"x", "w", "b", "m", training ? "v" : "w"}, {"y"}, "norm");
    if (training) test::set_int(norm, "training_mode", 1);
    std::vector<float> expected(8);
    for (size_t c = 0; c < 2; ++c) {
      double mean = 0.0, variance = 0.0;
      const auto at = [&](size_t i) { return (i / 2 * 2 + c) * 2 + i % 2; };
      for (size_t i = 0; i < 4; ++i) mean += static_cast<double>(x.data[at(i)]) / 4.0;
      for (size_t i = 0; i < 4; ++i)
        variance += std::pow(static_cast<double>(x.data[at(i)]) - mean, 2.0) / 4.0;
      // Without training_mode, this file has the scale as the variance.
      if (!training) variance = static_cast<double>(std::fabs(scale[c]));
      for (size_t i = 0; i < 4; ++i) {
        const double h = (static_cast<double>(x.data[at(i)]) - mean) / std::sqrt(variance + 1e-5);
        expected[at(i)] =
            static_cast<float>(h * static_cast<double>(scale[c]) + static_cast<double>(bias[c]));
      }
    }
    if (!training) {
      file.graph().mutable_node(2)->set_input(4, "size");
      file.node("Abs", {"w"}, {"size"}, "size");
    }
    test::expect_close(result(file, {x}), Tensor{{2, 2, 2}, expected}, 1e-6);
  }
}

/// Weights after one step of SGD with rate 1 on the file's output "loss"; `x` is a sample.
NamedTensors after_a_step(const FileBuilder& file, const std::vector<float>& x) {
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  data.train.arrays = {
      {.name = "x", .sample_shape = {static_cast<int64_t>(x.size())}, .reals = x, .samples = 1}};
  TrainConfig config = test::config("unused", "float64", "none");
  config.build = [&](int64_t) {
    Model model = file.import().model;
    add_loss(model, parse_loss("loss"));
    return model;
  };
  config.optimizer = parse_optimizer("sgd:lr=1");
  config.batch = 1;
  config.steps = 1;
  config.shuffle = false;
  return test::train(config, data).weights;
}

// As in PyTorch's fake quantization: dL/dx passes where x / scale is within the codes.
TEST(FileLosses, QuantizationPassesItsGradient) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {1, 3}).output("loss").floats("w", {3}, {1, 1, 1}).floats("s", {}, {0.5f});
  file.graph().add_initializer()->set_name("z");
  ::onnx::TensorProto& zero = *file.graph().mutable_initializer(2);
  zero.set_data_type(3);
  zero.add_int32_data(0);
  file.node("Mul", {"x", "w"}, {"h"}, "mul");
  file.node("QuantizeLinear", {"h", "s", "z"}, {"q"}, "quantize");
  file.node("DequantizeLinear", {"q", "s", "z"}, {"d"}, "dequantize");
  test::set_int(file.node("ReduceSum", {"d"}, {"loss"}, "sum"), "keepdims", 0);
  // The last one is clipped: 100 / 0.5 is above 127.
  EXPECT_THAT(after_a_step(file, {0.7f, -3.3f, 100.0f}).at("w").data,
              ElementsAre(1.0f - 0.7f, 1.0f + 3.3f, 1.0f));
}

// A batch normalization in eval() between layers that train: its statistics stay, and the gradient
// passes.
TEST(FileLosses, FrozenNormalizationsPassTheirGradient) {
  FileBuilder file;
  file.file().set_producer_name("pytorch");
  file.input("x", {1, 2, 2}).output("loss");
  file.floats("c.weight", {2, 2, 1}, {1, 2, 3, 4});
  for (const char* name : {"f.weight", "f.bias", "f.running_mean", "f.running_var"})
    file.floats(name, {2}, {0.5f, 2.0f});
  for (const char* name : {"n.weight", "n.bias", "n.running_mean", "n.running_var"})
    file.floats(name, {2}, {1.0f, 1.5f});
  file.node("Conv", {"x", "c.weight"}, {"h"}, "/c/Conv");
  test::set_int(file.node("BatchNormalization",
                          {"h", "f.weight", "f.bias", "f.running_mean", "f.running_var"}, {"g"},
                          "/f/BatchNormalization"),
                "training_mode", 0);
  ::onnx::NodeProto& trained = file.node(
      "BatchNormalization", {"g", "n.weight", "n.bias", "n.running_mean", "n.running_var"},
      {"y", "m", "v"}, "/n/BatchNormalization");
  test::set_int(trained, "training_mode", 1);
  file.node("Mul", {"y", "y"}, {"square"}, "/Mul");
  file.node("Mul", {"square", "y"}, {"cube"}, "/Mul_1");
  test::set_int(file.node("ReduceSum", {"cube"}, {"loss"}, "/ReduceSum"), "keepdims", 0);
  Dataset data{.name = "samples", .sample_shape = {}, .train = {}, .test = {}};
  data.train.arrays = {
      {.name = "x", .sample_shape = {2, 2}, .reals = {1, -2, 0.5f, 3}, .samples = 1}};
  TrainConfig config = test::config("unused", "float64", "none");
  config.build = [&](int64_t) {
    Model model = file.import().model;
    add_loss(model, parse_loss("loss"));
    return model;
  };
  config.optimizer = parse_optimizer("sgd:lr=0.01");
  config.batch = 1;
  config.steps = 1;
  config.shuffle = false;
  const NamedTensors after = test::train(config, data).weights;
  EXPECT_NE(after.at("c.weight").data, (std::vector<float>{1, 2, 3, 4}));
}

TEST(FileLosses, LargestElementsOfALongLine) {
  constexpr int64_t kLength = 1000000;  // comparing each one with all others would take minutes
  std::vector<float> x(kLength);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1000003);
  FileBuilder file;
  file.input("x", {1, kLength}).output("v").output("i").integers("k", {1}, {3});
  file.node("TopK", {"x", "k"}, {"v", "i"}, "top");
  const std::vector<Tensor> top = test::run(test::start(file.import().model, Plan{}),
                                            std::vector<Tensor>{Tensor{{1, kLength}, x}});
  std::vector<float> sorted = x;
  std::partial_sort(sorted.begin(), sorted.begin() + 3, sorted.end(), std::greater<>());
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(top[0].data[k], sorted[k]);
    EXPECT_EQ(x[static_cast<size_t>(top[1].data[k])], sorted[k]);
  }
}

TEST(FileLosses, MoreSortedElementsThanThereAreIsAnError) {
  FileBuilder file;
  file.input("x", {2, 64}).output("v").integers("k", {1}, {65});
  file.node("TopK", {"x", "k"}, {"v", "i"}, "top");
  try {
    file.import();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("top (TopK): it must pick between 1 and 64 elements"));
  }
}

}  // namespace
}  // namespace halfscope
