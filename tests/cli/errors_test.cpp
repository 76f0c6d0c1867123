// SPDX-License-Identifier: MIT
// Exit codes and messages of `halfscope` (docs/contracts.md, "Exit codes"): one line that names
// what is wrong, a hint, nothing on standard output and no file left behind.
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::lines_of;
using test::Outcome;
using test::small_training;
using Words = std::vector<std::string>;

void expect_refusal(const Outcome& outcome, int code, const std::string& what) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const Words lines = lines_of(outcome.err);
  ASSERT_TRUE(lines.size() == 1 || lines.size() == 2) << outcome.err;
  EXPECT_TRUE(lines[0].starts_with("halfscope: ")) << lines[0];
  EXPECT_NE(lines[0].find(what), std::string::npos) << '"' << what << "\" not in: " << lines[0];
  if (lines.size() == 2) {
    EXPECT_TRUE(lines[1].starts_with("hint: ")) << lines[1];
  }
}

TEST(CliErrors, UsageErrorsOfTrain) {
  const Bench bench;
  std::ofstream(bench / "plan.json")
      << R"({"schema": "halfscope.plan/1", "name": "p", "default": {"read": "fp15"}})";
  std::ofstream(bench / "key.json")
      << R"({"schema": "halfscope.plan/1", "name": "p", "ruels": []})";
  const struct {
    Words words;
    const char* what;
  } table[] = {
      {{"--stepz", "3"}, "--stepz"},
      {{"--model", "vgg"}, "unknown model vgg"},
      {{"--model", "mlp:784-0-10"}, "\"0\" is not a layer width"},
      {{"--model", "mlp:100-10"}, "model mlp:100-10 does not fit the data"},
      {{"--data", "cifar"}, "unknown data set \"cifar\""},
      {{"--lanes", "float32,fp17"}, "no plan named fp17 and no such file"},
      {{"--lanes", "float32,float32"}, "two lanes are named float32"},
      {{"--lanes", "float32", "--plan", "float16"}, "--plan and --lanes exclude each other"},
      {{"--plan", "plan.json"}, "plan.json: plan: default.read: unknown format \"fp15\""},
      {{"--plan", "key.json"}, "unknown key \"ruels\" in the plan"},
      {{"--fp32", "conv*"}, "no layer matches \"conv*\""},
      {{"--accumulate", "fp128"}, "unknown accumulation fp128"},
      {{"--loss-scale", "static"}, "unknown loss scale static"},
      {{"--loss-scale", "dynamic:-2"}, "\"-2\" is not a positive number"},
      {{"--optimizer", "lion"}, "unknown optimizer lion"},
      {{"--optimizer", "sgd:beta1=0.5"}, "beta1=0.5 does not fit sgd"},
      {{"--steps", "0"}, "--steps"},
      {{"--steps", "many"}, "--steps"},
      {{"--batch", "-1"}, "--batch"},
      {{"--batch", "12001"}, "batch size 12001 does not fit the data"},
      {{"--lr", "fast"}, "--lr"},
      {{"--lr", "-0.1"}, "--lr"},
      {{"--every", "0"}, "--every"},
      {{"--threads", "0"}, "--threads"},
  };
  for (const auto& each : table) {
    SCOPED_TRACE(each.words[0] + " " + each.words[1]);
    // Given twice, an option would be refused for that; so only what the case does not set.
    Words words{"train", "--quiet", "--no-eval"};
    words.insert(words.end(), each.words.begin(), each.words.end());
    if (each.words[0] != "--model") words.insert(words.end(), {"--model", "mlp:784-10"});
    if (each.words[0] != "--steps") words.insert(words.end(), {"--steps", "1"});
    expect_refusal(bench.run(words), 2, each.what);
    EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope")) << "left behind";
  }
}

TEST(CliErrors, SubcommandsAndTheirFlags) {
  const Bench bench;
  expect_refusal(bench.run({}), 2, "subcommand");
  expect_refusal(bench.run({"trian"}), 2, "trian");
  expect_refusal(bench.run({"report"}), 2, "run");
  expect_refusal(bench.run({"report", "--nothing", "x"}), 2, "--nothing");
  EXPECT_EQ(bench.run({"--help"}).code, 0);
  EXPECT_EQ(bench.run({"--version"}).code, 0);
  for (const char* name : {"train", "recommend", "report", "export", "runs", "doctor"}) {
    const Outcome help = bench.run({name, "--help"});
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_NE(help.out.find("Example:"), std::string::npos) << name;
  }
  EXPECT_EQ(bench.run({"doctor"}).code, 0);
}

