// SPDX-License-Identifier: MIT
// `halfscope run`: tables, JSON, outputs and run files of a network run in lanes; and what `train`
// does with arrays from files, losses and settings from a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "core/data/dataset.h"
#include "core/data/npz.h"
#include "core/error.h"
#include "tests/cli/bad_inputs.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;
using test::Bench;
using test::Outcome;
using test::text_of;
using test::Words;

Tensor filled(Shape shape, uint64_t seed) {
  Tensor tensor{std::move(shape), {}};
  for (int64_t i = 0; i < element_count(tensor.shape); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    tensor.data.push_back(static_cast<float>(seed >> 40) * 0x1p-23f - 1.0f);
  }
  return tensor;
}

/// x.npy and x.npz (input, labels), reg.npz and test.npz (input, targets).
void write_arrays(const Bench& bench) {
  const Tensor x = filled({20, 6}, 1);
  write_npy(bench / "x.npy", x);
  Tensor labels{{20}, {}};
  for (size_t i = 0; i < 20; ++i) labels.data.push_back(x.data[6 * i] > 0.0f ? 1.0f : 0.0f);
  write_npy(bench / "labels.npy", labels);
  write_npz(bench / "x.npz", {{"input", x}, {"labels", labels}});
  write_npz(bench / "reg.npz", {{"input", x}, {"targets", filled({20, 3}, 2)}});
  write_npz(bench / "test.npz", {{"input", filled({8, 6}, 3)}, {"targets", filled({8, 3}, 4)}});
}

Json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

TEST(CliRun, PrintsALinePerLaneAndWritesOutputsAndRunFile) {
  const Bench bench;
  write_arrays(bench);
  const Words words{"run",      "mlp:6-5-3", "--input", "x.npz", "--plan", "float16",  "--plan",
                    "bfloat16", "--batch",   "8",       "--out", "y.npz",  "--record", "r.hscope"};
  const Outcome outcome = bench.run(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Words lines = test::lines_of(outcome.out);
  ASSERT_GT(lines.size(), 6u) << outcome.out;
  EXPECT_EQ(lines[4], "outputs: y.npz");
  EXPECT_THAT(lines[6], StartsWith("verdict: ")) << "behind a blank line";
  EXPECT_THAT(lines[0], StartsWith("lane "));
  EXPECT_THAT(lines[0], HasSubstr("accuracy     AUC  output error  not finite  samples/s"));
  EXPECT_THAT(lines[1], StartsWith("float32 "));
  EXPECT_THAT(lines[3], StartsWith("bfloat16 "));
  const NamedTensors outputs = read_npz(bench / "y.npz");
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs.at("float32/logits").shape, (Shape{20, 3}));
  EXPECT_NE(outputs.at("float32/logits").data, outputs.at("float16/logits").data);

  const RunView run = RunView::open(bench / "r.hscope");
  EXPECT_TRUE(run.info().inference);
  EXPECT_EQ(run.status(), RunStatus::complete);
  ASSERT_EQ(run.steps(1).size(), 3u);
  EXPECT_TRUE(std::isnan(run.steps(1)[0].loss));
  EXPECT_FALSE(std::isnan(run.steps(1)[0].accuracy));
  EXPECT_EQ(run.evals(1).size(), 1u);
  const Outcome summary = bench.run({"report", "r.hscope", "--summary", "--fail-on", "error"});
  EXPECT_EQ(summary.code, 0);
  EXPECT_THAT(summary.out, HasSubstr("healthy"));
  const Json report = [&] {
    EXPECT_EQ(bench.run({"report", "r.hscope", "--json", "r.json", "--html", "r.html"}).code, 0);
    return Json::parse(text_of(bench / "r.json"));
  }();
  EXPECT_EQ(report["lanes"][1]["last_loss"], nullptr);
  EXPECT_EQ(report["lanes"][1]["test_loss"], nullptr);
  EXPECT_TRUE(report["lanes"][1]["test_accuracy"].is_number());
  EXPECT_EQ(report["steps"]["float16"]["loss"][0], nullptr);
  EXPECT_FALSE(report["errors"].empty());
  EXPECT_EQ(text_of(bench / "r.html").find("loss not finite"), std::string::npos);
  const Json listed = json_of(bench.run({"inspect", "r.hscope", "--json"}));
  EXPECT_EQ(listed["runs"][0]["lanes"][1]["last_loss"], nullptr);
  EXPECT_EQ(listed["runs"][0]["lanes"][1]["problem"], nullptr);
}

