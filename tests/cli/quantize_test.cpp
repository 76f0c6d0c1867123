// SPDX-License-Identifier: MIT
// `halfscope quantize`: what it prints and writes, that its plan and the ONNX file made from it
// compute what it says, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/data/npz.h"
#include "tests/cli/network_file.h"
#include "tests/cli/program.h"
#include "tests/cli/refusals.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::expect_refusals;
using test::Outcome;
using test::Words;
using testing::HasSubstr;
using testing::Not;

/// A small network that has learned digits.
void train(const Bench& bench) {
  const Outcome trained =
      bench.run({"train", "--model", "mlp:784-32-10", "--data", "digits", "--steps", "60",
                 "--lanes", "float32", "--out", "t.hscope", "--save-weights", "w.npz", "--quiet"});
  ASSERT_EQ(trained.code, 0) << trained.err;
}

Words quantize(Words more) {
  Words words{"quantize", "mlp:784-32-10", "--init", "w.npz",         "--data",
              "digits",   "--limit",       "512",    "--calibration", "256"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

double accuracy_of(const json& result, const std::string& plan) {
  for (const json& each : result.at("plans")) {
    if (each.at("name") == plan) return each.at("accuracy").get<double>();
  }
  ADD_FAILURE() << "no plan " << plan;
  return 0.0;
}

TEST(CliQuantize, ThePlanAndItsFileComputeWhatItSays) {
  const Bench bench;
  train(bench);
  const Outcome outcome = bench.run(quantize({"--out", "plan.json", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("schema"), "halfscope.quantize/1");
  EXPECT_EQ(result.at("format"), "int8");
  EXPECT_EQ(result.at("method"), "max");
  EXPECT_EQ(result.at("calibration"), json({{"samples", 256}, {"part", "train"}}));
  EXPECT_EQ(result.at("within_tolerance"), true);
  ASSERT_EQ(result.at("layers").size(), 2u);
  const json& layer = result.at("layers").at(0);
  EXPECT_EQ(layer.at("path"), "fc1");
  EXPECT_EQ(layer.at("operands").at(0).at("known"), false);
  EXPECT_EQ(layer.at("operands").at(0).at("largest"), 1.0);  // of digits
  EXPECT_GT(layer.at("sqnr_db").get<double>(), 25.0);
  EXPECT_GT(accuracy_of(result, "float32"), 0.5);
  EXPECT_GT(accuracy_of(result, "int8-max"), accuracy_of(result, "float32") - 0.011);
  EXPECT_LT(result.at("plans").at(2).at("weight_bytes").get<double>(),
            0.3 * result.at("plans").at(0).at("weight_bytes").get<double>());

  const Words samples{"--data", "digits", "--limit", "512", "--json", "--out"};
  Words lane{"run", "mlp:784-32-10", "--init", "w.npz", "--lanes", "plan.json"};
  lane.insert(lane.end(), samples.begin(), samples.end());
  lane.emplace_back("plan.npz");
  const Outcome run = bench.run(lane);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out).at("lanes").at(0).at("accuracy").get<double>(),
            accuracy_of(result, "int8-max"));

  const Outcome converted =
      bench.run({"convert", "mlp:784-32-10", "--data", "digits", "--init", "w.npz", "--plan",
                 "plan.json", "--batch", "128", "--out", "q.onnx"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  EXPECT_THAT(converted.err, HasSubstr("q.onnx: read back: 1280 numbers of outputs within "));
  const Outcome typed =
      bench.run({"convert", "mlp:784-32-10", "--data", "digits", "--init", "w.npz", "--plan",
                 "plan.json", "--batch", "128", "--typed", "--out", "typed.onnx"});
  EXPECT_THAT(typed.err, HasSubstr("typed.onnx: read back: 1280 numbers of outputs within "));
  Words file{"run", "q.onnx"};
  file.insert(file.end(), samples.begin(), samples.end());
  file.emplace_back("file.npz");
  const Outcome read = bench.run(file);
  ASSERT_EQ(read.code, 0) << read.err;
  const NamedTensors ours = read_npz(bench / "plan.npz"), theirs = read_npz(bench / "file.npz");
  const std::vector<float>& a = ours.begin()->second.data;
  const std::vector<float>& b = theirs.begin()->second.data;
  ASSERT_EQ(a.size(), b.size());
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i] - b[i]), 2);
    size += std::pow(static_cast<double>(a[i]), 2);
  }
  EXPECT_LT(std::sqrt(difference / size), 1e-3);  // sums in fp32: few codes differ
}