TEST(CliErrors, MissingAndDamagedRunFiles) {
  const Bench bench;
  std::ofstream(bench / "text.hscope")
      << "not a run file, but long enough to have a header of its own kind....";
  for (const Words& words : {Words{"report"}, Words{"recommend"}, Words{"runs"}, Words{"export"}}) {
    for (const char* file : {"nothere.hscope", "text.hscope"}) {
      Words all = words;
      all.push_back(file);
      if (words[0] == "export") all.insert(all.end(), {"--steps", "s.csv"});
      const Outcome outcome = bench.run(all);
      EXPECT_TRUE(outcome.code == 2 || outcome.code == 3) << outcome.code;
      expect_refusal(outcome, outcome.code, file);
      EXPECT_FALSE(std::filesystem::exists(bench / "s.csv"));
      EXPECT_FALSE(std::filesystem::exists(bench / "nothere.hscope"))
          << "opening must not create it";
    }
  }
  expect_refusal(bench.run({"report", "nothere.hscope"}), 3, "nothere.hscope");
}

TEST(CliErrors, ExistingOutputNeedsForce) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--out", "a.hscope"})).code, 0);
  const std::string before = test::text_of(bench / "a.hscope");
  expect_refusal(bench.run(small_training({"--out", "a.hscope"})), 2, "a.hscope");
  EXPECT_EQ(test::text_of(bench / "a.hscope"), before);
  EXPECT_EQ(bench.run(small_training({"--out", "a.hscope", "--force", "--seed", "2"})).code, 0);
  EXPECT_NE(test::text_of(bench / "a.hscope"), before);

  std::ofstream(bench / "there") << "precious";
  for (const Words& words :
       {Words{"report", "a.hscope", "--html", "there"},
        Words{"report", "a.hscope", "--json", "there"},
        Words{"report", "a.hscope", "--md", "there"}, Words{"report", "a.hscope", "--csv", "there"},
        Words{"export", "a.hscope", "--steps", "there"},
        Words{"export", "a.hscope", "--stats", "there"},
        small_training({"--out", "b.hscope", "--save-weights", "there"})}) {
    SCOPED_TRACE(words[0]);
    expect_refusal(bench.run(words), 2, "there");
    EXPECT_EQ(test::text_of(bench / "there"), "precious");
  }
  EXPECT_FALSE(std::filesystem::exists(bench / "b.hscope")) << "checked before training";
}

TEST(CliErrors, InitialWeights) {
  const Bench bench;
  expect_refusal(bench.run(small_training({"--init", "nothere.npz"})), 3, "nothere.npz");
  ASSERT_EQ(bench.run(small_training({"--save-weights", "w.npz"})).code, 0);
  std::filesystem::remove(bench / "run.hscope");
  expect_refusal(bench.run({"train", "--quiet", "--model", "mlp:784-17-10", "--steps", "1",
                            "--init", "w.npz"}),
                 2, "initial weights: fc1.bias has shape [16], the model needs [17]");
  EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
}

TEST(CliErrors, InstructionSet) {
  const Bench bench;
  expect_refusal(bench.run(small_training({}), "HALFSCOPE_ISA=sse9"), 2,
                 "HALFSCOPE_ISA=sse9 is not usable here");
  EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
  EXPECT_EQ(bench.run(small_training({}), "HALFSCOPE_ISA=baseline").code, 0);
}

TEST(CliErrors, OtherFlags) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  expect_refusal(bench.run({"export", "run.hscope"}), 2, "nothing to export");
  expect_refusal(bench.run({"report", "run.hscope", "--fail-on", "fatal"}), 2,
                 "unknown severity fatal");
  expect_refusal(bench.run({"recommend", "run.hscope", "--lane", "float8"}), 2,
                 "the run has no lane float8");
}

}  // namespace
}  // namespace halfscope