TEST(CliRun, OneFileMayHoldSamplesAndLabels) {
  const Bench bench;
  write_arrays(bench);
  const NamedTensors arrays = read_npz(bench / "x.npz");
  write_npz(bench / "xy.npz", {{"input", arrays.at("input")}, {"y", arrays.at("labels")}});
  const auto accuracy = [&](const Words& more) {
    Words words{"run", "mlp:6-5-3", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return json_of(bench.run(words)).at("lanes")[0].at("accuracy");
  };
  const Json expected = accuracy({"--input", "x.npy", "--labels", "labels.npy"});
  EXPECT_TRUE(expected.is_number());
  EXPECT_EQ(accuracy({"--input", "x.npz"}), expected);
  EXPECT_EQ(accuracy({"--input", "xy.npz"}), expected);
  EXPECT_EQ(accuracy({"--input", "xy.npz", "--labels", "xy.npz"}), expected);
}

TEST(CliRun, ReportsOfForwardPassesSpeakOfBatchesAndNotOfLosses) {
  const Bench bench;
  write_arrays(bench);
  ASSERT_EQ(bench
                .run({"run", "mlp:6-5-3", "--input", "x.npz", "--plan", "float16", "--record",
                      "r.hscope"})
                .code,
            0);
  const Outcome outcome = bench.run({"report", "r.hscope", "--md", "r.md", "--html", "r.html"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string markdown = text_of(bench / "r.md"), html = text_of(bench / "r.html");
  EXPECT_THAT(markdown, HasSubstr("| lane | verdict | batches | output error | accuracy |"));
  EXPECT_THAT(html, HasSubstr("<dt>batches</dt><dd>1</dd>"));
  for (const std::string& text : {markdown, html}) {
    EXPECT_EQ(text.find("last loss"), text.npos);
    EXPECT_EQ(text.find("<dt>skipped"), text.npos);
    for (const char* word : {"Gradients", "gradients", " gradient ", "Updates", "updates",
                             ">Curves<", "oss scale can help"}) {
      EXPECT_EQ(text.find(word), text.npos) << word;
    }
  }
  // A training has them.
  ASSERT_EQ(bench.run(test::small_training({})).code, 0);
  ASSERT_EQ(bench.run({"report", "run.hscope", "--html", "t.html"}).code, 0);
  EXPECT_THAT(text_of(bench / "t.html"), HasSubstr(">Gradients</th>"));
  EXPECT_THAT(text_of(bench / "t.html"), HasSubstr(">Updates</th>"));
  // A line of layers has as many cells as the table has columns.
  const auto cells = [](const std::string& html) {
    const size_t row = html.find("<tr id=\"layer-"), end = html.find("</tr>", row);
    int count = 0;
    for (size_t at = row; at < end; at = html.find("<td", at + 1)) ++count;
    return count;  // the first is the row itself, with the layer as its heading
  };
  EXPECT_EQ(cells(html), 8);
  EXPECT_EQ(cells(text_of(bench / "t.html")), 11);
}

TEST(CliRun, TheNumbersOfTheJsonAreThoseOfTheOutputs) {
  const Bench bench;
  write_arrays(bench);
  const Json json =
      json_of(bench.run({"run", "mlp:6-5-3", "--input", "input=x.npy", "--labels", "labels.npy",
                         "--plan", "float16", "--limit", "15", "--json", "--out", "y.npz"}));
  EXPECT_EQ(json["schema"], "halfscope.run/1");
  EXPECT_EQ(json["samples"], 15);
  EXPECT_EQ(json["outputs"][0]["shape"], (Json{15, 3}));
  const NamedTensors outputs = read_npz(bench / "y.npz");
  const Tensor labels = read_npy(bench / "labels.npy");
  for (const char* lane : {"float32", "float16"}) {
    const std::vector<float>& y = outputs.at(std::string(lane) + "/logits").data;
    int right = 0;
    for (size_t i = 0; i < 15; ++i) {
      const auto row = y.begin() + static_cast<int64_t>(3 * i);
      right += std::max_element(row, row + 3) - row == static_cast<int64_t>(labels.data[i]);
    }
    const Json& entry = json["lanes"][lane == std::string("float16") ? 1 : 0];
    EXPECT_EQ(entry["name"], lane);
    EXPECT_DOUBLE_EQ(entry["accuracy"].get<double>(), right / 15.0);
  }
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < 45; ++i) {
    const double a = static_cast<double>(outputs.at("float16/logits").data[i]);
    const double b = static_cast<double>(outputs.at("float32/logits").data[i]);
    difference += (a - b) * (a - b);
    size += b * b;
  }
  EXPECT_NEAR(json["lanes"][1]["output_error"].get<double>(), std::sqrt(difference / size), 1e-15);
  EXPECT_EQ(json["lanes"][0]["output_error"], nullptr);
}

TEST(CliRun, RandomInputsAreTheSameEveryTimeAndNpyHoldsTheOnlyOutput) {
  const Bench bench;
  for (const char* file : {"a.npy", "b.npy"}) {
    const Words words{"run", "mlp:6-3", "--random-input", "7", "--limit", "5", "--out", file};
    ASSERT_EQ(bench.run(words).code, 0);
  }
  EXPECT_EQ(read_npy(bench / "a.npy").shape, (Shape{5, 3}));
  EXPECT_EQ(text_of(bench / "a.npy"), text_of(bench / "b.npy"));
}

// The advice on a run that overflows fixes it, and the next command suggests trying it.
TEST(CliRun, AnOverflowThatReachesTheOutputsIsBrokenAndCured) {
  const Bench bench;
  const Words network{"run", "lenet-hot", "--data", "digits", "--limit", "64", "--batch", "32"};
  const auto run = [&](const Words& more) {
    Words words = network;
    words.insert(words.end(), more.begin(), more.end());
    return bench.run(words);
  };
  ASSERT_EQ(run({"--plan", "mixed_float16", "--record", "hot.hscope"}).code, 0);
  const Outcome summary = bench.run({"report", "hot.hscope", "--summary", "--fail-on", "error"});
  EXPECT_EQ(summary.code, 1);
  EXPECT_THAT(summary.out,
              AllOf(HasSubstr("fails because conv2 overflows fp16"),
                    HasSubstr("640 of the 640 values of its output logits are NaN or infinite")));
  EXPECT_THAT(summary.out, HasSubstr("Keep conv2 in fp32"));
  const Outcome advice = bench.run({"diagnose", "hot.hscope", "--out", "plan.json"});
  ASSERT_EQ(advice.code, 0) << advice.err;
  EXPECT_THAT(advice.out, HasSubstr("The outputs are NaN or infinite."));
  EXPECT_THAT(advice.out,
              HasSubstr("next: halfscope run lenet-hot --data digits --limit 64 --batch "
                        "32 --seed 1 --plan plan.json --record cured.hscope"));
  const Outcome proved = bench.run({"diagnose", "hot.hscope", "--verify"});
  EXPECT_EQ(proved.code, 0) << proved.err;
  EXPECT_THAT(proved.out, HasSubstr("\nproof: Tested by running it: "));
  ASSERT_EQ(run({"--lanes", "float32,plan.json,mixed_float16", "--record", "cured.hscope"}).code,
            0);
  const Outcome cured = bench.run({"report", "cured.hscope", "--summary"});
  EXPECT_THAT(cured.out, HasSubstr("HalfScope: cured"));
  EXPECT_THAT(cured.out, HasSubstr("is healthy: its outputs are close enough to float32's"));
}

// A mask of -inf is an input as others are; nothing trains on one.
TEST(CliRun, InputsMayHoldInfinitiesAndNaN) {
  const Bench bench;
  Tensor x = filled({3, 6}, 1);
  x.data[0] = -INFINITY;
  x.data[6] = NAN;
  write_npy(bench / "x.npy", x);
  write_npz(bench / "train.npz", {{"input", x}, {"targets", filled({3, 3}, 2)}});
  const Json json = json_of(bench.run(
      {"run", "mlp:6-3", "--input", "x.npy", "--plan", "float16", "--json", "--out", "y.npz"}));
  // Both samples lose all three outputs, the third sample none.
  EXPECT_EQ(json["lanes"][0]["non_finite"], 6);
  EXPECT_EQ(json["lanes"][1]["non_finite"], 6);
  const Outcome training = bench.run({"train", "--model", "mlp:6-3", "--loss", "mse", "--data",
                                      "train.npz", "--batch", "1", "--steps", "1"});
  EXPECT_EQ(training.code, 2);
  EXPECT_THAT(training.err, HasSubstr("train.npz: array 'input'[0,0] is -inf"));
  const DoubleTensor beyond{{1, 1}, {1e300}};
  EXPECT_THROW(sample_array("x", beyond, "x.npy", ArrayValues::any), Error);
}

TEST(CliRun, MistakesAreOneLine) {
  const Bench bench;
  write_arrays(bench);
  write_npy(bench / "seven.npy", filled({4, 7}, 5));
  test::write_text(bench / "net.onnx", "");
  struct Mistake {
    Words words;
    const char* says;
    int code = 2;
  };
  for (const Mistake& each : {
           Mistake{{"mlp:6-3"}, "run needs samples"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--random-input", "1"}, "exclude each other"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--normalize", "raw"}, "--normalize is for the"},
           Mistake{{"mlp:6-3", "--input", "seven.npy"},
                   "has shape [4, 6], but a sample has shape [7]"},
           Mistake{{"mlp:6-3", "--input", "x.txt"}, "not a .npy, .npz or .safetensors"},
           Mistake{{"mlp:6-3", "--input", "gone.npy"}, "cannot read 'gone.npy'", 3},
           Mistake{{"mlp:6-3", "--input", "a=x.npy", "--input", "a=labels.npy"},
                   "second array for \"a\""},
           Mistake{{"mlp:6-3", "--input", "x.npz", "--labels", "x.npy"}, "not whole numbers"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--out", "y.txt"}, "not a .npz or .npy file"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--out", "x.npy"}, "x.npy"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--plan", "float16", "--out", "y.npy"},
                   "has room for the outputs of one lane"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--plan", "float17"}, "no plan named 'float17'"},
           Mistake{{"mlp:6-3", "--input", "x.npy", "--dimension", "n=3"}, "for network files"},
           Mistake{{"lenett", "--data", "digits"}, "unknown model 'lenett'"},
           Mistake{{"net.onnx", "--input", "x.npy"}, "'net.onnx' is not a valid ONNX file", 3},
           Mistake{{"mlp:1000000-3", "--random-input", "1", "--limit", "1e9"},
                   "out of memory: 1000000000 samples take 4e+06 GB, this machine has",
                   3},
           Mistake{{"gone.onnx", "--input", "x.npy"}, "cannot open 'gone.onnx'", 3},
       }) {
    Words words{"run"};
    words.insert(words.end(), each.words.begin(), each.words.end());
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, each.code) << each.says << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("halfscope: "));
    EXPECT_THAT(outcome.err, HasSubstr(each.says));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(bench / "y.npy"));
}