/// Expects that net.onnx under p.json and q.onnx have the same outputs for x.npz.
void expect_same_outputs(const Bench& bench) {
  const auto outputs = [&](const Words& more) {
    Words words{"run", "--input", "x.npz", "--out", "o.npz", "--force", "--quiet", "--lanes"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(bench.run(words).code, 0);
    return read_npz(bench / "o.npz").begin()->second.data;
  };
  const std::vector<float> plan = outputs({"p.json", "net.onnx"});
  const std::vector<float> codes = outputs({"float32", "q.onnx"});
  ASSERT_EQ(plan.size(), codes.size());
  for (size_t i = 0; i < plan.size(); ++i) EXPECT_NEAR(plan[i], codes[i], 1e-4) << i;
}

// Exporters write the weight of a linear layer over sequences as the transpose of PyTorch's.
TEST(CliQuantize, CodesOfATransposedWeightHaveAScaleForEachChannel) {
  const Bench bench;
  std::vector<float> weight(8 * 6), inputs(32 * 6);
  for (size_t i = 0; i < weight.size(); ++i) {
    weight[i] = std::sin(static_cast<float>(i)) * (i < 6 ? 100.0f : 1.0f);
  }
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = std::cos(static_cast<float>(3 * i));
  test::FileBuilder file;
  file.input("x", {-1, 2, 6}).output("y").floats("w", {8, 6}, weight);
  test::set_ints(file.node("Transpose", {"w"}, {"wt"}, "turn"), "perm", {1, 0});
  file.node("MatMul", {"x", "wt"}, {"y"}, "linear");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "x.npz", {{"x", {{16, 2, 6}, inputs}}});
  ASSERT_EQ(bench.run({"quantize", "net.onnx", "--input", "x.npz", "--out", "p.json"}).code, 0);
  const Outcome converted =
      bench.run({"convert", "net.onnx", "--plan", "p.json", "--out", "q.onnx"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  EXPECT_THAT(converted.err, HasSubstr("q.onnx: read back: "));
  EXPECT_THAT(converted.err, Not(HasSubstr("differs")));
  // The weight is in the file once, as codes.
  EXPECT_LT(std::filesystem::file_size(bench / "q.onnx"),
            std::filesystem::file_size(bench / "net.onnx") + 700);
  expect_same_outputs(bench);
}

// QuantizeLinear reaches -128 and -8, codes of a plan -127 and -7. Values below the range are where
// this shows, so the range is small; a Clip restores the plan's end. After a Relu none is needed.
TEST(CliQuantize, FilesClipNegativeValuesWhereThePlanDoes) {
  const Bench bench;
  std::vector<float> weight(6 * 5), inputs(64 * 6);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float wave = std::cos(static_cast<float>(3 * i));
    inputs[i] = wave * (i % 9 == 0 ? -30.0f : 1.0f);
  }
  test::FileBuilder file;
  file.input("x", {-1, 6}).output("y").floats("w", {6, 5}, weight).floats("v", {5, 6}, weight);
  file.node("MatMul", {"x", "w"}, {"h"}, "first");
  file.node("Relu", {"h"}, {"r"}, "relu");
  file.node("MatMul", {"r", "v"}, {"y"}, "second");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "x.npz", {{"x", {{64, 6}, inputs}}});
  for (const char* format : {"int8", "int4"}) {
    ASSERT_EQ(bench
                  .run({"quantize", "net.onnx", "--input", "x.npz", "--format", format, "--method",
                        "percentile:90", "--tolerance", "1", "--out", "p.json", "--force"})
                  .code,
              0);
    const Outcome converted =
        bench.run({"convert", "net.onnx", "--plan", "p.json", "--out", "q.onnx", "--force"});
    ASSERT_EQ(converted.code, 0) << converted.err;
    expect_same_outputs(bench);
    std::map<std::string, int> nodes;
    const ::onnx::GraphProto written = test::read_network(bench, "q.onnx");
    for (const ::onnx::NodeProto& node : written.node()) {
      ++nodes[node.op_type()];
    }
    EXPECT_EQ(nodes["QuantizeLinear"], 2) << format;
    EXPECT_EQ(nodes["Clip"], 1) << format;
  }
}

