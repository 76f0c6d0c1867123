// SPDX-License-Identifier: MIT
// Set-ups in two files, a network and a configuration: their contents, whether printing and reading
// agree, and the explanation of a set-up that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "core/data/npz.h"
#include "tests/cli/bad_inputs.h"

namespace halfscope {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using test::Bench;
using test::Outcome;
using test::Words;

Json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

void write_config(const Bench& bench, const std::string& kind, const std::string& members) {
  test::write_text(bench / "c.json",
                   "{\"schema\": \"halfscope." + kind + "-config/1\", " + members + "}");
}

/// The finding of that rule in the lane, or null.
Json finding_of(const Bench& bench, const std::string& lane, const std::string& rule) {
  EXPECT_EQ(bench.run({"report", "run.hscope", "--json", "r.json", "--force", "--quiet"}).code, 0);
  const Json report = Json::parse(test::text_of(bench / "r.json"));
  for (const Json& finding : report["findings"]) {
    if (finding["rule"] == rule && finding["lane"] == lane) return finding;
  }
  return nullptr;
}

// Averages in bf16 with a decay of 0.9999: two files describe the set-up, and the report says what
// is wrong. The lane in fp32 and averages kept in fp32 are not blamed.
TEST(CliConfig, AveragesThatStandStillAreExplained) {
  const Bench bench;
  ASSERT_EQ(bench.run({"convert", "mlp:784-16-10", "--data", "digits", "--out", "net.onnx"}).code,
            0);
  const std::string setup = R"("model": "net.onnx", "loss": "cross-entropy", "data": "digits",
    "steps": 30, "batch": 32, "lanes": ["float32", "mixed_bfloat16"], "no_errors": true,
    "eval_ema": true, "ema": {"decay": 0.9999, "format": )";
  write_config(bench, "train", setup + "\"bf16\"}");
  ASSERT_EQ(bench.run({"train", "--config", "c.json", "--quiet"}).code, 0);
  const Json finding = finding_of(bench, "mixed_bfloat16", "lost_updates");
  ASSERT_FALSE(finding.is_null());
  EXPECT_EQ(finding["severity"], "warning");
  EXPECT_GT(finding["evidence"]["lost_share"].get<double>(), 0.95);
  EXPECT_EQ(finding["evidence"]["storage"], "bf16");
  EXPECT_THAT(finding["site"].get<std::string>(), HasSubstr("_ema_update"));
  EXPECT_THAT(finding["text"].get<std::string>(),
              HasSubstr("lose updates of moving averages in bf16"));
  EXPECT_THAT(finding["action"]["text"].get<std::string>(), HasSubstr("format=fp32"));
  EXPECT_TRUE(finding_of(bench, "float32", "lost_updates").is_null());
  // The average stays at its start, so it is as good as an untrained network.
  const Json reports = Json::parse(test::text_of(bench / "r.json"));
  EXPECT_EQ(reports["run"]["evaluated"], "averages");
  EXPECT_LT(reports["lanes"][1]["test_accuracy"].get<double>(), 0.3);

  write_config(bench, "train", setup + "\"fp32\"}");
  ASSERT_EQ(bench.run({"train", "--config", "c.json", "--quiet", "--force"}).code, 0);
  EXPECT_TRUE(finding_of(bench, "mixed_bfloat16", "lost_updates").is_null());
}

TEST(CliConfig, AveragesAreSavedAndLoaded) {
  const Bench bench;
  const Words words =
      test::small_training({"--lanes", "mixed_float16", "--ema", "0.5", "--save-weights", "w.npz",
                            "--save-ema", "e.npz", "--optimizer", "sgd:lr=0.5"});
  ASSERT_EQ(bench.run(words).code, 0);
  const NamedTensors weights = read_npz(bench / "w.npz"), averages = read_npz(bench / "e.npz");
  ASSERT_EQ(weights.size(), 8u);
  ASSERT_EQ(averages.size(), 4u);
  for (const auto& [path, tensor] : averages) {
    EXPECT_EQ(tensor.data, weights.at(path + ".ema").data);
    EXPECT_NE(tensor.data, weights.at(path).data);
  }
  // A training of no steps to speak of ends with the averages that it was given.
  ASSERT_EQ(bench
                .run({"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "1", "--lr",
                      "0", "--lanes", "mixed_float16", "--ema", "0.5", "--init", "w.npz",
                      "--save-ema", "e2.npz", "--force", "--quiet"})
                .code,
            0);
  const NamedTensors moved = read_npz(bench / "e2.npz");
  for (const auto& [path, tensor] : averages) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      EXPECT_EQ(moved.at(path).data[i],
                tensor.data[i] + 0.5f * (weights.at(path).data[i] - tensor.data[i]));
    }
  }
  // Both files are weights for others.
  for (const char* file : {"w.npz", "e.npz"}) {
    EXPECT_EQ(bench.run({"run", "mlp:784-16-10", "--data", "digits", "--init", file}).code, 0);
  }
}

