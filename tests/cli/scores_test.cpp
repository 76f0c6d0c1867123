// SPDX-License-Identifier: MIT
// Scores of evaluations and of `run`: accuracy, area under the ROC curve, intersection over union.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/data/npz.h"
#include "tests/cli/network_file.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using Json = nlohmann::json;
using test::Bench;
using test::Outcome;
using test::Words;
using testing::HasSubstr;

Json lane_of(const Outcome& outcome, size_t lane = 0) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out).at("lanes").at(lane);
}

// Two samples of 2 x 2 pixels and three classes; the scores are the input, a convolution by one.
TEST(CliScores, ALabelForEachPixelHasAMeanIoU) {
  const Bench bench;
  test::FileBuilder file;
  file.input("x", {2, 3, 2, 2}).output("y");
  file.floats("w", {3, 3, 1, 1}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  file.node("Conv", {"x", "w"}, {"y"}, "conv");
  test::write_network(bench, "net.onnx", file);
  // Predicted: 0 1 2 2 and 1 1 0 and nothing, for a NaN.
  write_npz(bench / "x.npz", {{"x", {{2, 3, 2, 2}, {5, 0, 0, 0,   1, 5, 1, 1, 2, 0, 5, 5,  //
                                                    0, 0, 5, NAN, 5, 5, 1, 0, 0, 0, 0, 0}}}});
  const auto lane = [&](const std::vector<float>& labels) {
    write_npz(bench / "l.npz", {{"labels", {{2, 2, 2}, labels}}});
    const Outcome run = bench.run({"run", "net.onnx", "--input", "x.npz", "--labels", "l.npz",
                                   "--lanes", "float32", "--json"});
    EXPECT_EQ(run.code, 0) << run.err;
    return Json::parse(run.out).at("lanes").at(0);
  };
  const Json all = lane({0, 1, 2, 1, 1, 0, 0, 2});
  EXPECT_DOUBLE_EQ(all.at("accuracy").get<double>(), 5.0 / 8.0);
  // Class 0: 2 of 3. Class 1: 2 of 4. Class 2: 1 of 3.
  EXPECT_DOUBLE_EQ(all.at("mean_iou").get<double>(), (2.0 / 3.0 + 0.5 + 1.0 / 3.0) / 3.0);
  EXPECT_TRUE(all.at("auc").is_null());
  const Json some = lane({0, 1, 2, -1, 1, -1, 0, -1});
  EXPECT_EQ(some.at("accuracy"), 1.0);
  EXPECT_EQ(some.at("mean_iou"), 1.0);
  const Words words{"run",      "net.onnx", "--input", "x.npz",
                    "--labels", "l.npz",    "--lanes", "float32"};
  EXPECT_THAT(bench.run(words).out, HasSubstr("mIoU"));
  write_npz(bench / "l.npz", {{"labels", {{2, 2, 2}, {0, 1, 2, 3, 0, 0, 0, 0}}}});
  EXPECT_THAT(bench.run(words).err, HasSubstr("label 3 is not in 0..2"));
  write_npz(bench / "l.npz", {{"labels", {{2, 3}, {0, 1, 2, 0, 0, 0}}}});
  EXPECT_THAT(bench.run(words).err,
              HasSubstr("no class scores for labels of shape [3] per sample: output 'y'"));
  // An evaluation of a training that changes nothing. Predicted: 0 1 2 2 and 1 1 0 0.
  for (const char* file : {"train.npz", "test.npz"}) {
    write_npz(bench / file, {{"x", {{2, 3, 2, 2}, {5, 0, 0, 0, 1, 5, 1, 1, 2, 0, 5, 5,  //
                                                   0, 0, 5, 9, 5, 5, 1, 0, 0, 0, 0, 0}}},
                             {"labels", {{2, 2, 2}, {0, 1, 2, 1, 1, 0, 0, 2}}}});
  }
  const Words training{"train",
                       "--model",
                       "net.onnx",
                       "--loss",
                       "cross-entropy",
                       "--data",
                       "train.npz,test=test.npz",
                       "--optimizer",
                       "sgd:lr=0",
                       "--batch",
                       "2",
                       "--steps",
                       "1",
                       "--lanes",
                       "float32"};
  const Outcome table = bench.run(training);
  EXPECT_THAT(table.out, HasSubstr("mIoU")) << table.err;
  Words with_json = training;
  with_json.insert(with_json.end(), {"--json", "--force"});
  const Json tested = Json::parse(bench.run(with_json).out).at("lanes").at(0);
  EXPECT_EQ(tested.at("test_accuracy"), 5.0 / 8.0);
  // Class 0: 2 of 4. Class 1: 2 of 4. Class 2: 1 of 3.
  EXPECT_DOUBLE_EQ(tested.at("test_mean_iou").get<double>(), (0.5 + 0.5 + 1.0 / 3.0) / 3.0);
  EXPECT_TRUE(tested.at("test_auc").is_null());
  // One score for each pixel means labels 0 and 1.
  test::FileBuilder single;
  single.input("x", {1, 1, 2, 2}).output("y").floats("one", {1}, {1});
  single.node("Mul", {"x", "one"}, {"y"}, "mul");
  test::write_network(bench, "single.onnx", single);
  write_npz(bench / "s.npz", {{"x", {{1, 1, 2, 2}, {1, -1, 1, -1}}}});
  write_npz(bench / "l.npz", {{"labels", {{1, 2, 2}, {1, 0, 0, 0}}}});
  const Outcome two = bench.run({"run", "single.onnx", "--input", "s.npz", "--labels", "l.npz",
                                 "--lanes", "float32", "--json"});
  const Json scored = Json::parse(two.out).at("lanes").at(0);
  EXPECT_EQ(scored.at("accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(scored.at("mean_iou").get<double>(), (2.0 / 3.0 + 0.5) / 2.0);
  // So do the targets of a binary cross-entropy.
  test::FileBuilder mask;
  mask.input("x", {1, 1, 2, 2}).output("y").floats("w", {1, 1, 1, 1}, {1});
  mask.node("Conv", {"x", "w"}, {"y"}, "conv");
  test::write_network(bench, "mask.onnx", mask);
  for (const char* file : {"train.npz", "test.npz"}) {
    write_npz(bench / file,
              {{"x", {{1, 1, 2, 2}, {1, -1, 1, -1}}}, {"targets", {{1, 1, 2, 2}, {1, 0, 0, 0}}}});
  }
  const Outcome masked =
      bench.run({"train", "--model", "mask.onnx", "--loss", "bce", "--data",
                 "train.npz,test=test.npz", "--optimizer", "sgd:lr=0", "--batch", "1", "--steps",
                 "1", "--lanes", "float32", "--json", "--force"});
  ASSERT_EQ(masked.code, 0) << masked.err;
  const Json overlap = Json::parse(masked.out).at("lanes").at(0);
  EXPECT_EQ(overlap.at("test_accuracy"), 0.75);
  EXPECT_DOUBLE_EQ(overlap.at("test_mean_iou").get<double>(), (2.0 / 3.0 + 0.5) / 2.0);
  EXPECT_TRUE(overlap.at("test_auc").is_null());
  // The same measure decides which layers can be quantized.
  lane({0, 1, 2, -1, 1, -1, 0, -1});
  write_npz(bench / "x.npz", {{"x", {{2, 3, 2, 2}, std::vector<float>(24, 1.0f)}}});
  const Outcome quantized = bench.run({"quantize", "net.onnx", "--input", "x.npz", "--labels",
                                       "l.npz", "--out", "p.json", "--json"});
  ASSERT_EQ(quantized.code, 0) << quantized.err;
  // All scores are equal: class 0 is predicted, which is right for 2 of 5 labels.
  const Json plan = Json::parse(quantized.out).at("plans").at(0);
  EXPECT_EQ(plan.at("accuracy"), 0.4);
  EXPECT_DOUBLE_EQ(plan.at("mean_iou").get<double>(), 0.4 / 3.0);
}

// Trainings that change nothing; the scores are the inputs.
TEST(CliScores, BinaryCrossEntropyHasScoresIfTargetsAre0And1) {
  const Bench bench;
  const auto lane = [&](const char* model, const Shape& shape, const std::vector<float>& x,
                        const std::vector<float>& targets) {
    for (const char* file : {"train.npz", "test.npz"}) {
      write_npz(bench / file, {{"x", {shape, x}}, {"targets", {shape, targets}}});
    }
    return lane_of(bench.run({"train", "--model", model, "--loss", "bce", "--init", "w.npz",
                              "--data", "train.npz,test=test.npz", "--optimizer", "sgd:lr=0",
                              "--batch", std::to_string(shape[0]), "--steps", "1", "--lanes",
                              "float32,mixed_float16", "--json", "--force"}),
                   1);
  };
  write_npz(bench / "w.npz", {{"fc1.weight", {{1, 1}, {1.0f}}}, {"fc1.bias", {{1}, {0.0f}}}});
  const Json one = lane("mlp:1-1", {4, 1}, {-1.0f, 2.0f, 0.5f, -3.0f}, {0.0f, 1.0f, 0.0f, 0.0f});
  EXPECT_EQ(one.at("test_accuracy"), 0.75);
  EXPECT_EQ(one.at("test_auc"), 1.0);
  EXPECT_TRUE(one.at("test_mean_iou").is_null());
  const Json soft = lane("mlp:1-1", {4, 1}, {-1.0f, 2.0f, 0.5f, -3.0f}, {0.0f, 1.0f, 0.5f, 0.0f});
  EXPECT_TRUE(soft.at("test_accuracy").is_null());
  EXPECT_TRUE(soft.at("test_auc").is_null());
  // The first of two outputs orders 3 of 4 pairs, the second all 3.
  write_npz(bench / "w.npz", {{"fc1.weight", {{2, 2}, {1.0f, 0.0f, 0.0f, 1.0f}}},
                              {"fc1.bias", {{2}, {0.0f, 0.0f}}}});
  const Json two = lane("mlp:2-2", {4, 2}, {1.0f, 1.0f, 2.0f, 2.0f, 3.0f, 3.0f, 4.0f, 4.0f},
                        {0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, 1.0f});
  EXPECT_EQ(two.at("test_accuracy"), 3.0 / 8.0);
  EXPECT_EQ(two.at("test_auc"), (0.75 + 1.0) / 2.0);
}

TEST(CliScores, OneScoreForEachSampleHasAnAccuracyAndAnArea) {
  const Bench bench;
  // The score is the input itself.
  write_npz(bench / "x.npz", {{"input", {{4, 1}, {-1.0f, 2.0f, 0.5f, -3.0f}}}});
  write_npz(bench / "w.npz", {{"fc1.weight", {{1, 1}, {1.0f}}}, {"fc1.bias", {{1}, {0.0f}}}});
  write_npz(bench / "y.npz", {{"labels", {{4}, {0.0f, 1.0f, 0.0f, 0.0f}}}});
  const Json result = lane_of(bench.run(
      {"run", "mlp:1-1", "--input", "x.npz", "--init", "w.npz", "--labels", "y.npz", "--json"}));
  EXPECT_EQ(result.at("accuracy"), 0.75);
  EXPECT_EQ(result.at("auc"), 1.0);
}

// Labels that do not count leave the mean over the others, however samples are put into batches.
TEST(CliScores, ATestSetWithIgnoredLabelsHasTheMeanOverTheOthers) {
  const Bench bench;
  test::FileBuilder file;
  file.input("x", {-1, 2}).output("y").floats("w", {2, 2}, {1, 0, 0, 1});
  file.node("MatMul", {"x", "w"}, {"y"}, "fc");
  test::write_network(bench, "net.onnx", file);
  const std::vector<float> x{2, 0, 0, 1, 0, 3, 1, 0, 5, 0, 0, 0};
  const std::vector<float> labels{0, -100, 0, 1, -100, -100};
  write_npz(bench / "train.npz", {{"x", {{6, 2}, x}}, {"labels", {{6}, {0, 1, 1, 0, 0, 1}}}});
  write_npz(bench / "test.npz", {{"x", {{6, 2}, x}}, {"labels", {{6}, labels}}});
  double loss = 0.0;  // of the samples 0, 2 and 3
  for (const auto& [own, other] : {std::pair{2.0, 0.0}, {0.0, 3.0}, {0.0, 1.0}}) {
    loss += std::log1p(std::exp(other - own)) / 3.0;
  }
  for (const char* batch : {"1", "2", "3", "6"}) {
    const Json lane =
        lane_of(bench.run({"train", "--model", "net.onnx", "--loss", "cross-entropy", "--data",
                           "train.npz,test=test.npz", "--optimizer", "sgd:lr=0", "--batch", batch,
                           "--steps", "1", "--lanes", "float32", "--json", "--force"}));
    EXPECT_NEAR(lane.at("test_accuracy").get<double>(), 1.0 / 3.0, 1e-7) << batch;
    EXPECT_NEAR(lane.at("test_loss").get<double>(), loss, 1e-6) << batch;
    EXPECT_EQ(lane.at("test_auc"), 0.5) << batch;
  }
}

// Nodes that only move a Sigmoid's results do not turn them into logits.
TEST(CliScores, ProbabilitiesThatAreReshapedAreStillProbabilities) {
  const Bench bench;
  write_npz(bench / "x.npz", {{"x", {{4, 1}, {-1.0f, 2.0f, 0.5f, -3.0f}}}});
  write_npz(bench / "l.npz", {{"labels", {{4}, {0.0f, 1.0f, 0.0f, -1.0f}}}});
  for (const bool squeezes : {false, true}) {
    test::FileBuilder file;
    file.input("x", {4, 1}).output("y").integers("axes", {1}, {1});
    file.node("Sigmoid", {"x"}, {squeezes ? "p" : "y"}, "sigmoid");
    if (squeezes) file.node("Squeeze", {"p", "axes"}, {"y"}, "squeeze");
    test::write_network(bench, "net.onnx", file);
    const Json lane = lane_of(bench.run({"run", "net.onnx", "--input", "x.npz", "--labels", "l.npz",
                                         "--lanes", "float32", "--json"}));
    EXPECT_EQ(lane.at("accuracy"), 2.0 / 3.0) << squeezes;
    EXPECT_EQ(lane.at("auc"), 1.0) << squeezes;
  }
}

// The first output has features, as of an encoder, and as many as there are classes.
TEST(CliScores, LabelsAreComparedWithTheOutputThatIsNamed) {
  const Bench bench;
  test::FileBuilder file;
  file.input("x", {4, 2}).output("features").output("y").output("z");
  file.floats("swap", {2, 2}, {0, 1, 1, 0}).floats("w", {2, 3}, {1, 0, 0, 0, 1, 0});
  file.node("MatMul", {"x", "swap"}, {"features"}, "encoder");
  file.node("MatMul", {"features", "swap"}, {"y"}, "head");
  file.node("MatMul", {"x", "w"}, {"z"}, "wide");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "x.npz", {{"x", {{4, 2}, {1, 0, 0, 1, 2, 1, 0, 3}}}});
  write_npz(bench / "l.npz", {{"labels", {{4}, {0, 1, 0, 255}}}});
  Words words{"run",     "net.onnx", "--input",        "x.npz", "--labels", "l.npz",
              "--lanes", "float32",  "--ignore-label", "255",   "--json"};
  const Outcome first = bench.run(words);
  EXPECT_EQ(lane_of(first).at("accuracy"), 0.0);
  EXPECT_EQ(Json::parse(first.out).at("scores"), "features");
  EXPECT_THAT(first.err, HasSubstr("output features is compared with the labels, the first of 3"));
  words.insert(words.end(), {"--scores", "y"});
  const Outcome named = bench.run(words);
  EXPECT_EQ(lane_of(named).at("accuracy"), 1.0);
  EXPECT_EQ(lane_of(named).at("labels"), 3);
  EXPECT_EQ(Json::parse(named.out).at("scores"), "y");
  EXPECT_EQ(named.err, "");
  words.back() = "z";
  EXPECT_EQ(lane_of(bench.run(words)).at("accuracy"), 1.0);
  words.back() = "Y";
  EXPECT_THAT(bench.run(words).err, HasSubstr("the network has no output 'Y'"));
  words.resize(words.size() - 3);
  EXPECT_THAT(bench.run(words).out, HasSubstr("1 of 4 labels do not count\n"));
  // Plans for inference are judged by the same output.
  const Outcome plan =
      bench.run({"quantize", "net.onnx", "--input", "x.npz", "--labels", "l.npz", "--ignore-label",
                 "255", "--scores", "y", "--out", "p.json", "--json"});
  EXPECT_EQ(Json::parse(plan.out).at("plans").at(0).at("accuracy"), 1.0) << plan.err;
}

// Labels that are stored with the samples and belong to something else are no error.
TEST(CliScores, StoredLabelsThatFitNoOutputAreLeftOut) {
  const Bench bench;
  test::FileBuilder file;
  file.input("x", {2, 2}).output("y");
  file.node("ReduceSum", {"x"}, {"y"}, "total");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "x.npz", {{"x", {{2, 2}, {1, 0, 0, 1}}}, {"labels", {{2}, {0, 1}}}});
  const Words words{"run", "net.onnx", "--data", "x.npz", "--lanes", "float32", "--json"};
  const Outcome run = bench.run(words);
  EXPECT_TRUE(lane_of(run).at("accuracy").is_null());
  EXPECT_EQ(Json::parse(run.out).at("scores"), nullptr);
  EXPECT_THAT(run.err, HasSubstr("one label per sample does not fit any output"));
}

// A label for each token has no intersection over union.
TEST(CliScores, TokensHaveAnAccuracyOnly) {
  const Bench bench;
  test::FileBuilder file;
  file.input("x", {1, 3, 2}).output("y").floats("w", {2, 2}, {1, 0, 0, 1});
  file.node("MatMul", {"x", "w"}, {"y"}, "fc");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "x.npz", {{"x", {{1, 3, 2}, {1, 0, 0, 1, 2, 0}}}});
  write_npz(bench / "l.npz", {{"labels", {{1, 3}, {0, 1, 1}}}});
  const Json lane = lane_of(bench.run({"run", "net.onnx", "--input", "x.npz", "--labels", "l.npz",
                                       "--lanes", "float32", "--json"}));
  EXPECT_EQ(lane.at("accuracy"), 2.0 / 3.0);
  EXPECT_TRUE(lane.at("mean_iou").is_null());
}

}  // namespace
}  // namespace halfscope