// Both directions of an LSTM share one tensor of weights, which is split and then transposed.
TEST(CliQuantize, PartsOfAWeightBecomeCodesToo) {
  const Bench bench;
  constexpr int64_t kHidden = 3, kInputs = 4, kSteps = 3;
  const auto waves = [](int64_t count, float pace) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(pace * static_cast<float>(i));
    return values;
  };
  test::FileBuilder file;
  file.input("x", {kSteps, 2, kInputs}).output("y");
  file.floats("w", {2, 4 * kHidden, kInputs}, waves(8 * kHidden * kInputs, 1.0f));
  file.floats("r", {2, 4 * kHidden, kHidden}, waves(8 * kHidden * kHidden, 1.7f));
  ::onnx::NodeProto& lstm = file.node("LSTM", {"x", "w", "r"}, {"y"}, "l");
  test::set_int(lstm, "hidden_size", kHidden);
  ::onnx::AttributeProto& direction = *lstm.add_attribute();
  direction.set_name("direction");
  direction.set_type(::onnx::AttributeProto::STRING);
  direction.set_s("bidirectional");
  test::write_network(bench, "net.onnx", file);
  write_npz(bench / "x.npz", {{"x", {{kSteps, 2, kInputs}, waves(kSteps * 2 * kInputs, 0.6f)}}});
  // Kept layers read the same tensor as it is.
  for (const Words& kept : {Words{}, Words{"--keep", "l/reverse/*"}}) {
    Words words{"quantize", "net.onnx", "--input", "x.npz", "--out", "p.json", "--force"};
    words.insert(words.end(), kept.begin(), kept.end());
    ASSERT_EQ(bench.run(words).code, 0);
    const Outcome converted =
        bench.run({"convert", "net.onnx", "--plan", "p.json", "--out", "q.onnx", "--force"});
    ASSERT_EQ(converted.code, 0) << converted.err;
    EXPECT_THAT(converted.err, HasSubstr("q.onnx: read back: "));
    expect_same_outputs(bench);
  }
}

TEST(CliQuantize, RandomWeightsAreNoted) {
  const Bench bench;
  train(bench);
  const std::string note = "note: mlp:784-32-10 has random weights (seed 1); --init FILE reads";
  const Words samples{"mlp:784-32-10", "--data", "digits", "--limit", "32"};
  for (const char* command : {"run", "quantize"}) {
    Words words{command};
    words.insert(words.end(), samples.begin(), samples.end());
    EXPECT_THAT(bench.run(words).err, HasSubstr(note));
    words.insert(words.end(), {"--init", "w.npz"});
    EXPECT_THAT(bench.run(words).err, Not(HasSubstr("random")));
  }
}

TEST(CliQuantize, QuietPrintsNothing) {
  const Bench bench;
  train(bench);
  const Outcome quiet = bench.run(quantize({"--quiet", "--out", "p.json"}));
  EXPECT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_EQ(quiet.out, "");
  EXPECT_EQ(quiet.err, "");
  EXPECT_TRUE(std::filesystem::exists(bench / "p.json"));
  EXPECT_TRUE(json::accept(bench.run(quantize({"--quiet", "--json"})).out));
}