// A norm beyond fp16 makes the factor 0: no update is left in the lane that clips in fp16.
TEST(CliConfig, AClippingNormThatOverflowsStopsTheTraining) {
  const Bench bench;
  write_config(bench, "train", R"("model": "mlp:784-16-10", "normalize": "raw", "batch": 16,
    "steps": 3, "clip_norm": 1, "no_errors": true, "loss_scale": "static:1",
    "lanes": ["float32", {"plan": {"schema": "halfscope.plan/1", "name": "clips",
      "variables": {"clip": "fp16", "clip_mode": "stagewise"}}}])");
  ASSERT_EQ(bench.run({"train", "--config", "c.json", "--quiet"}).code, 0);
  const RunView run = RunView::open(bench / "run.hscope");
  const auto site = [&](int lane, const char* name) {
    const std::optional<int> found = run.find_site(lane, name);
    EXPECT_TRUE(found) << name;
    return found ? run.total(lane, *found) : TensorStats{};
  };
  EXPECT_FALSE(run.find_site(0, "clipping.norm")) << "the reference clips in fp32";
  const TensorStats norm = site(1, "clipping.norm");
  EXPECT_EQ(norm.n, 3);
  EXPECT_EQ(norm.overflow + norm.pos_inf, 3);
  EXPECT_EQ(site(1, "fc1.weight_update").max_abs, 0.0f);
  EXPECT_GT(site(0, "fc1.weight_update").max_abs, 0.0f);
  EXPECT_EQ(run.steps(1).back().skipped, false);
}

TEST(CliConfig, UpdateFormatsGoThereAndBack) {
  const Bench bench;
  const Words words{
      "train",      "--print-config",      "--ema", "0.99:form=average,format=bf16,compute=fp16",
      "--eval-ema", "--clip-norm",         "1",     "--clip-format",
      "fp16",       "--optimizer-compute", "bf16",  "--running-variance",
      "population"};
  const Outcome printed = bench.run(words);
  const Json json = json_of(printed);
  EXPECT_EQ(json["ema"],
            (Json{{"decay", 0.99}, {"form", "average"}, {"format", "bf16"}, {"compute", "fp16"}}));
  EXPECT_EQ(json["clip_format"], "fp16");
  EXPECT_EQ(json["optimizer_compute"], "bf16");
  EXPECT_EQ(json["eval_ema"], true);
  EXPECT_EQ(json["running_variance"], "population");
  test::write_text(bench / "c.json", printed.out);
  EXPECT_EQ(bench.run({"train", "--config", "c.json", "--print-config"}).out, printed.out);
  // Words of the command line go before it.
  const Json typed =
      json_of(bench.run({"train", "--config", "c.json", "--print-config", "--ema", "0.5"}));
  EXPECT_EQ(typed["ema"], (Json{{"decay", 0.5}, {"form", "lerp"}}));
  write_config(bench, "train", "\"ema\": 0.75");
  EXPECT_EQ(json_of(bench.run({"train", "--config", "c.json", "--print-config"}))["ema"]["decay"],
            0.75);
}

