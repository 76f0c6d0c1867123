// SPDX-License-Identifier: MIT
// --json: one JSON object on standard output with the keys of docs/reference/json.md only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::Outcome;
using test::small_training;
using testing::ElementsAreArray;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Words keys_of(const json& object) {
  Words keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

const Words kLaneKeys{"name",       "backend",   "reference",       "loss_scale",  "steps",
                      "skipped",    "last_loss", "last_loss_scale", "test_loss",   "test_accuracy",
                      "test_map50", "test_auc",  "test_mean_iou",   "ms_per_step", "problem"};

void expect_keys(const json& object, Words keys) {
  std::sort(keys.begin(), keys.end());
  EXPECT_THAT(keys_of(object), ElementsAreArray(keys));
}

/// The result of a command that must succeed.
json json_of(const Bench& bench, const Words& words, int code = 0) {
  const Outcome outcome = bench.run(words);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json::parse(outcome.out);
}

/// Without --quiet, which --json does not need.
Words training(Words more) {
  Words words{"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "4", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CliJson, Train) {
  const Bench bench;
  const json run = json_of(bench, training({"--save-weights", "w.npz"}));
  expect_keys(run, {"schema", "version", "run", "status", "steps_planned", "seconds",
                    "save_weights", "save_ema", "network", "lanes", "verdict", "twins", "proof"});
  EXPECT_EQ(run.at("schema"), "halfscope.train/1");
  EXPECT_EQ(run.at("proof"), nullptr) << "nobody asked for one";
  EXPECT_EQ(run.at("network"), nullptr) << "it is built in";
  EXPECT_EQ(run.at("run"), "run.hscope");
  EXPECT_EQ(run.at("status"), "complete");
  EXPECT_EQ(run.at("save_weights"), "w.npz");
  EXPECT_EQ(run.at("save_ema"), nullptr);
  ASSERT_EQ(run.at("lanes").size(), 2u);
  const json& lane = run.at("lanes").at(1);
  expect_keys(lane, kLaneKeys);
  EXPECT_EQ(lane.at("name"), "mixed_float16");
  EXPECT_EQ(lane.at("loss_scale"), "dynamic:65536");
  EXPECT_EQ(lane.at("reference"), false);
  EXPECT_EQ(run.at("lanes").at(0).at("reference"), true);
  EXPECT_EQ(run.at("lanes").at(0).at("loss_scale"), "none");
  EXPECT_EQ(lane.at("steps"), 4);
  EXPECT_EQ(lane.at("problem"), nullptr);
  EXPECT_GT(lane.at("test_accuracy"), 0.0);
}

TEST(CliJson, RunsAndALaneWithoutAResult) {
  const Bench bench;
  // A learning rate that blows up the weights.
  json_of(bench, training({"--lr", "1e30", "--loss-scale", "none"}));
  const json list = json_of(bench, {"inspect", "run.hscope", "run.hscope", "--json"});
  expect_keys(list, {"schema", "version", "runs"});
  EXPECT_EQ(list.at("schema"), "halfscope.runs/1");
  ASSERT_EQ(list.at("runs").size(), 2u);
  const json& run = list.at("runs").at(0);
  expect_keys(run, {"run", "version", "model", "data", "optimizer", "batch", "seed", "status",
                    "steps_planned", "settings", "command", "lanes"});
  EXPECT_THAT(run.at("settings").get<Words>(),
              ElementsAreArray({"--model", "mlp:784-16-10", "--data", "digits", "--steps", "4",
                                "--batch", "16", "--optimizer", "sgd:lr=1e+30", "--seed", "1"}));
  const json& lane = run.at("lanes").at(1);
  expect_keys(lane, kLaneKeys);
  EXPECT_EQ(lane.at("last_loss"), "nan");
  EXPECT_EQ(lane.at("problem"), "the last loss is not finite");
  EXPECT_NE(lane.at("test_accuracy"), nullptr) << "it was measured";
  const Outcome table = bench.run({"inspect", "run.hscope"});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.out, HasSubstr(" nan "));
  EXPECT_THAT(table.out, HasSubstr("0.00%")) << "a sample with a NaN counts as wrong";
}

TEST(CliJson, ReductionsByRanks) {
  const Bench bench;
  json_of(bench,
          training({"--ranks", "8", "--reduce", "ring:format=bf16", "--save-weights", "w.npz"}));
  const json list = json_of(bench, {"inspect", "run.hscope", "--by-ranks", "--json"});
  const json& all = list.at("runs").at(0).at("reductions");
  ASSERT_EQ(all.size(), 8u) << "four variables in each lane";
  const json& one = all.at(4);
  expect_keys(one, {"lane", "reduction", "site", "step", "recorded", "estimated"});
  EXPECT_EQ(all.at(0).at("reduction"), "ring:format=fp32") << "references reduce in fp32";
  EXPECT_EQ(one.at("lane"), "mixed_float16");
  EXPECT_EQ(one.at("reduction"), "ring:format=bf16");
  ASSERT_EQ(one.at("recorded").size(), 3u) << "2, 4 and 8 ranks";
  const json& recorded = one.at("recorded").at(2);
  expect_keys(recorded, {"ranks", "error", "stored_error", "lost", "overflow"});
  EXPECT_EQ(recorded.at("ranks"), 8);
  EXPECT_GT(recorded.at("error"), 1e-4) << "a sum in bf16";
  ASSERT_EQ(one.at("estimated").size(), 9u) << "16 to 4096";
  const json& last = one.at("estimated").at(8);
  expect_keys(last, {"ranks", "least_error", "most_error", "lost"});
  EXPECT_EQ(last.at("ranks"), 4096);
  EXPECT_GE(last.at("most_error"), last.at("least_error"));

  const Outcome table = bench.run({"inspect", "run.hscope", "--by-ranks"});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.out, HasSubstr("run.hscope, mixed_float16, ring:format=bf16: "));
  EXPECT_THAT(table.out, HasSubstr("recorded"));
  EXPECT_THAT(table.out, HasSubstr("Estimates are extrapolated"));
  EXPECT_EQ(bench.run({"inspect", "w.npz", "--by-ranks"}).code, 2);
}