TEST(CliQuantize, TextSaysWhatWasFoundAndWhatIsNext) {
  const Bench bench;
  train(bench);
  const Outcome good =
      bench.run(quantize({"--format", "e4m3fn", "--method", "entropy", "--out", "p.json"}));
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("e4m3fn: activations have static scales (entropy)"));
  EXPECT_THAT(good.out, HasSubstr("Quantize 2 layers: accuracy is"));
  EXPECT_THAT(
      good.out,
      HasSubstr("halfscope convert mlp:784-32-10 --init w.npz --data digits --plan p.json"));
  // Three magnitudes are too few, and no loss of accuracy is allowed.
  const Outcome kept = bench.run(quantize({"--format", "e2m0finite", "--tolerance", "0"}));
  EXPECT_EQ(kept.code, 1) << kept.err;
  EXPECT_THAT(kept.out, HasSubstr("Nothing is left to quantize. Keep fc2"));
  EXPECT_THAT(kept.out, HasSubstr("No plan was written, because it would quantize no layer."));
  EXPECT_THAT(kept.out, HasSubstr("in fp32: then accuracy is"));
  EXPECT_THAT(kept.out, HasSubstr("With fc2 in e2m0finite, too, accuracy is"));
  const Outcome anyway = bench.run(quantize({"--keep", "fc2", "--json"}));
  const json result = json::parse(anyway.out);
  EXPECT_EQ(result.at("layers").at(1).at("kept"), true);
  EXPECT_EQ(result.at("plan").at("rules").size(), 1u);
}

TEST(CliQuantize, WithoutLabelsOutputsAreCompared) {
  const Bench bench;
  const Outcome inputs = bench.run({"run", "mlp:6-10", "--random-input", "3", "--limit", "64",
                                    "--batch", "32", "--out", "x.npz"});
  ASSERT_EQ(inputs.code, 0) << inputs.err;
  const Outcome outcome = bench.run({"quantize", "mlp:10-6-3", "--input", "x.npz", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("calibration").at("part"), "same");
  EXPECT_TRUE(result.at("plans").at(0).at("accuracy").is_null());
  EXPECT_EQ(result.at("plans").at(0).at("output_error"), 0.0);
  EXPECT_EQ(result.at("plans").at(0).at("output_sqnr_db"), "inf");
  EXPECT_EQ(result.at("tolerance"), 0.1);
}

TEST(CliQuantize, DetectorsAreJudgedByTheirBoxes) {
  const Bench bench;
  const Outcome outcome =
      bench.run({"quantize", "efficientdet-small", "--data", "shapes", "--limit", "8", "--batch",
                 "8", "--calibration", "8", "--json"});
  const json result = json::parse(outcome.out);
  for (const json& plan : result.at("plans")) {
    EXPECT_TRUE(plan.at("accuracy").is_null());
    EXPECT_GE(plan.at("map50").get<double>(), 0.0);
  }
  EXPECT_EQ(result.at("tolerance"), 0.01);
}

TEST(CliQuantize, RefusesMistakes) {
  const Bench bench;
  train(bench);
  expect_refusals(
      bench,
      {{{"quantize"}, 2, "quantize needs a network", "quantize lenet"},
       {{"quantize", "lenet"}, 2, "quantize needs samples", "--data"},
       {{"quantize", "lenet", "--tolerance", "5"}, 2, "--tolerance 5: out of range", "0 to 1"},
       {{"quantize", "lenet", "--calibration", "0"}, 2, "--calibration 0: out of range", "1 to "},
       {{"diff", "a.npz", "b.npz", "--ulps", "-1"}, 2, "--ulps -1: out of range", "0 or more"},
       {{"quantize", "lenet", "--data", "digits", "--input", "x.npy"}, 2, "exclude each other"},
       {{"quantize", "none.onnx", "--data", "digits"}, 3, "cannot open 'none.onnx'"},
       {quantize({"--format", "int9"}), 2, "--format: unknown format 'int9'"},
       {quantize({"--format", "fp16"}), 2, "more than 8 bits", "int8"},
       {quantize({"--method", "min"}), 2, "--method: unknown method 'min'", "percentile"},
       {quantize({"--method", "percentile:0"}), 2, "unknown method 'percentile:0'"},
       {quantize({"--scales", "row"}), 2, "--scales"},
       {quantize({"--calibration", "0"}), 2, "--calibration"},
       {quantize({"--tolerance", "2"}), 2, "--tolerance"},
       {quantize({"--keep", "fc9"}), 2, "--keep 'fc9' matches no layer"},
       {quantize({"--device", "v10"}), 2, "unknown device 'v10'"},
       {quantize({"--plan", "float64"}), 2, "double precision"},
       {quantize({"--out", "no/plan.json"}), 2, "no"}});
}

}  // namespace
}  // namespace halfscope
