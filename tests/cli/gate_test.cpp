// SPDX-License-Identifier: MIT
// `halfscope report --gate`: flags, exit codes and output files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::small_training;
using test::text_of;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kPasses =
    R"({"schema": "halfscope.gate/1", "rules": [{"role": "activation", "overflow": 1}]})";
// Rounding to fp16 changes some activation.
constexpr const char* kFails =
    R"({"schema": "halfscope.gate/1", "rules": [{"role": "activation", "error": 0}]})";

void write(const Bench& bench, const std::string& name, const std::string& text) {
  std::ofstream(bench / name) << text;
}

TEST(CliGate, ExitCodesAndFiles) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  write(bench, "pass.json", kPasses);
  write(bench, "fail.json", kFails);

  const Outcome pass = bench.run({"report", "run.hscope", "--gate", "pass.json"});
  EXPECT_EQ(pass.code, 0) << pass.err;
  EXPECT_THAT(pass.out, StartsWith("gate: passed, 0 violations ("));

  const Outcome fail =
      bench.run({"report", "run.hscope", "--gate", "fail.json", "--junit", "gate.xml", "--sarif",
                 "gate.sarif", "--json", "report.json", "--md", "report.md"});
  EXPECT_EQ(fail.code, 1) << fail.err;
  EXPECT_THAT(fail.out, HasSubstr("fail: rule 1: mixed_float16: "));
  EXPECT_THAT(fail.out, HasSubstr("gate: failed, "));
  EXPECT_THAT(text_of(bench / "gate.xml"), StartsWith("<?xml "));
  const auto sarif = nlohmann::json::parse(text_of(bench / "gate.sarif"));
  EXPECT_EQ(sarif["version"], "2.1.0");
  const auto report = nlohmann::json::parse(text_of(bench / "report.json"));
  EXPECT_EQ(report["gate"]["file"], "fail.json");
  EXPECT_EQ(report["gate"]["violations"], sarif["runs"][0]["results"].size());
  EXPECT_THAT(text_of(bench / "report.md"), StartsWith("#"));

  const Outcome known = bench.run(
      {"report", "run.hscope", "--gate", "fail.json", "--baseline", "run.hscope", "--sarif", "-"});
  EXPECT_EQ(known.code, 0) << "the baseline has the same violations";
  EXPECT_EQ(nlohmann::json::parse(known.out)["runs"][0]["results"][0]["baselineState"],
            "unchanged");
  EXPECT_THAT(known.err, HasSubstr("gate: passed, 0 new violations, "));

  const Outcome quiet = bench.run({"report", "run.hscope", "--gate", "fail.json", "--quiet"});
  EXPECT_EQ(quiet.code, 1);
  EXPECT_THAT(quiet.out + quiet.err, IsEmpty());

  // Without a gate file, --fail-on is the gate.
  const Outcome severity = bench.run(
      {"report", "run.hscope", "--fail-on", "error", "--baseline", "run.hscope", "--junit", "-"});
  EXPECT_EQ(severity.code, 0) << severity.err;
  EXPECT_THAT(severity.out, HasSubstr("<testcase name=\"--fail-on error"));
  EXPECT_EQ(nlohmann::json::parse(bench.run({"report", "run.hscope", "--json", "-"}).out)["gate"],
            nullptr);
}

TEST(CliGate, CopiesThatTheReferenceDoesNotMakeAreNotCompared) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  const Outcome layers = bench.run({"report", "run.hscope", "--csv", "-"});
  ASSERT_THAT(layers.out, HasSubstr("mixed_float16,fc1,")) << layers.err;
  ASSERT_THAT(layers.out, HasSubstr("fc1.input")) << "fc1 reads a copy in fp16";
  write(bench, "far.json", R"({"schema": "halfscope.gate/1", "rules": [{"error": 1e9}]})");
  const Outcome far = bench.run({"report", "run.hscope", "--gate", "far.json"});
  EXPECT_EQ(far.code, 0) << far.out;
  write(bench, "copy.json",
        R"({"schema": "halfscope.gate/1", "rules": [
            {"path": "fc1", "role": "input", "error": 1e9}]})");
  const Outcome copy = bench.run({"report", "run.hscope", "--gate", "copy.json"});
  EXPECT_EQ(copy.code, 2) << copy.out;
  EXPECT_THAT(copy.err, HasSubstr("\"rule 1\" matches nothing"));
}

TEST(CliGate, BadInputIsOneLineAndAHint) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({"--lanes", "float32,mixed_float16"})).code, 0);
  write(bench, "pass.json", kPasses);
  write(bench, "typo.json",
        R"({"schema": "halfscope.gate/1", "rules": [{"rolle": "activation", "overflow": 1}]})");
  write(bench, "nothing.json",
        R"({"schema": "halfscope.gate/1", "rules": [{"path": "conv*", "overflow": 1}]})");
  const auto refused = [&](std::vector<std::string> words, int code, const std::string& what,
                           const std::string& hint) {
    words.insert(words.begin(), {"report", "run.hscope"});
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, code);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_EQ(outcome.err, "halfscope: " + what + "\nhint: " + hint + "\n");
  };
  refused({"--gate", "typo.json"}, 2, "gate: unknown key \"rolle\" in rules[0]",
          "did you mean role?");
  refused({"--gate", "nothing.json"}, 2,
          "gate: \"rule 1\" matches nothing: no layer is called \"conv*\"",
          "list the layers with --csv -");
  refused({"--gate", "none.json"}, 3, "cannot open 'none.json': file not found",
          "write a gate as in docs/reference/gate.md");
  refused({"--sarif", "x.sarif"}, 2, "--sarif needs a gate",
          "add --gate FILE, or --fail-on SEVERITY");
  EXPECT_EQ(
      bench.run({"report", "run.hscope", "--gate", "pass.json", "--baseline", "no.hscope"}).code,
      3);
  EXPECT_EQ(bench.run({"report", "run.hscope", "--gate", "pass.json", "--junit", "pass.json"}).code,
            2);
  EXPECT_EQ(text_of(bench / "pass.json"), kPasses);
}

}  // namespace
}  // namespace halfscope