// A lane's plan contains the formats, and so do run files and proofs.
TEST(CliConfig, UpdateFormatsAreThePlansOfLanesThatAreNoReferences) {
  const Bench bench;
  ASSERT_EQ(bench
                .run(test::small_training({"--lanes", "float32,mixed_float16", "--ema",
                                           "0.9:format=bf16", "--clip-norm", "1", "--clip-format",
                                           "fp16", "--optimizer-compute", "bf16"}))
                .code,
            0);
  const RunView run = RunView::open(bench / "run.hscope");
  const Json reference = Json::parse(run.lane(0).plan_json)["variables"],
             other = Json::parse(run.lane(1).plan_json)["variables"];
  EXPECT_EQ(reference, (Json{{"storage", "fp32"}}));
  EXPECT_EQ(
      other,
      (Json{{"storage", "fp32"}, {"ema", "bf16"}, {"update_compute", "bf16"}, {"clip", "fp16"}}));
}

TEST(CliConfig, MistakesInUpdateFormatsAreOneLine) {
  const Bench bench;
  const auto says = [&](const std::string& members) {
    write_config(bench, "train", members);
    const Outcome outcome = bench.run({"train", "--config", "c.json", "--print-config"});
    EXPECT_EQ(outcome.code, 2) << members;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(says("\"ema\": {\"dekay\": 0.9}"),
              HasSubstr("c.json: \"ema\": unknown key \"dekay\""));
  EXPECT_THAT(says("\"ema\": {\"dekay\": 0.9}"), HasSubstr("did you mean decay?"));
  EXPECT_THAT(says("\"ema\": {\"format\": \"bf16\"}"), HasSubstr("\"ema\": \"decay\" is missing"));
  EXPECT_THAT(says("\"ema\": 1.5"), HasSubstr("decay 1.5 is not between 0 and 1"));
  EXPECT_THAT(says("\"ema\": {\"decay\": 0.9, \"format\": \"f16\"}"),
              HasSubstr("did you mean fp16?"));
  EXPECT_THAT(says("\"eval_ema\": true"), HasSubstr("--eval-ema needs moving averages"));
  EXPECT_THAT(says("\"clip_format\": \"fp16\""), HasSubstr("--clip-format needs a norm"));
  EXPECT_THAT(says("\"clip_norm\": 1, \"clip_format\": \"fp17\""),
              HasSubstr("unknown format 'fp17'"));
  EXPECT_THAT(says("\"optimizer_compute\": \"fp17\""),
              HasSubstr("c.json: \"optimizer_compute\": unknown format 'fp17'"));
  EXPECT_THAT(says("\"running_variance\": \"biased\""),
              HasSubstr("c.json: \"running_variance\": unknown value 'biased'"));
  const Outcome none = bench.run(test::small_training({"--running-variance", "sample"}));
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("no batch normalization that trains"));
  EXPECT_THAT(says(R"("plan": {"schema": "halfscope.plan/1", "name": "p",
                      "variables": {"clip_mode": "slow"}})"),
              HasSubstr("variables.clip_mode: unknown value"));
}

/// x.npy: 8 samples of 6 numbers; labels.npy.
void write_samples(const Bench& bench) {
  Tensor x{{8, 6}, {}}, labels{{8}, {}};
  for (int i = 0; i < 48; ++i) x.data.push_back(std::sin(static_cast<float>(i)));
  for (int i = 0; i < 8; ++i) labels.data.push_back(static_cast<float>(i % 3));
  write_npy(bench / "x.npy", x);
  write_npy(bench / "labels.npy", labels);
}