TEST(CliJson, FewRanksAndOneRankHaveNoEstimates) {
  const Bench bench;
  json_of(bench, training({"--ranks", "4"}));
  EXPECT_THAT(bench.run({"inspect", "run.hscope", "--by-ranks"}).out,
              HasSubstr("No estimate for more ranks: this needs a run with 8 ranks."));
  json_of(bench, training({"--force"}));
  EXPECT_EQ(bench.run({"inspect", "run.hscope", "--by-ranks"}).out,
            "run.hscope: no reductions. Train with --ranks to record them.\n");
}

TEST(CliJson, TablesSayWhereAveragesWereEvaluated) {
  const Bench bench;
  const Words words{"train",   "--model", "mlp:784-16-10", "--steps", "2",
                    "--batch", "16",      "--ema",         "0.5",     "--eval-ema"};
  const Outcome trained = bench.run(words);
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("% (averages)"));
  EXPECT_THAT(bench.run({"inspect", "run.hscope"}).out, HasSubstr("% (averages)"));
  Words plain = words;
  plain.back() = "--force";
  EXPECT_THAT(bench.run(plain).out, testing::Not(HasSubstr("averages")));
}

TEST(CliJson, Recommend) {
  const Bench bench;
  json_of(bench, {"train", "--model", "lenet-hot", "--batch", "16", "--steps", "5", "--no-eval",
                  "--no-shuffle", "--json"});
  const json idle = json_of(bench, {"diagnose", "run.hscope", "--json"});
  expect_keys(idle, {"schema", "version", "run", "verdict", "lane", "findings", "recommendation",
                     "actions", "twins", "not_checked", "proof", "plan_file", "next", "diagnosis"});
  EXPECT_EQ(idle.at("proof"), nullptr);
  EXPECT_EQ(idle.at("plan_file"), nullptr);
  EXPECT_EQ(idle.at("next"), nullptr);
  const json done = json_of(
      bench, {"diagnose", "run.hscope", "--json", "--out", "plan.json", "--fail-on", "error"}, 1);
  EXPECT_EQ(done.at("schema"), "halfscope.recommend/1");
  EXPECT_EQ(done.at("lane"), "mixed_float16");
  EXPECT_EQ(done.at("plan_file"), "plan.json");
  EXPECT_EQ(done.at("recommendation").at("layers"), json({"conv2"}));
  EXPECT_EQ(done.at("recommendation").at("plan"), json::parse(test::text_of(bench / "plan.json")));
  EXPECT_EQ(done.at("diagnosis").at("root").at(0).at("layer"), "conv2");
  EXPECT_EQ(done.at("diagnosis").at("fix").at("kind"), "operator_fp32");
  EXPECT_EQ(done.at("diagnosis").at("verified"), false);
  ASSERT_FALSE(done.at("findings").empty());
  for (const json& finding : done.at("findings")) EXPECT_EQ(finding.at("lane"), done.at("lane"));
  ASSERT_FALSE(done.at("actions").empty());
  EXPECT_EQ(done.at("actions").at(0).at("layers"), json({"conv2"}));
  EXPECT_EQ(done.at("actions").at(0).at("plan_of"), nullptr);
  // The command repeats the training; only its first word is not an argument.
  Words next = done.at("next").get<Words>();
  EXPECT_THAT(next, testing::Contains("--no-shuffle"));
  EXPECT_THAT(next, testing::Contains("--no-eval"));
  next.erase(next.begin());
  next.push_back("--json");
  const json cured = json_of(bench, next);
  EXPECT_EQ(cured.at("run"), "cured.hscope");
  EXPECT_EQ(cured.at("lanes").at(1).at("name"), "mixed_float16+fp32");
  EXPECT_LT(cured.at("lanes").at(1).at("skipped"), 5);
}

