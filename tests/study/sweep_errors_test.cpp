// SPDX-License-Identifier: MIT
// Mistakes in studies: one line that says what is wrong, before anything is trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/refusals.h"

namespace halfscope {
namespace {

using test::Bench;
using test::expect_refusal;
using test::Outcome;

void write_study(const Bench& bench, const std::string& text) {
  std::ofstream(bench / "s.json", std::ios::binary) << text;
}

std::string text_with(const std::string& settings, const std::string& axes) {
  return R"({"schema": "halfscope.study/1", "settings": {"model": "mlp:784-16-10", "steps": 4)" +
         settings + R"(}, "axes": {)" + axes + "}}";
}

TEST(SweepErrors, NamesTheMistakeInAStudy) {
  const Bench bench;
  struct Case {
    std::string text, what, hint;
  };
  const std::string plan = R"("plan": ["mixed_float16"])";
  const std::vector<Case> cases{
      {"[]", "not a JSON object", ""},
      {"{\n  \"axes\" {}}", "not valid JSON: line 2, column 10: unexpected {", "separate items"},
      {R"({"schema": "halfscope.plan/1"})", "does not say \"schema\": \"halfscope.study/1\"", ""},
      {R"({"schema": "halfscope.study/1", "axis": {}})", "unknown key \"axis\"",
       "did you mean axes?"},
      {R"({"schema": "halfscope.study/1"})", "\"axes\" must be an object", "\"plan\""},
      {R"({"schema": "halfscope.study/1", "axes": {}, "tolerance": -1})", "\"tolerance\"", ""},
      {R"({"schema": "halfscope.study/1", "axes": {}, "name": 3})", "\"name\" must be a text", ""},
      {text_with("", R"("seed": [1])"), "the axis \"plan\" is missing", "add"},
      {text_with("", plan + R"(, "seed": [])"), "axis \"seed\" has no values", "add one"},
      {text_with("", plan + R"(, "seed": {"from": 3, "to": 2})"), "axis \"seed\" has no values",
       ""},
      {text_with("", plan + R"(, "seed": {"from": 3})"), "a range needs \"from\" and \"to\"", ""},
      {text_with("", plan + R"(, "seed": {"form": 3})"), "unknown key \"form\"",
       "did you mean from?"},
      {text_with("", plan + R"(, "seed": {"from": 1, "to": 18446744073709551615})"),
       "axis \"seed\": \"to\" must be at most 9223372036854775807", ""},
      {text_with("", plan + R"(, "seed": {"from": -9223372036854775808,
                                          "to": 9223372036854775807})"),
       "axis \"seed\": more than a million values", "divide"},
      {text_with("", plan + R"(, "seed": {"from": 0, "to": 1000000})"),
       "axis \"seed\": more than a million values", "divide"},
      {text_with("", plan + R"(, "seed": 3)"), "must be a list of values or a range", ""},
      {text_with("", plan + R"(, "sed": [1])"), "unknown key \"sed\"", "did you mean seed?"},
      {text_with(R"(, "sed": 1)", plan), "unknown key \"sed\"", "did you mean seed?"},
      {text_with(R"(, "seed": 1)", plan + R"(, "seed": [1])"), "\"seed\" is a setting and an axis",
       "keep one"},
      {text_with(R"(, "plan": "float16")", plan), "cannot be among the settings", "axis"},
      {text_with(R"(, "threads": 0)", plan), "\"threads\" must be a whole number", ""},
      {text_with("", plan + R"(, "threads": [1])"), "\"threads\" cannot be an axis", "settings"},
      {text_with("", R"("plan": ["mixed_flot16"])"),
       "s.json: \"plan\": no plan named 'mixed_flot16'", "mixed_float16"},
      {text_with("", plan + R"(, "batch": [16, "x"])"), "\"batch\": x: not a whole number", ""},
      {text_with("", plan + R"(, "seed": [1, 2, 1])"),
       "two trials are the same training: plan mixed_float16, seed 1; and plan mixed_float16, "
       "seed 1",
       "remove"},
      {text_with("", R"("plan": ["float32", "mixed_float16"], "loss_scale": ["none", "dynamic"])"),
       "two trials are the same training", "remove"},
      {text_with("", plan + R"(, "accumulate_grads": ["fp16"])"), "needs more than one micro-batch",
       "micro-batches"},
      // Only the network and the data show these.
      {text_with(R"(, "batch": 16)", plan + R"(, "micro_batches": [2, 3])"),
       "a batch of 16 cannot be split into 3 equal micro-batches", "divides 16"},
      {text_with("", plan + R"(, "batch": [16, 100000])"), "batch size 100000 does not fit", ""},
      {text_with("", plan + R"(, "model": ["mlp:784-16-10"])"), "is a setting and an axis", ""},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.text);
    write_study(bench, each.text);
    const Outcome outcome = bench.run({"sweep", "s.json"});
    expect_refusal(outcome, 2, each.what, each.hint);
    std::filesystem::remove(bench / "s-study/study.sqlite");
    EXPECT_FALSE(std::filesystem::exists(bench / "s-study/trials") &&
                 !std::filesystem::is_empty(bench / "s-study/trials"))
        << "something was trained";
  }
}