const Words kRegression{
    "train",   "--model", "mlp:6-8-3", "--loss", "mse",    "--data", "reg.npz,test=test.npz",
    "--batch", "4",       "--steps",   "30",     "--quiet"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CliTrainArrays, ARegressionHasNoAccuracyAnywhere) {
  const Bench bench;
  write_arrays(bench);
  const Json json = json_of(bench.run(with(kRegression, {"--json"})));
  EXPECT_EQ(json["lanes"][0]["test_accuracy"], nullptr);
  EXPECT_TRUE(json["lanes"][0]["test_loss"].is_number());
  ASSERT_EQ(bench.run({"report", "run.hscope", "--json", "r.json", "--md", "r.md"}).code, 0);
  const Json report = Json::parse(text_of(bench / "r.json"));
  EXPECT_EQ(report["lanes"][0]["test_accuracy"], nullptr);
  EXPECT_TRUE(report["lanes"][0]["test_loss"].is_number());
  EXPECT_EQ(report["steps"]["float32"]["accuracy"][0], nullptr);
  ASSERT_EQ(bench.run({"report", "run.hscope", "--steps", "steps.csv"}).code, 0);
}

// The run file says how to train again: advice on it can be proved, and it can be resumed.
TEST(CliTrainArrays, VerifyAndResumeTrainTheSameAgain) {
  const Bench bench;
  write_arrays(bench);
  const Outcome proved = bench.run(with(kRegression, {"--plan", "mixed_float16", "--loss-scale",
                                                      "static:1e30", "--verify", "--json"}));
  EXPECT_TRUE(proved.code == 0 || proved.code == 1) << proved.err;
  EXPECT_TRUE(Json::parse(proved.out)["proof"].is_object());
  ASSERT_EQ(bench.run(with(kRegression, {"--out", "a.hscope", "--save-weights", "a.npz"})).code, 0);
  Words half = with(kRegression, {"--out", "b.hscope", "--checkpoint", "c.npz"});
  half[10] = "12";
  ASSERT_EQ(half[9], "--steps");
  ASSERT_EQ(bench.run(half).code, 0);
  ASSERT_EQ(bench
                .run(with(kRegression,
                          {"--out", "d.hscope", "--resume", "c.npz", "--save-weights", "d.npz"}))
                .code,
            0);
  EXPECT_EQ(text_of(bench / "a.npz"), text_of(bench / "d.npz"));
  const Outcome other = bench.run({"train", "--model", "mlp:6-8-3", "--data", "x.npz", "--batch",
                                   "4", "--resume", "c.npz", "--out", "e.hscope"});
  EXPECT_EQ(other.code, 2) << other.err;
}