// Printed settings read back: the same settings, the same run.
TEST(CliRunFile, PrintsWhatItReads) {
  const Bench bench;
  write_samples(bench);
  test::write_text(bench / "plan.json", R"({"schema": "halfscope.plan/1", "name": "mine",
    "default": {"format": "fp16"}, "rules": [{"path": "fc*", "accumulate": "kahan"}]})");
  const Words settings{"run",
                       "mlp:6-5-3",
                       "--input",
                       "x.npy",
                       "--labels",
                       "labels.npy",
                       "--plan",
                       "plan.json",
                       "--plan",
                       "emulated:bfloat16",
                       "--batch",
                       "2",
                       "--limit",
                       "6",
                       "--seed",
                       "3",
                       "--fp32",
                       "fc2",
                       "--errors-every",
                       "2",
                       "--compare",
                       "mine+fp32,float32",
                       "--every",
                       "2"};
  const auto with = [&](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Outcome printed = bench.run(with(settings, {"--print-config"}));
  const Json json = json_of(printed);
  EXPECT_EQ(json["schema"], "halfscope.run-config/1");
  EXPECT_EQ(json["network"], "mlp:6-5-3");
  EXPECT_EQ(json["lanes"][1]["name"], "mine") << "plans are spelled out";
  EXPECT_EQ(json["lanes"][2], (Json{{"backend", "emulated"}, {"plan", "bfloat16"}}));
  EXPECT_EQ(json["limit"], 6);
  test::write_text(bench / "c.json", printed.out);
  const Outcome again = bench.run({"run", "--config", "c.json", "--print-config"});
  EXPECT_EQ(again.out, printed.out) << again.err;

  ASSERT_EQ(bench.run(with(settings, {"--record", "a.hscope", "--out", "a.npz"})).code, 0);
  std::filesystem::remove(bench / "plan.json");
  const Outcome outcome =
      bench.run({"run", "--config", "c.json", "--record", "b.hscope", "--out", "b.npz"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const NamedTensors a = read_npz(bench / "a.npz"), b = read_npz(bench / "b.npz");
  ASSERT_EQ(a.size(), 3u);
  for (const auto& [name, tensor] : a) EXPECT_EQ(tensor.data, b.at(name).data) << name;
  const RunView first = RunView::open(bench / "a.hscope"),
                second = RunView::open(bench / "b.hscope");
  EXPECT_EQ(first.info().settings, second.info().settings);
  EXPECT_EQ(first.windows(1, 0).size(), second.windows(1, 0).size());
}

TEST(CliRunFile, TheCommandLineWins) {
  const Bench bench;
  write_samples(bench);
  write_config(bench, "run", R"("network": "mlp:6-5-3", "input": ["x.npy"], "batch": 2,
    "plan": ["float16", {"schema": "halfscope.plan/1", "name": "mine"}], "dimension": {})");
  const Json file = json_of(bench.run({"run", "--config", "c.json", "--print-config"}));
  EXPECT_EQ(file["lanes"].size(), 3u);
  const Json typed =
      json_of(bench.run({"run", "--config", "c.json", "mlp:6-4-3", "--random-input", "5", "--lanes",
                         "bfloat16", "--batch", "4", "--print-config"}));
  EXPECT_EQ(typed["network"], "mlp:6-4-3");
  EXPECT_EQ(typed["random_input"], 5);
  EXPECT_FALSE(typed.contains("input"));
  EXPECT_EQ(typed["batch"], 4);
  EXPECT_EQ(typed["lanes"], (Json{"bfloat16"}));
}

TEST(CliRunFile, MistakesNameTheFileAndTheKey) {
  const Bench bench;
  const auto says = [&](const std::string& members) {
    write_config(bench, "run", members);
    const Outcome outcome = bench.run({"run", "--config", "c.json", "--print-config"});
    EXPECT_EQ(outcome.code, 2) << members;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(says("\"netwrok\": \"lenet\""), HasSubstr("c.json: unknown key \"netwrok\""));
  EXPECT_THAT(says("\"netwrok\": \"lenet\""), HasSubstr("did you mean network?"));
  EXPECT_THAT(says("\"data\": \"digits\""), HasSubstr("run needs a network"));
  EXPECT_THAT(says("\"steps\": 3"), HasSubstr("unknown key \"steps\""));
  EXPECT_THAT(says("\"network\": \"lenet\""), HasSubstr("run needs samples"));
  EXPECT_THAT(says("\"network\": \"lenet\", \"limit\": 0"), HasSubstr("c.json: "));
  EXPECT_THAT(says("\"network\": [1]"), HasSubstr("\"network\": must be a text or a number"));
  test::write_text(bench / "c.json", R"({"schema": "halfscope.train-config/1"})");
  EXPECT_THAT(bench.run({"run", "--config", "c.json"}).err,
              HasSubstr("does not say \"schema\": \"halfscope.run-config/1\""));
  EXPECT_THAT(bench.run({"run", "--data", "digits"}).err, HasSubstr("run needs a network"));
}

}  // namespace
}  // namespace halfscope