TEST(SweepErrors, NamesFilesThatAreMissing) {
  const Bench bench;
  expect_refusal(bench.run({"sweep", "none.json"}), 3, "cannot read 'none.json': file not found");
  expect_refusal(bench.run({"sweep", "."}), 2, "'.' is a folder, not a study", "study");
  write_study(bench, text_with(R"(, "init": "w.npz")", R"("plan": ["mixed_float16"])"));
  expect_refusal(bench.run({"sweep", "s.json"}), 3, "w.npz': No such file or directory");
  write_study(bench, text_with("", R"("plan": ["p.json"])"));
  expect_refusal(bench.run({"sweep", "s.json"}), 2, "p.json', and no file with this name");
}

TEST(SweepErrors, RefusesFoldersThatAreNotOfThisStudy) {
  const Bench bench;
  write_study(bench, text_with("", R"("plan": ["mixed_float16"], "seed": [1, 2])"));
  std::ofstream(bench / "file") << "x";
  expect_refusal(bench.run({"sweep", "s.json", "--out", "file/study"}), 2,
                 "cannot write to the folder", "--out");
  ASSERT_EQ(bench.run({"sweep", "s.json", "--quiet"}).code, 0);
  write_study(bench, text_with(R"(, "batch": 32)", R"("plan": ["mixed_float16"], "seed": [1, 2])"));
  for (const std::vector<std::string>& action :
       {std::vector<std::string>{}, {"--print-trials"}, {"--trial", "0"}, {"--collect"}}) {
    std::vector<std::string> words{"sweep", "s.json"};
    words.insert(words.end(), action.begin(), action.end());
    expect_refusal(bench.run(words), 2, "is the folder of another study", "--out");
  }
  write_study(bench, text_with("", R"("plan": ["mixed_float16"], "seed": [2, 3])"));
  EXPECT_EQ(bench.run({"sweep", "s.json", "--quiet"}).code, 0) << "the same study with other seeds";
  std::ofstream(bench / "s-study/study.sqlite") << std::string(5000, 'x');
  expect_refusal(bench.run({"sweep", "s.json"}), 2, "is not a study file");
  std::filesystem::remove(bench / "s-study/study.sqlite");
  EXPECT_EQ(bench.run({"sweep", "s.json", "--collect", "--quiet"}).code, 0);
  std::filesystem::resize_file(bench / "s-study/study.sqlite", 6000);
  expect_refusal(bench.run({"sweep", "s.json"}), 3, "is damaged", "--collect");
}

TEST(SweepErrors, SaysWhichFileOfTheFolderIsInTheWay) {
  const Bench bench;
  write_study(bench, text_with("", R"("plan": ["mixed_float16"])"));
  std::filesystem::create_directory(bench / "s-study");
  std::ofstream(bench / "s-study/trials") << "x";
  expect_refusal(bench.run({"sweep", "s.json"}), 2,
                 "'" + (bench / "s-study/trials").string() + "': Not a directory", "--out");
}

TEST(SweepErrors, AReportSpeaksOfStudies) {
  const Bench bench;
  expect_refusal(bench.run({"report", "none"}), 3, "cannot read 'none': file not found",
                 "`halfscope sweep`");
  std::filesystem::create_directory(bench / "empty");
  expect_refusal(bench.run({"report", "empty"}), 2, "'empty' is a folder without a study",
                 "`halfscope sweep`");
  expect_refusal(bench.run({"report", "none", "--html", "nowhere/r.html"}), 2, "nowhere");
  write_study(bench, text_with("", R"("plan": ["mixed_float16"], "seed": [1, 2])"));
  ASSERT_EQ(bench.run({"sweep", "s.json", "--quiet"}).code, 0);
  std::filesystem::resize_file(bench / "s-study/study.sqlite", 6000);
  const std::string hint = "delete study.sqlite, then run `halfscope sweep STUDY --collect`";
  expect_refusal(bench.run({"report", "s-study"}), 3, "'s-study/study.sqlite' is damaged", hint);
  std::ofstream(bench / "s-study/study.sqlite") << std::string(5000, 'x');
  expect_refusal(bench.run({"report", "s-study"}), 2, "'s-study/study.sqlite' is not a study file",
                 hint);
}

TEST(SweepErrors, RefusesFlagsThatExcludeEachOther) {
  const Bench bench;
  write_study(bench, text_with("", R"("plan": ["mixed_float16"])"));
  test::expect_refusals(
      bench, {{{"sweep"}, 2, "sweep needs a study"},
              {{"sweep", "s.json", "--collect", "--print-trials"}, 2, "exclude each other"},
              {{"sweep", "s.json", "--collect", "--workers", "2"}, 2, "--workers"},
              {{"sweep", "s.json", "--workers", "0"}, 2, "--workers"},
              {{"sweep", "s.json", "--json", "--trial", "0"}, 2, "--json"},
              {{"sweep", "s.json", "--trial", "2"}, 2, "--trial"},
              {{"sweep", "s.json", "--trial", "0123456789abcdef"}, 2, "no such trial", "print"}});
}

}  // namespace
}  // namespace halfscope