TEST(CliTrainArrays, MistakesAreOneLine) {
  const Bench bench;
  write_arrays(bench);
  struct Mistake {
    Words words;
    const char* says;
    int code = 2;
  };
  for (const Mistake& each : {
           Mistake{{"--data", "x.npz", "--loss", "mse"}, "input 'targets' has shape [4, 3]"},
           Mistake{{"--data", "reg.npz"}, "input 'labels'"},
           Mistake{{"--data", "reg.npz,test=x.npz", "--loss", "mse"},
                   "does not contain the same arrays as"},
           Mistake{{"--data", "gone.npz"}, "cannot read 'gone.npz'", 3},
           Mistake{{"--data", "x.npz", "--loss", "mean"}, "has no output 'mean'"},
           Mistake{{"--data", "x.npz", "--normalize", "raw"}, "is for images"},
           Mistake{{"--data", "digits", "--normalize", "1/0"}, "not positive"},
           Mistake{{"--data", "digits", "--normalize", "1,2/3"},
                   "normalize '1,2/3' does not fit images with 1 channel\n"},
           Mistake{{"--data", "x.npz", "--optimizer-state", "fp17"}, "unknown format 'fp17'"},
           Mistake{{"--data", "x.npz", "--out", "x.npz", "--force"}, "x.npz"},
       }) {
    const Outcome outcome = bench.run(
        with({"train", "--model", "mlp:6-3", "--batch", "4", "--steps", "2"}, each.words));
    EXPECT_EQ(outcome.code, each.code) << each.says << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(each.says));
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
  }
  const Outcome lost = bench.run({"train", "--model", "gone.onnx", "--data", "x.npz"});
  EXPECT_THAT(lost.err, HasSubstr("cannot open 'gone.onnx': file not found"));
}

