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

/// The loss does as it should, but the loss scale flushes gradients to zero.
const Words kFlushed{"train",   "--model",      "mlp:784-16-10", "--batch",   "16",
                     "--steps", "25",           "--no-eval",     "--threads", "1",
                     "--quiet", "--loss-scale", "static:1e-5"};

TEST(CliVerify, TrainProvesItsAdviceAndStoresTheProof) {
  const Bench bench;
  const Outcome outcome = bench.run(hot({"--verify"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("Keep the output of conv2 in fp32"));
  EXPECT_THAT(outcome.out, HasSubstr("\nproof: Tested by training "));
  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.proof(0), "");
  const json proof = json::parse(run.proof(1));
  EXPECT_EQ(proof.at("holds"), true);
  // Its operands may stay in fp16: only what it writes is too large.
  EXPECT_EQ(proof.at("changes"), json({{{"kind", "store_fp32"}, {"path", "conv2"}}}));
  EXPECT_EQ(proof.at("steps"), 12);
  // The reports have it.
  const Outcome report = bench.run({"report", "run.hscope", "--json", "r.json"});
  EXPECT_EQ(report.code, 0) << report.err;
  const json written = json::parse(text_of(bench / "r.json"));
  EXPECT_EQ(written.at("proof").at("text"), proof.at("text"));
}

/// The run file contains ranks and reduction, so every trial repeats them, except for the fix.
TEST(CliVerify, AnotherReductionOverRanksIsProved) {
  const Bench bench;
  const Outcome outcome =
      bench.run({"train", "--model", "mlp:784-16-10", "--batch", "96", "--steps", "40", "--lanes",
                 "float32,mixed_bfloat16", "--ranks", "48", "--reduce", "ring:format=e5m2",
                 "--threads", "1", "--quiet", "--verify", "--out", "run.hscope"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Outcome told = bench.run({"diagnose", "run.hscope", "--no-twins"});
  EXPECT_THAT(told.out, HasSubstr("because the sum over 48 ranks makes fc2.bias_grad_reduced"));
  EXPECT_THAT(told.out, HasSubstr("Sum over ranks in fp32 (ring:format=fp32)"));
  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_FALSE(run.reductions(1).empty());
  const json proof = json::parse(run.proof(1));
  EXPECT_EQ(proof.at("holds"), true);
  EXPECT_THAT(run.info().settings,
              testing::IsSupersetOf({"--ranks", "48", "--reduce", "ring:format=e5m2"}));
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
  EXPECT_THAT(outcome.out, HasSubstr("proof: there is no change of the plan to prove\n"));
  const Outcome later = bench.run({"diagnose", "run.hscope", "--verify", "--out", "plan.json"});
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_THAT(later.out, HasSubstr("proof: there is no change of the plan to prove\n"));
  EXPECT_FALSE(std::filesystem::exists(bench / "plan.json"));
}

// No plan corrects the order of clipping and unscaling.
TEST(CliVerify, ASettingIsNotTriedAsAPlan) {
  const Bench bench;
  const Outcome outcome = bench.run(test::small_training(
      {"--lanes", "float32,mixed_float16", "--clip-norm", "0.1", "--clip-before-unscale"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Outcome verified = bench.run({"diagnose", "run.hscope", "--verify"});
  EXPECT_THAT(verified.out, HasSubstr("clipped before they are unscaled"));
  EXPECT_THAT(verified.out, HasSubstr("scaler.unscale_(optimizer)"));
  EXPECT_THAT(verified.out, HasSubstr("proof: there is no change of the plan to prove\n"));
  EXPECT_THAT(verified.out, Not(HasSubstr("did not help")));
}

TEST(CliVerify, RecommendWritesThePlanOfTheProof) {
  const Bench bench;
  ASSERT_EQ(bench.run(hot({"--quiet", "--loss-scale", "static:1e9"})).code, 0);
  EXPECT_EQ(RunView::open(bench / "run.hscope").proof(1), "");
  const Words verify{"diagnose", "run.hscope", "--verify", "--threads", "1"};
  const Outcome spoken = bench.run(verify);
  EXPECT_EQ(spoken.code, 0) << spoken.err;
  EXPECT_THAT(spoken.out, HasSubstr("\nproof: Tested by training "));
  EXPECT_THAT(spoken.out, HasSubstr("next: halfscope diagnose run.hscope --out plan.json\n"));
  // The suggested command writes the plan of the proof without proving anything again.
  ASSERT_EQ(bench.run({"diagnose", "run.hscope", "--out", "stored.json", "--no-twins"}).code, 0);
  EXPECT_EQ(json::parse(RunView::open(bench / "run.hscope").proof(1)).at("plan"),
            json::parse(text_of(bench / "stored.json")));
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
  // The suggested next command trains the lane of the proof.
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

// The only problem is the scale, which overflows in almost every step. Many updates of fc2 are lost
// in bf16, but the others move the weights almost as far.
TEST(CliVerify, NeedlessMembersAreNotInThePlan) {
  const Bench bench;
  test::write_text(bench / "narrow.json", R"({"schema": "halfscope.plan/1", "name": "narrow",
    "default": {"format": "fp16"}, "variables": {"storage": "bf16"},
    "rules": [{"op": "Relu", "format": "follow"},
              {"op": "SoftmaxCrossEntropyLoss", "format": "fp32"}]})");
  ASSERT_EQ(bench
                .run({"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "40", "--lr",
                      "0.05", "--plan", "narrow.json", "--loss-scale", "static:800000", "--no-eval",
                      "--threads", "1", "--quiet"})
                .code,
            0);
  const Outcome outcome = bench.run(
      {"diagnose", "run.hscope", "--verify", "--threads", "1", "--json", "--out", "plan.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  const json& proof = result.at("proof");
  ASSERT_EQ(proof.at("changes").size(), 1u) << proof.at("text");
  EXPECT_EQ(proof.at("changes")[0].at("kind"), "loss_scale");
  EXPECT_EQ(result.at("recommendation").at("plan").at("variables").at("storage"), "bf16");
  const json plan = json::parse(text_of(bench / "plan.json"));
  EXPECT_EQ(plan, proof.at("plan"));
  EXPECT_EQ(plan.at("variables").at("storage"), "bf16");
  EXPECT_EQ(plan.at("name"), proof.at("advised"));
}

// Gradients are summed in so few bits that keeping the hot layer in fp32 is not enough.
/// The first change corrects the loss, but not the sums of gradients.
Words hot_with_narrow_sums() {
  Words words = hot({"--quiet", "--micro-batches", "2", "--accumulate-grads", "e3m2"});
  words.erase(std::find(words.begin(), words.end(), "--no-errors"));
  return words;
}

TEST(CliVerify, AdviceThatDoesNotHoldEndsWithOne) {
  const Bench bench;
  ASSERT_EQ(bench.run(hot_with_narrow_sums()).code, 0);
  const Outcome outcome = bench.run({"diagnose", "run.hscope", "--verify", "--budget", "1",
                                     "--threads", "1", "--out", "plan.json"});
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nproof: Not proved: with the change, the loss "));
  EXPECT_THAT(outcome.out, HasSubstr("The search used up its budget"));
  EXPECT_THAT(outcome.out,
              HasSubstr("The advised change was tested. It corrects the loss, but other results "
                        "are still wrong."));
  EXPECT_THAT(outcome.out,
              HasSubstr("plan: plan.json not written, because there is no fix to write\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("next:")));
  EXPECT_FALSE(std::filesystem::exists(bench / "plan.json"));
  const json stored = json::parse(RunView::open(bench / "run.hscope").proof(1));
  EXPECT_EQ(stored.at("holds"), false);
  const Outcome as_json = bench.run(
      {"diagnose", "run.hscope", "--verify", "--budget", "1", "--json", "--out", "plan.json"});
  EXPECT_EQ(as_json.code, 1);
  EXPECT_EQ(json::parse(as_json.out).at("plan_file"), nullptr);
  EXPECT_EQ(json::parse(as_json.out).at("next"), nullptr);
  EXPECT_EQ(json::parse(as_json.out).at("proof").at("holds"), false);
}

TEST(CliVerify, SlowSearchWithoutABudgetFindsTheSecondChange) {
  const Bench bench;
  Words words = hot_with_narrow_sums();
  words.push_back("--verify");
  EXPECT_EQ(bench.run(words).code, 0);
  EXPECT_EQ(json::parse(RunView::open(bench / "run.hscope").proof(1)).at("holds"), true);
}

// The loss of so short a training does not suffer from gradients that are flushed to zero.
TEST(CliVerify, HarmThatNoLossShowsIsProvedToo) {
  const Bench bench;
  ASSERT_EQ(bench.run(kFlushed).code, 0);
  const Outcome outcome =
      bench.run({"diagnose", "run.hscope", "--verify", "--threads", "1", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json proof = json::parse(outcome.out).at("proof");
  EXPECT_EQ(proof.at("holds"), true);
  EXPECT_EQ(proof.at("trials").at(0).at("passes"), false);
  EXPECT_LE(proof.at("trials").at(0).at("gap"), proof.at("tolerance"));
  EXPECT_THAT(std::string(proof.at("text")), HasSubstr(", but the gradient"));
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
  EXPECT_THAT(outcome.err, HasSubstr("the training is not repeatable: at step 0 the loss of "
                                     "float32 is "));
  EXPECT_THAT(outcome.err, HasSubstr("hint: record the run again; its data, its initial weights"));
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
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("\nproof: Tested by training "));
  EXPECT_EQ(outcome.err,
            "note: the proof could not be stored in run.hscope: 'run.hscope' is in use by another "
            "program\n");
  EXPECT_EQ(RunView::open(bench / "run.hscope").proof(1), "");
}

/// A learning rate so high that correct trainings diverge from each other.
Words wild(Words more) {
  Words words{"train",
              "--model",
              "mlp:784-16-10",
              "--batch",
              "16",
              "--steps",
              "60",
              "--lr",
              "1",
              "--lanes",
              "float32,mixed_bfloat16",
              "--no-eval",
              "--threads",
              "1",
              "--quiet"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string state_in_report(const Bench& bench, const std::string& file) {
  const Outcome outcome = bench.run({"report", file, "--json", "-"});
  return json::parse(outcome.out).at("verdict").at("state");
}

const Deviation* twin_row(const RunView& run) {
  for (const Deviation& each : run.deviations(1)) {
    if (each.of == Deviation::Of::training) return &each;
  }
  return nullptr;
}

TEST(CliTwins, DiagnoseTrainsThemWhereTheyCanChangeTheVerdict) {
  const Bench bench;
  ASSERT_EQ(bench.run(wild({})).code, 0);
  const Outcome none = bench.run({"diagnose", "run.hscope", "--no-twins"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, Not(HasSubstr("checked against")));
  EXPECT_EQ(twin_row(RunView::open(bench / "run.hscope")), nullptr);

  const Outcome first = bench.run({"diagnose", "run.hscope", "--threads", "1"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("\nchecked against 2 further float32 trainings ("));
  EXPECT_THAT(first.out, HasSubstr("verdict: healthy\n"));
  EXPECT_EQ(state_in_report(bench, "run.hscope"), "healthy");
  const RunView run = RunView::open(bench / "run.hscope");
  ASSERT_NE(twin_row(run), nullptr);
  EXPECT_GT(twin_row(run)->spread, 0.01);
  // They are in the file now.
  const Outcome second = bench.run({"diagnose", "run.hscope"});
  EXPECT_THAT(second.out, Not(HasSubstr("checked against")));

  ASSERT_EQ(bench.run(wild({"--force"})).code, 0);
  const json result = json::parse(bench.run({"diagnose", "run.hscope", "--json"}).out);
  EXPECT_EQ(result.at("twins").at("trainings"), 2);
  EXPECT_GE(result.at("twins").at("seconds"), 0.0);
  EXPECT_EQ(result.at("verdict").at("state"), "healthy");
  EXPECT_EQ(result.at("not_checked"), json::array());
  EXPECT_EQ(json::parse(bench.run({"diagnose", "run.hscope", "--json"}).out).at("twins"), nullptr);
}

TEST(CliTwins, WhatCannotBeCheckedIsToldInALine) {
  const Bench bench;
  ASSERT_EQ(bench
                .run({"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "1",
                      "--no-eval", "--quiet", "--out", "w.hscope", "--save-weights", "w.npz"})
                .code,
            0);
  ASSERT_EQ(bench.run(wild({"--init", "w.npz"})).code, 0);
  const std::string before = state_in_report(bench, "run.hscope");
  {
    sqlite::Database other(bench / "run.hscope", sqlite::Access::read_write);
    other.execute("BEGIN IMMEDIATE");
    const Outcome locked = bench.run({"diagnose", "run.hscope"});
    EXPECT_EQ(locked.code, 0) << locked.err;
    EXPECT_THAT(locked.out, HasSubstr("\nnot checked against further float32 trainings: "));
    EXPECT_THAT(locked.out, HasSubstr("verdict: " + before));
  }
  std::filesystem::remove(bench / "w.npz");
  const Outcome gone = bench.run({"diagnose", "run.hscope"});
  EXPECT_EQ(gone.code, 0) << gone.err;
  EXPECT_THAT(gone.out, HasSubstr("not checked against further float32 trainings: "));
  EXPECT_THAT(gone.out, HasSubstr("w.npz"));
  const json result = json::parse(bench.run({"diagnose", "run.hscope", "--json"}).out);
  EXPECT_EQ(result.at("twins"), nullptr);
  EXPECT_EQ(result.at("not_checked").size(), 1u);
}

TEST(CliVerify, RunsForwardAndProvesItsAdvice) {
  const Bench bench;
  const Words words{"run",       "lenet-hot", "--data",  "digits",
                    "--limit",   "20",        "--lanes", "float32,mixed_float16",
                    "--threads", "1"};
  Words unrecorded = words;
  unrecorded.push_back("--verify");
  const Outcome refused = bench.run(unrecorded);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--verify needs a run file to write"));

  Words recorded = words;
  recorded.insert(recorded.end(), {"--record", "r.hscope"});
  Words verified = recorded;
  verified.push_back("--verify");
  const Outcome outcome = bench.run(verified);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("\nproof: Tested by running it: with the change, the outputs"));
  const json proof = json::parse(RunView::open(bench / "r.hscope").proof(1));
  EXPECT_EQ(proof.at("holds"), true);
  EXPECT_EQ(proof.at("loss_scale"), nullptr);

  recorded.push_back("--force");
  ASSERT_EQ(bench.run(recorded).code, 0);
  const Outcome later = bench.run(
      {"diagnose", "r.hscope", "--verify", "--threads", "1", "--json", "--out", "p.json"});
  EXPECT_EQ(later.code, 0) << later.err;
  const json result = json::parse(later.out);
  EXPECT_EQ(result.at("proof").at("trials"), proof.at("trials"));
  EXPECT_EQ(result.at("twins"), nullptr);
  EXPECT_EQ(result.at("next").at(1), "run");
  EXPECT_EQ(load_plan((bench / "p.json").string()).name, proof.at("advised"));
}

TEST(CliVerify, ForwardPassesThatCannotBeRepeatedAreRefused) {
  const Bench bench;
  ASSERT_EQ(bench
                .run({"train", "--model", "lenet-hot", "--batch", "8", "--steps", "1", "--lanes",
                      "float32", "--no-eval", "--quiet", "--save-weights", "w.npz"})
                .code,
            0);
  ASSERT_EQ(bench
                .run({"run", "lenet-hot", "--init", "w.npz", "--data", "digits", "--limit", "8",
                      "--lanes", "float32,mixed_float16", "--record", "r.hscope", "--quiet"})
                .code,
            0);
  std::filesystem::remove(bench / "w.npz");
  const Outcome outcome = bench.run({"diagnose", "r.hscope", "--verify"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("w.npz"));
}

TEST(CliVerify, DiagnoseAndReportAgree) {
  const Bench bench;
  const std::vector<Words> runs{
      hot({"--quiet"}), hot({"--quiet", "--lanes", "float32,bfloat16,mixed_float16"}), wild({}),
      wild({"--lanes", "float32,mixed_float16,mixed_bfloat16", "--lr", "0.1"}), kFlushed};
  for (size_t i = 0; i < runs.size(); ++i) {
    Words words = runs[i];
    const std::string file = "r" + std::to_string(i) + ".hscope";
    words.insert(words.end(), {"--out", file});
    // A flag given twice is an error: the later one is meant.
    for (const std::string flag : {"--lanes", "--lr"}) {
      const auto first = std::find(words.begin(), words.end(), flag);
      if (first == words.end() || std::find(first + 1, words.end(), flag) == words.end()) continue;
      words.erase(first, first + 2);
    }
    const Outcome trained = bench.run(words);
    ASSERT_EQ(trained.code, 0) << trained.err;
    for (const char* flag : {"--no-twins", "--quiet", "--verify"}) {
      bench.run({"diagnose", file, flag, "--threads", "1"});
      const json said = json::parse(bench.run({"diagnose", file, "--json", "--no-twins"}).out);
      const json written = json::parse(bench.run({"report", file, "--json", "-"}).out);
      EXPECT_EQ(said.at("verdict").at("state"), written.at("verdict").at("state")) << file << flag;
      EXPECT_EQ(said.at("verdict").at("text"), written.at("verdict").at("text")) << file << flag;
      if (written.at("recommendation").is_null()) {
        EXPECT_EQ(said.at("recommendation"), nullptr) << file << flag;
      } else {
        EXPECT_EQ(said.at("recommendation").at("text"), written.at("recommendation").at("text"));
      }
    }
  }
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