TEST(CliJson, NextKeepsTheLossScaleOfTheLane) {
  const Bench bench;
  json_of(bench, {"train", "--model", "lenet-hot", "--batch", "16", "--steps", "3", "--no-eval",
                  "--loss-scale", "static:1000", "--json"});
  const json done = json_of(bench, {"diagnose", "run.hscope", "--json", "--out", "p.json"});
  const Words next = done.at("next").get<Words>();
  const auto flag = std::find(next.begin(), next.end(), "--loss-scale");
  ASSERT_NE(flag, next.end());
  const json& advised = done.at("recommendation").at("loss_scale");
  EXPECT_EQ(*(flag + 1), advised.is_null() ? "static:1000" : "static:" + advised.dump());
}

TEST(CliJson, Doctor) {
  const Bench bench;
  const json doctor = json_of(bench, {"doctor", "--json"});
  expect_keys(doctor, {"schema", "version", "compiler", "processor", "instruction_sets", "threads",
                       "processors", "memory", "libraries", "gpu", "network", "layers"});
  EXPECT_EQ(doctor.at("schema"), "halfscope.doctor/1");
  EXPECT_TRUE(doctor.at("gpu").at("devices").is_array());
  EXPECT_GE(doctor.at("threads"), 1);
  EXPECT_TRUE(doctor.at("network").is_null());
  EXPECT_TRUE(doctor.at("layers").is_null());
}

TEST(CliJson, DoctorOfANetwork) {
  const Bench bench;
  const json doctor =
      json_of(bench, {"doctor", "--model", "mlp:24-16-10", "--batch", "32", "--json"});
  EXPECT_EQ(doctor.at("network"),
            json({{"model", "mlp:24-16-10"}, {"plan", "mixed_float16"}, {"batch", 32}}));
  EXPECT_EQ(doctor.at("layers").at(0), json({{"path", "fc1"},
                                             {"op", "Gemm"},
                                             {"read", "fp16"},
                                             {"products", 1},
                                             {"m", 32},
                                             {"n", 16},
                                             {"k", 24},
                                             {"tensor_cores", "fp16"},
                                             {"multiple", 8},
                                             {"best_multiple", 64},
                                             {"fits", true},
                                             {"fits_best", false},
                                             {"advice", json::array()}}));
  const json& last = doctor.at("layers").at(1);
  EXPECT_EQ(last.at("fits"), false);
  EXPECT_EQ(last.at("advice"), json({"10 outputs: pad to 16"}));
  const json full =
      json_of(bench, {"doctor", "--model", "mlp:24-16-10", "--plan", "float32", "--json"});
  EXPECT_EQ(full.at("network").at("batch"), 128);
  for (const char* key : {"tensor_cores", "multiple", "best_multiple"}) {
    EXPECT_TRUE(full.at("layers").at(0).at(key).is_null()) << key;
  }
  EXPECT_EQ(full.at("layers").at(0).at("fits"), false);
}

TEST(CliJson, QuietPrintsNothing) {
  const Bench bench;
  for (const Words& words : {small_training({}), Words{"report", "run.hscope", "--quiet"},
                             Words{"diagnose", "run.hscope", "--quiet"},
                             Words{"report", "run.hscope", "--html", "r.html"},
                             Words{"report", "run.hscope", "--steps", "s.csv"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 0) << words[0];
    EXPECT_EQ(outcome.out + outcome.err, "") << words[0];
  }
}

}  // namespace
}  // namespace halfscope