// Printed settings read back: the same settings, the same run.
TEST(CliTrainFile, PrintsWhatItReads) {
  const Bench bench;
  write_arrays(bench);
  test::write_text(bench / "plan.json", R"({"schema": "halfscope.plan/1", "name": "mine",
    "default": {"format": "fp16"}, "rules": [{"path": "fc*", "accumulate": "kahan"}]})");
  const Words settings = with(kRegression, {"--lanes",
                                            "float32,plan.json,emulated:bfloat16",
                                            "--optimizer",
                                            "adam:lr=0.02,beta1=0.8",
                                            "--optimizer-state",
                                            "bf16",
                                            "--schedule",
                                            "cosine:warmup=3",
                                            "--clip-norm",
                                            "0.5",
                                            "--micro-batches",
                                            "2",
                                            "--accumulate-grads",
                                            "fp16",
                                            "--seed",
                                            "9",
                                            "--loss-scale",
                                            "static:64",
                                            "--fp32",
                                            "fc2",
                                            "--errors-every",
                                            "7",
                                            "--compare",
                                            "mine+fp32,float32",
                                            "--no-shuffle"});
  const Outcome printed = bench.run(with(settings, {"--print-config"}));
  ASSERT_EQ(printed.code, 0) << printed.err;
  EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope")) << "nothing was trained";
  test::write_text(bench / "config.json", printed.out);
  const Json json = Json::parse(printed.out);
  EXPECT_EQ(json["lanes"][1]["name"], "mine") << "plans are spelled out";
  EXPECT_EQ(json["lanes"][2]["backend"], "emulated");
  std::filesystem::remove(bench / "plan.json");
  const Outcome again = bench.run({"train", "--config", "config.json", "--print-config"});
  EXPECT_EQ(again.out, printed.out) << again.err;

  test::write_text(bench / "plan.json", json["lanes"][1].dump());
  ASSERT_EQ(bench.run(with(settings, {"--save-weights", "a.npz", "--out", "a.hscope"})).code, 0);
  ASSERT_EQ(bench
                .run({"train", "--config", "config.json", "--save-weights", "b.npz", "--out",
                      "b.hscope", "--quiet"})
                .code,
            0);
  EXPECT_EQ(text_of(bench / "a.npz"), text_of(bench / "b.npz"));
  const RunView a = RunView::open(bench / "a.hscope"), b = RunView::open(bench / "b.hscope");
  EXPECT_EQ(a.info().settings, b.info().settings);
  ASSERT_EQ(a.lane_count(), b.lane_count());
  for (int lane = 0; lane < a.lane_count(); ++lane) {
    EXPECT_EQ(a.lane(lane).name, b.lane(lane).name);
    EXPECT_EQ(a.lane(lane).plan_json, b.lane(lane).plan_json);
    EXPECT_EQ(a.steps(lane).back().loss, b.steps(lane).back().loss);
  }
}

