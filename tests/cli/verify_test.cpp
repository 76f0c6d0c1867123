// SPDX-License-Identifier: MIT
// `train --verify` and `diagnose --verify`: what they print, write and store, and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "analysis/sqlite.h"
#include "core/policy/policy.h"
#include "tests/cli/bad_inputs.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::lines_of;
using test::Outcome;
using test::text_of;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

/// A small network that fp16 cannot train because of its one hot layer.
Words hot(Words more) {
  Words words{"train", "--model",   "lenet-hot",   "--batch",   "8", "--steps",
              "12",    "--no-eval", "--no-errors", "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Trains well, and yet the rules have something to say: a scale that flushes gradients.
const Words kNeedless{"train",   "--model",      "mlp:784-16-10", "--batch",   "16",
                      "--steps", "25",           "--no-eval",     "--threads", "1",
                      "--quiet", "--loss-scale", "static:1e-5"};

TEST(CliVerify, TrainProvesItsAdviceAndStoresTheProof) {
  const Bench bench;
  const Outcome outcome = bench.run(hot({"--verify"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("\nadvice: Keep conv2 in fp32"));
  EXPECT_THAT(outcome.out, HasSubstr("\nproof: Proved by training: "));
  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.proof(0), "");
  const json proof = json::parse(run.proof(1));
  EXPECT_EQ(proof.at("holds"), true);
  EXPECT_EQ(proof.at("layers"), json({"conv2"}));
  EXPECT_EQ(proof.at("steps"), 12);
  // The reports have it.
  const Outcome report = bench.run({"report", "run.hscope", "--json", "r.json"});
  EXPECT_EQ(report.code, 0) << report.err;
  const json written = json::parse(text_of(bench / "r.json"));
  EXPECT_EQ(written.at("proof").at("text"), proof.at("text"));
}

TEST(CliVerify, InJsonItIsOneObject) {
  const Bench bench;
  const Outcome outcome = bench.run(hot({"--verify", "--json"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);  // throws if anything else is there
  EXPECT_EQ(result.at("schema"), "halfscope.train/1");
  EXPECT_EQ(result.at("proof"), json::parse(RunView::open(bench / "run.hscope").proof(1)));
  EXPECT_EQ(result.at("proof").at("trials").size(), 3u);

  Words fine = test::small_training({"--verify", "--json", "--out", "fine.hscope"});
  const json nothing = json::parse(bench.run(fine).out);
  EXPECT_EQ(nothing.at("proof"), nullptr) << "there was nothing to prove";
}

TEST(CliVerify, QuietSaysNothing) {
  const Bench bench;
  const Outcome outcome = bench.run(hot({"--verify", "--quiet"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
  EXPECT_NE(RunView::open(bench / "run.hscope").proof(1), "");
}

TEST(CliVerify, WithoutAdviceThereIsNothingToProve) {
  const Bench bench;
  Words words = test::small_training({"--verify"});
  words.erase(std::find(words.begin(), words.end(), "--quiet"));
  const Outcome outcome = bench.run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("proof: there is no advice to prove\n"));
  const Outcome later = bench.run({"diagnose", "run.hscope", "--verify", "--out", "plan.json"});
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_THAT(later.out, HasSubstr("proof: there is no advice to prove\n"));
  EXPECT_FALSE(std::filesystem::exists(bench / "plan.json"));
}

TEST(CliVerify, RecommendWritesThePlanOfTheProof) {
  const Bench bench;
  ASSERT_EQ(bench.run(hot({"--quiet", "--loss-scale", "static:1e9"})).code, 0);
  EXPECT_EQ(RunView::open(bench / "run.hscope").proof(1), "");
  const Words verify{"diagnose", "run.hscope", "--verify", "--threads", "1"};
  const Outcome spoken = bench.run(verify);
  EXPECT_EQ(spoken.code, 0) << spoken.err;
  EXPECT_THAT(spoken.out, HasSubstr("\nproof: Proved by training: "));
  EXPECT_THAT(spoken.out, HasSubstr("next: halfscope diagnose run.hscope --verify --out "));
  EXPECT_NE(RunView::open(bench / "run.hscope").proof(1), "");

  Words words = verify;
  words.insert(words.end(), {"--out", "plan.json", "--json"});
  const Outcome outcome = bench.run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("proof").at("holds"), true);
  EXPECT_EQ(result.at("plan_file"), "plan.json");
  EXPECT_EQ(result.at("proof").at("plan"), json::parse(text_of(bench / "plan.json")));
  EXPECT_EQ(load_plan((bench / "plan.json").string()).rules.back().path, "conv2");
  // The lane of the proof is what the next command trains.
  Words next = result.at("next").get<Words>();
  const auto scale = std::find(next.begin(), next.end(), "--loss-scale");
  ASSERT_NE(scale, next.end());
  EXPECT_EQ(*(scale + 1),
            "static:" + std::to_string(result.at("proof").at("loss_scale").get<int>()));
  next.erase(next.begin());
  ASSERT_EQ(bench.run(next).code, 0);
  const RunView cured = RunView::open(bench / "cured.hscope");
  EXPECT_FALSE(cured.steps(1).back().skipped);
}

// The scale overflows now and then, and that is all there is to it: though most updates of fc2 are
// lost in bf16, so few steps do not suffer from it.
TEST(CliVerify, NeedlessMembersAreNotInThePlan) {
  const Bench bench;
  test::write_text(bench / "narrow.json", R"({"schema": "halfscope.plan/1", "name": "narrow",
    "default": {"format": "fp16"}, "variables": {"storage": "bf16"},
    "rules": [{"op": "Relu", "format": "follow"},
              {"op": "SoftmaxCrossEntropyLoss", "format": "fp32"}]})");
  ASSERT_EQ(bench
                .run({"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "40", "--lr",
                      "0.01", "--plan", "narrow.json", "--loss-scale", "static:400000", "--no-eval",
                      "--no-errors", "--threads", "1", "--quiet"})
                .code,
            0);
  const Outcome outcome = bench.run(
      {"diagnose", "run.hscope", "--verify", "--threads", "1", "--json", "--out", "plan.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  const json& proof = result.at("proof");
  EXPECT_EQ(proof.at("dropped"), json({"variables.storage"})) << proof.at("text");
  EXPECT_EQ(result.at("recommendation").at("plan").at("variables").at("storage"), "fp32");
  const json plan = json::parse(text_of(bench / "plan.json"));
  EXPECT_EQ(plan, proof.at("plan"));
  EXPECT_EQ(plan.at("variables").at("storage"), "bf16");
  EXPECT_EQ(plan.at("name"), proof.at("advised"));
}

TEST(CliVerify, AdviceThatDoesNotHoldEndsWithOne) {
  const Bench bench;
  const Outcome trained = bench.run(kNeedless);
  ASSERT_EQ(trained.code, 0) << trained.err;
  ASSERT_THAT(bench.run({"diagnose", "run.hscope"}).out, HasSubstr("advice: Use dynamic"));
  const Outcome outcome =
      bench.run({"diagnose", "run.hscope", "--verify", "--threads", "1", "--out", "plan.json"});
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("proof: mixed_float16 trains as fp32 does as it is"));
  EXPECT_THAT(outcome.out, HasSubstr("plan: plan.json not written\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("next:")));
  EXPECT_FALSE(std::filesystem::exists(bench / "plan.json"));
  const json stored = json::parse(RunView::open(bench / "run.hscope").proof(1));
  EXPECT_EQ(stored.at("holds"), false);
  const Outcome as_json =
      bench.run({"diagnose", "run.hscope", "--verify", "--json", "--out", "plan.json"});
  EXPECT_EQ(as_json.code, 1);
  EXPECT_EQ(json::parse(as_json.out).at("plan_file"), nullptr);
  EXPECT_EQ(json::parse(as_json.out).at("next"), nullptr);
  EXPECT_EQ(json::parse(as_json.out).at("proof").at("holds"), false);

  Words again = kNeedless;
  again.insert(again.end(), {"--verify", "--force"});
  EXPECT_EQ(bench.run(again).code, 1);
}

TEST(CliVerify, OtherInitialWeightsAreNoticed) {
  const Bench bench;
  const auto weights = [&](const std::string& seed, const std::string& file) {
    const Outcome outcome =
        bench.run({"train", "--model", "lenet-hot", "--batch", "8", "--steps", "1", "--lanes",
                   "float32", "--seed", seed, "--no-eval", "--quiet", "--force", "--out",
                   "seed.hscope", "--save-weights", file});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  };
  weights("5", "w.npz");
  ASSERT_EQ(bench.run(hot({"--quiet", "--force", "--init", "w.npz"})).code, 0);
  const Words verify{"diagnose", "run.hscope", "--verify", "--threads", "1"};
  EXPECT_EQ(bench.run(verify).code, 0);
  weights("6", "w.npz");
  const Outcome outcome = bench.run(verify);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("the training does not repeat itself: at step 0 the loss of "
                                     "float32 is "));
  EXPECT_THAT(outcome.err, HasSubstr("hint: the data or the initial weights have changed since"));
}

TEST(CliVerify, AProofThatCannotBeStoredIsToldAllTheSame) {
  const Bench bench;
  ASSERT_EQ(bench.run(hot({"--quiet"})).code, 0);
  Outcome outcome;
  {
    sqlite::Database other(bench / "run.hscope", sqlite::Access::read_write);
    other.execute("BEGIN IMMEDIATE");
    outcome = bench.run({"diagnose", "run.hscope", "--verify", "--threads", "1"});
  }
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("\nproof: Proved by training: "));
  EXPECT_THAT(outcome.err, HasSubstr("halfscope: the proof is not in the run file: "));
  EXPECT_EQ(RunView::open(bench / "run.hscope").proof(1), "");
}

TEST(CliVerify, StoppedItProvesNothing) {
  const Bench bench;
  ASSERT_EQ(bench.run(hot({"--quiet"})).code, 0);
  // The proof repeats the training; this one would take hours.
  Words longer = hot({"--quiet", "--out", "long.hscope"});
  *(std::find(longer.begin(), longer.end(), "--steps") + 1) = "1e7";
  const pid_t training = bench.start(longer);
  size_t seen = 0;
  for (int tries = 0; tries < 600 && seen < 5; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    try {
      seen = RunView::open(bench / "long.hscope").steps(1).size();
    } catch (const std::exception&) {
      continue;  // not there yet
    }
  }
  kill(training, SIGINT);
  ASSERT_EQ(bench.finish(training).code, 0);
  const pid_t child =
      bench.start({"diagnose", "long.hscope", "--verify", "--threads", "1", "--out", "p.json"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(child, SIGINT);
  const Outcome outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("proof: stopped before its end\n"));
  EXPECT_FALSE(std::filesystem::exists(bench / "p.json"));
  EXPECT_EQ(RunView::open(bench / "long.hscope").proof(1), "");
}

}  // namespace
}  // namespace halfscope
