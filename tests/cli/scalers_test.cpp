// SPDX-License-Identifier: MIT
// Loss scalers of frameworks on the command line: training, errors, resuming, and `plan scalers`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::small_training;
using test::text_of;
using testing::HasSubstr;
using Words = std::vector<std::string>;

TEST(CliScalers, RunFilesNameTheScaler) {
  const Bench bench;
  const Outcome outcome =
      bench.run(small_training({"--plan", "mixed_float16", "--loss-scale",
                                "deepspeed:window=2,hysteresis=1", "--out", "run.hscope"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.lane(0).loss_scale, "none") << "the baseline";
  EXPECT_EQ(run.lane(1).loss_scale, "deepspeed:init=65536,window=2,hysteresis=1");
  const Outcome config =
      bench.run(small_training({"--loss-scale", "tf-keras:interval=7", "--print-config"}));
  EXPECT_THAT(config.out, HasSubstr("tf-keras:init=32768,interval=7"));
}

TEST(CliScalers, DeepSpeedsErrorIsExitCode3) {
  const Bench bench;
  const Outcome outcome = bench.run(small_training(
      {"--lanes", "mixed_float16", "--loss-scale",
       "deepspeed:init=1099511627776,min=1099511627776,hysteresis=1", "--out", "run.hscope"}));
  EXPECT_EQ(outcome.code, 3) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("lane mixed_float16 failed at step 0: the loss scale is "
                                     "already at its minimum, 1099511627776"));
  EXPECT_THAT(outcome.err, HasSubstr("hint: run halfscope diagnose"));
}

TEST(CliScalers, MistakesAreUsageErrors) {
  const Bench bench;
  for (const char* text : {"torch:interval=0", "keras", "deepspeed:min=-1", "apex:growth=2"}) {
    const Outcome outcome = bench.run(small_training({"--loss-scale", text}));
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_THAT(outcome.err, HasSubstr("hint: "));
  }
}

TEST(CliScalers, ResumingGoesOnWithTheSameBits) {
  const Bench bench;
  const auto run = [&](const Words& more) {
    Words words{"train",         "--model",      "mlp:784-16-10",
                "--batch",       "16",           "--no-eval",
                "--quiet",       "--no-record",  "--plan",
                "mixed_float16", "--loss-scale", "deepspeed:init=67108864,window=3,hysteresis=3"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = bench.run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  };
  run({"--steps", "12", "--out", "whole.hscope", "--save-weights", "whole.npz"});
  run({"--steps", "5", "--out", "a.hscope", "--checkpoint", "c.npz"});
  run({"--steps", "12", "--out", "b.hscope", "--resume", "c.npz", "--save-weights", "b.npz"});
  EXPECT_TRUE(text_of(bench / "b.npz") == text_of(bench / "whole.npz"));
}

TEST(CliScalers, TracesOfAPattern) {
  const Bench bench;
  const Outcome outcome =
      bench.run({"plan", "scalers", "--pattern", "FFFOFFFFOOFFFF", "--interval", "3", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "halfscope.scalers/1");
  EXPECT_EQ(json["steps"], 14);
  ASSERT_EQ(json["scalers"].size(), 7u);
  const nlohmann::json& torch = json["scalers"][0];
  EXPECT_EQ(torch["scaler"], "torch:init=65536,interval=3");
  EXPECT_EQ(torch["changes"]["step"], nlohmann::json({0, 3, 4, 7, 9, 10, 13}));
  EXPECT_EQ(torch["skipped"], 3);
  EXPECT_EQ(json["scalers"][1]["optimizer_steps"], 14);

  const Outcome text = bench.run({"plan", "scalers", "--pattern", "O", "--steps", "40", "--scaler",
                                  "deepspeed", "--scaler", "tf-keras", "--csv", "out.csv"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("deepspeed: DeepSpeed raises at step 17"));
  EXPECT_THAT(text.out, HasSubstr("tf-keras: skips every step from step 15 on"));
  EXPECT_THAT(text_of(bench / "out.csv"),
              HasSubstr("scaler,step,loss_scale\ndeepspeed:init=65536,0,65536\n"));
}

TEST(CliScalers, TracesOfARun) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--plan", "mixed_float16", "--out", "run.hscope"})).code, 0);
  const Outcome outcome = bench.run({"plan", "scalers", "run.hscope", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["trajectory"], "lane mixed_float16 of run.hscope");
  EXPECT_EQ(json["steps"], 4);
  ASSERT_FALSE(json["ceiling_sites"].empty());
  EXPECT_THAT(json["ceiling_sites"][0]["site"].get<std::string>(), HasSubstr("grad"));
  EXPECT_TRUE(json["scalers"][0]["lost"].is_number());
  // The recorded training skipped by torch's rules.
  const RunView run = RunView::open(bench / "run.hscope");
  int64_t skipped = 0;
  for (const StepRow& row : run.steps(1)) skipped += row.skipped ? 1 : 0;
  EXPECT_EQ(json["scalers"][0]["skipped"], skipped);
  EXPECT_THAT(bench.run({"plan", "scalers", "run.hscope"}).out, HasSubstr("Largest scale, set by"));
}

/// lenet-hot overflows in the forward pass of conv2, whatever the loss scale.
TEST(CliScalers, AStopNamesTheTensorThatOverflows) {
  const Bench bench;
  ASSERT_EQ(bench
                .run({"train", "--model", "lenet-hot", "--plan", "mixed_float16", "--steps", "4",
                      "--batch", "8", "--no-eval", "--no-errors", "--quiet", "--out", "hot.hscope"})
                .code,
            0);
  const Words words{"plan", "scalers", "hot.hscope", "--scaler", "deepspeed:init=2,hysteresis=1"};
  const Outcome text = bench.run(words);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("deepspeed: DeepSpeed raises at step 1: a step overflows at the "
                                  "minimum, 1. conv2.activation overflows in the forward pass"));
  EXPECT_THAT(text.out, HasSubstr("run halfscope diagnose hot.hscope to fix conv2."));
  Words all = words;
  all.emplace_back("--json");
  const nlohmann::json one = nlohmann::json::parse(bench.run(all).out)["scalers"][0];
  EXPECT_EQ(one["site"], "conv2.activation");
  EXPECT_EQ(one["advice"], "No loss scale helps: run halfscope diagnose hot.hscope to fix conv2.");
  const std::string all_scalers = bench.run({"plan", "scalers", "hot.hscope"}).out;
  const size_t once = all_scalers.find("No loss scale helps");
  ASSERT_NE(once, std::string::npos);
  EXPECT_EQ(all_scalers.find("No loss scale helps", once + 1), std::string::npos);
}

TEST(CliScalers, MistakesOfThePlan) {
  const Bench bench;
  std::ofstream(bench / "bad.csv") << "1\nx\n";
  std::ofstream(bench / "first.csv") << "0.5 1\n1\n";
  std::ofstream(bench / "swapped.csv") << "largest,smallest\n1,2\n";
  std::ofstream(bench / "header.csv") << "largest\n";
  std::filesystem::create_directories(bench / "folder");
  const std::pair<Words, const char*> mistakes[] = {
      {{"--pattern", "FFX"}, "is not a row of F and O"},
      {{"--shape", "stedy"}, "unknown trajectory 'stedy'"},
      {{"--shape", "steady", "--pattern", "F"}, "takes one trajectory"},
      {{"--trajectory", "bad.csv"}, "line 2"},
      {{"--trajectory", "first.csv"}, "'first.csv' line 1: not a row of gradient magnitudes"},
      {{"--trajectory", "swapped.csv"}, "line 2: the second number is larger than the first"},
      {{"--trajectory", "folder"}, "'folder' is a folder, not a CSV file"},
      {{"--trajectory", "header.csv"}, "'header.csv' contains no steps"},
      {{"--lane", "x"}, "--lane has no effect on a built-in trajectory"},
      {{"--scaler", "static:8", "--interval", "3"}, "--interval has no effect on static scales"},
      {{"--scaler", "apex:min=5,max=2"}, "min=5 is larger than max=2"},
      {{"--scaler", "deepspeed:raise,no-raise"}, "contradict each other"},
      {{"--scaler", "torch:growth=0"}, "growth=0"},
      {{"--format", "fp17"}, "unknown format 'fp17'"}};
  for (const auto& [words, what] : mistakes) {
    Words all{"plan", "scalers"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = bench.run(all);
    EXPECT_EQ(outcome.code, 2) << what << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(what));
    EXPECT_THAT(outcome.err, HasSubstr("hint: "));
  }
  EXPECT_EQ(bench.run({"plan", "scalers", "missing.hscope"}).code, 3);
}

}  // namespace
}  // namespace halfscope