TEST(CliTrainFile, TheCommandLineWins) {
  const Bench bench;
  test::write_text(bench / "c.json", R"({"schema": "halfscope.train-config/1", "steps": 7,
    "batch": 16, "lr": 0.5, "plan": "bfloat16", "no_eval": true, "init": null,
    "dimension": {}, "fp32": ["fc1"]})");
  const Json file = json_of(bench.run({"train", "--config", "c.json", "--print-config"}));
  EXPECT_EQ(file["steps"], 7);
  EXPECT_EQ(file["optimizer"], "sgd:lr=0.5");
  EXPECT_EQ(file["lanes"], (Json{"float32", "bfloat16"}));
  const Json typed = json_of(bench.run({"train", "--config", "c.json", "--print-config", "--steps",
                                        "3", "--optimizer", "adam", "--lanes", "float16"}));
  EXPECT_EQ(typed["steps"], 3);
  EXPECT_EQ(typed["batch"], 16);
  EXPECT_EQ(typed["optimizer"], "adam:lr=0.001");
  EXPECT_EQ(typed["lanes"], (Json{"float16"}));
  EXPECT_EQ(typed["fp32"], (Json{"fc1"}));
  EXPECT_EQ(typed["no_eval"], true);
}

TEST(CliTrainFile, MistakesNameTheFileAndTheKey) {
  const Bench bench;
  const auto says = [&](const std::string& members) {
    test::write_text(bench / "c.json",
                     "{\"schema\": \"halfscope.train-config/1\", " + members + "}");
    const Outcome outcome = bench.run({"train", "--config", "c.json", "--print-config"});
    EXPECT_EQ(outcome.code, 2) << members;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(says("\"stpes\": 3"), HasSubstr("c.json: unknown key \"stpes\""));
  EXPECT_THAT(says("\"stpes\": 3"), HasSubstr("hint: did you mean steps?"));
  EXPECT_THAT(says("\"out\": \"x\""), HasSubstr("unknown key \"out\""));
  EXPECT_THAT(says("\"steps\": 0"), HasSubstr("c.json: "));
  EXPECT_THAT(says("\"steps\": [3]"), HasSubstr("\"steps\": must be a text or a number"));
  EXPECT_THAT(says("\"fast\": 1"), HasSubstr("\"fast\": must be true or false"));
  EXPECT_THAT(says("\"lanes\": [{\"plan\": \"float16\", \"bakend\": \"cuda\"}]"),
              HasSubstr("\"lanes\": unknown key \"bakend\""));
  EXPECT_THAT(says("\"lanes\": [{\"name\": \"x\"}]"), HasSubstr("schema"));
  test::write_text(bench / "c.json", "{\"steps\": 3}");
  EXPECT_THAT(bench.run({"train", "--config", "c.json"}).err, HasSubstr("does not say \"schema\""));
  test::write_text(bench / "c.json", "[]");
  EXPECT_THAT(bench.run({"train", "--config", "c.json"}).err, HasSubstr("is not a JSON object"));
  test::write_text(bench / "c.json", "{\n  \"steps\": 3,\n}");
  EXPECT_THAT(bench.run({"train", "--config", "c.json"}).err,
              HasSubstr("c.json: not valid JSON: line 3, column 1: unexpected }"));
  EXPECT_EQ(bench.run({"train", "--config", "gone.json"}).code, 3);
}

TEST(CliRun, DetectorsHaveAMeanAveragePrecision) {
  const Bench bench;
  for (const char* model : {"retinanet-small", "efficientdet-small"}) {
    const Outcome trained = bench.run(
        {"train", "--model", model, "--data", "shapes", "--steps", "2", "--batch", "4", "--lanes",
         "float32", "--out", "t.hscope", "--save-weights", "w.npz", "--force", "--quiet"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Words words{"run", model,    "--data", "shapes", "--limit",
                      "8",   "--init", "w.npz",  "--plan", "mixed_float16"};
    const Outcome shown = bench.run(words);
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("mAP50     mAP  output error"));
    Words asked = words;
    asked.emplace_back("--json");
    for (const Json& lane : json_of(bench.run(asked)).at("lanes")) {
      const double half = lane.at("map50").get<double>(), mean = lane.at("map").get<double>();
      EXPECT_TRUE(half >= mean && mean >= 0.0 && half <= 1.0) << half << " " << mean;
    }
  }
  // No detector, or none for these anchors.
  const Outcome other = bench.run({"run", "lenet", "--data", "digits", "--limit", "8", "--json"});
  EXPECT_TRUE(json_of(other).at("lanes").at(0).at("map").is_null());
}

}  // namespace
}  // namespace halfscope
