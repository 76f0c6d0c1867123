// SPDX-License-Identifier: MIT
// `halfscope zoo`, and cases of the zoo as networks of `train` and `run`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::lines_of;
using test::Outcome;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

/// Returns the words of a line that needs no quotes, without the program.
Words words_after_program(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  words.erase(words.begin());
  return words;
}

json run_of(const Bench& bench, const std::string& file) {
  return json::parse(bench.run({"inspect", file, "--json"}).out).at("runs").at(0);
}

TEST(CliZoo, ListIsATableOfFailuresAndControls) {
  const Bench bench;
  const Outcome outcome = bench.run({"zoo", "list"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::map<std::string, std::string> rows;
  for (const std::string& line : lines_of(outcome.out)) rows[line.substr(0, line.find(' '))] = line;
  EXPECT_THAT(rows["case"], AllOf(HasSubstr("what goes wrong"), HasSubstr("mechanism")));
  EXPECT_THAT(rows["F7"], AllOf(HasSubstr("mixed_float16"), HasSubstr("forward_overflow"),
                                HasSubstr("prescale, clamp, store_fp32, operator_fp32")));
  EXPECT_THAT(rows["F22"], AllOf(HasSubstr("mixed_bfloat16 sum=bf16"), HasSubstr("gradient_sum")));
  EXPECT_THAT(rows["OKcnn"], HasSubstr("healthy"));
}

TEST(CliZoo, ListAsJsonHasCommandsAndLabels) {
  const Bench bench;
  const Outcome outcome = bench.run({"zoo", "list", "--json"});
  const json list = json::parse(outcome.out);
  EXPECT_EQ(list.at("schema"), "halfscope.zoo/1");
  std::map<std::string, json> cases;
  for (const json& each : list.at("cases")) cases[each.at("id")] = each;
  const json& f43 = cases.at("F43");
  EXPECT_EQ(f43.at("command"), (json{"train", "--model", "zoo:F43", "--plan", "mixed_bfloat16",
                                     "--reduce", "ring:format=bf16", "--out", "F43.hscope"}));
  EXPECT_EQ(f43.at("root"), json::array()) << "the ranks sum in bf16";
  EXPECT_EQ(
      f43.at("smallest_fix"),
      json::parse(R"([{"kind":"reduce_order","path":null,"text":"all-to-all:format=bf16"}])"));
  const json& f4 = cases.at("F4");
  EXPECT_EQ(f4.at("mechanism"), "forward_overflow");
  ASSERT_EQ(f4.at("root").size(), 1u);
  EXPECT_EQ(f4.at("root").at(0), f4.at("first_symptom"));
  ASSERT_EQ(f4.at("smallest_fix").size(), 2u) << "the power, and the mean that reads it";
  EXPECT_EQ(f4.at("smallest_fix").at(0).at("path"), f4.at("root").at(0));
  EXPECT_EQ(cases.at("F3").at("stagewise"), true);
  const json& control = cases.at("OKcnn");
  EXPECT_EQ(control.at("fails"), false);
  EXPECT_EQ(control.at("mechanism"), nullptr);
  EXPECT_EQ(control.at("smallest_fix"), json::array());
}

TEST(CliZoo, RunsAnInferenceAndSaysWhatItIsAbout) {
  const Bench bench;
  const Outcome outcome = bench.run({"zoo", "run", "F7"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Words lines = lines_of(outcome.out);
  EXPECT_EQ(lines.at(0), "halfscope run zoo:F7 --plan mixed_float16 --record F7.hscope");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("verdict: broken"), HasSubstr("run file: F7.hscope"),
                                 HasSubstr("F7: attention scores overflow before they are scaled"),
                                 HasSubstr("root "), HasSubstr("first symptom "),
                                 HasSubstr("easily blamed "), HasSubstr("fix ")));
  const json run = run_of(bench, "F7.hscope");
  EXPECT_EQ(run.at("command"), lines.at(0));
  EXPECT_EQ(run.at("model"), "zoo:F7");
  EXPECT_EQ(run.at("data"), "zoo:F7");

  // The printed command does the same.
  Words again = words_after_program(lines.at(0));
  again.back() = "again.hscope";
  EXPECT_EQ(bench.run(again).code, 0);
  EXPECT_EQ(run_of(bench, "again.hscope").at("settings"), run.at("settings"));
  const Outcome proof = bench.run({"diagnose", "again.hscope", "--verify"});
  EXPECT_EQ(proof.code, 0) << proof.err;
  EXPECT_THAT(proof.out, HasSubstr("Tested by running it"));
}

TEST(CliZoo, RunsATrainingWithTheSettingsOfItsCase) {
  const Bench bench;
  const Outcome outcome = bench.run({"zoo", "run", "F48", "--out", "deep.hscope"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              StartsWith("halfscope train --model zoo:F48 --plan mixed_float16 --loss-scale "
                         "static:65536 --out deep.hscope\n"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("verdict: broken"), HasSubstr("mechanism ")));
  EXPECT_EQ(run_of(bench, "deep.hscope").at("settings"),
            (json{"--model", "zoo:F48", "--data", "zoo:F48", "--steps", "40", "--batch", "16",
                  "--optimizer", "sgd:lr=1e-04", "--seed", "1"}));
  const Outcome proof = bench.run({"diagnose", "deep.hscope", "--verify"});
  EXPECT_EQ(proof.code, 0) << proof.err;
  EXPECT_THAT(proof.out, HasSubstr("Tested by training"));
  // It is there, and --force replaces it.
  EXPECT_EQ(bench.run({"zoo", "run", "F48", "--out", "deep.hscope"}).code, 2);
  EXPECT_EQ(bench.run({"zoo", "run", "F16", "--out", "deep.hscope", "--force", "--quiet"}).out, "");
  EXPECT_EQ(run_of(bench, "deep.hscope").at("model"), "zoo:F16");
}

TEST(CliZoo, RunsATrainingWithTheRanksOfItsCase) {
  const Bench bench;
  const Outcome outcome = bench.run({"zoo", "run", "F49"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              StartsWith("halfscope train --model zoo:F49 --plan mixed_float16 --reduce "
                         "ring:vote=one --out F49.hscope\n"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("verdict: broken"), HasSubstr("config: ring\n")));
  const json settings = run_of(bench, "F49.hscope").at("settings");
  const auto ranks = std::find(settings.begin(), settings.end(), "--ranks");
  ASSERT_NE(ranks, settings.end());
  EXPECT_EQ(*std::next(ranks), "2");
  const Outcome proof = bench.run({"diagnose", "F49.hscope", "--verify"});
  EXPECT_EQ(proof.code, 0) << proof.err;
  EXPECT_THAT(proof.out, AllOf(HasSubstr("Tested by training"), HasSubstr("rank_disagreement")));
}

TEST(CliZoo, AnotherPlanReplacesTheOneOfTheCase) {
  const Bench bench;
  const Outcome outcome = bench.run({"zoo", "run", "F36", "--plan", "mxfp8"});
  EXPECT_THAT(outcome.out, StartsWith("halfscope run zoo:F36 --plan mxfp8 --record F36.hscope\n"));
  EXPECT_THAT(outcome.out, HasSubstr("verdict: healthy"));
  EXPECT_THAT(bench.run({"run", "zoo:F36", "--plan", "zoo:mxfp8_floor"}).out,
              HasSubstr("mxfp8_floor"));
  const Outcome unknown = bench.run({"run", "zoo:F36", "--plan", "zoo:mxfp8_flor"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("the zoo has no plan 'mxfp8_flor'"),
                                 HasSubstr("did you mean mxfp8_floor?")));
}

TEST(CliZoo, SettingsOfACaseAreDefaults) {
  const Bench bench;
  const auto config = [&](Words more) {
    Words words{"train", "--print-config", "--model", "zoo:F22"};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(bench.run(words).out);
  };
  const json own = config({});
  EXPECT_EQ(own.at("steps"), 50);
  EXPECT_EQ(own.at("batch"), 1024);
  EXPECT_EQ(own.at("micro_batches"), 1024);
  EXPECT_EQ(own.at("optimizer"), "sgd:lr=0.01");
  EXPECT_EQ(own.at("no_shuffle"), true);
  EXPECT_EQ(own.at("data"), "zoo:F22");
  const json given =
      config({"--steps", "3", "--lr", "0.5", "--batch", "8", "--micro-batches", "8"});
  EXPECT_EQ(given.at("steps"), 3);
  EXPECT_EQ(given.at("batch"), 8);
  EXPECT_EQ(given.at("micro_batches"), 8);
  EXPECT_EQ(given.at("optimizer"), "sgd:lr=0.5") << "of the case's optimizer";
  EXPECT_EQ(config({"--optimizer", "adam"}).at("optimizer"), "adam:lr=0.001");
  // A configuration file counts as given, too.
  std::ofstream(bench / "c.json") << R"({"schema": "halfscope.train-config/1", "steps": 7})";
  EXPECT_EQ(config({"--config", "c.json"}).at("steps"), 7);
}

TEST(CliZoo, UnknownCasesGetTheNearestOneAndTheList) {
  const Bench bench;
  for (const Words& words :
       {Words{"zoo", "run", "F7b"}, Words{"run", "zoo:F7b"}, Words{"train", "--model", "zoo:F7b"},
        Words{"train", "--data", "zoo:F7b"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(lines_of(outcome.err).size(), 2u);
    EXPECT_THAT(outcome.err,
                AllOf(StartsWith("halfscope: unknown zoo case 'F7b'\nhint: did you mean F7?"),
                      HasSubstr("`halfscope zoo list`")));
  }
}

TEST(CliZoo, WrongUsesSayWhatToDo) {
  const Bench bench;
  const auto error_of = [&](const Words& words) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(error_of({"train", "--model", "zoo:F7"}),
              AllOf(HasSubstr("is run forward, not trained"), HasSubstr("halfscope run zoo:F7")));
  EXPECT_THAT(error_of({"run", "zoo:F16"}), HasSubstr("halfscope train --model zoo:F16"));
  EXPECT_THAT(error_of({"run", "zoo:F7", "--batch", "3"}), HasSubstr("2 samples at once"));
  EXPECT_THAT(error_of({"train", "--model", "zoo:F16", "--loss", "mse"}),
              HasSubstr("zoo:F16 has one"));
  EXPECT_THAT(error_of({"zoo"}), HasSubstr("zoo needs an ACTION"));
  EXPECT_THAT(error_of({"zoo", "rum"}), HasSubstr("did you mean run?"));
  EXPECT_THAT(error_of({"zoo", "run"}), HasSubstr("halfscope zoo list"));
  EXPECT_THAT(error_of({"zoo", "list", "F7"}), HasSubstr("halfscope zoo run CASE"));
  EXPECT_THAT(error_of({"zoo", "run", "F7", "--json"}),
              HasSubstr("the command that zoo run prints"));
}

TEST(CliZoo, NetworkOfACaseCanBeWrittenAndRunOnItsData) {
  const Bench bench;
  EXPECT_EQ(bench.run({"convert", "zoo:F7", "--out", "f7.onnx"}).code, 0);
  const auto lanes_of = [&](const std::string& network) {
    const Outcome outcome = bench.run(
        {"run", network, "--data", "zoo:F7", "--lanes", "float32,mixed_float16", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const json lanes = json::parse(outcome.out).at("lanes");
    return std::pair{lanes.at(1).at("output_error"), lanes.at(1).at("non_finite")};
  };
  EXPECT_EQ(lanes_of("f7.onnx"), lanes_of("zoo:F7"));
}

}  // namespace
}  // namespace halfscope
