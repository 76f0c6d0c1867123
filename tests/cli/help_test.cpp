// SPDX-License-Identifier: MIT
// The rules of help: short, at most 80 columns, flags that begin with a capital letter, plain
// words, and examples that work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>

#include "cli/args/topics.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::lines_of;
using test::Outcome;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

constexpr size_t kColumns = 80;

/// Lines that each command's help may have.
const std::map<std::string, size_t>& budgets() {
  static const std::map<std::string, size_t> kBudgets{
      {"train", 106}, {"run", 77},       {"diagnose", 60},   {"report", 37},  {"view", 25},
      {"zoo", 25},    {"plan", 80},      {"inspect", 31},    {"convert", 45}, {"doctor", 28},
      {"fprev", 30},  {"mma-check", 25}, {"completion", 15}, {"float", 32},   {"puzzle", 26},
      {"help", 15},   {"diff", 30},      {"cost", 49}};
  return kBudgets;
}

void expect_plain(const std::string& text) {
  for (const char* phrase :
       {"of its own", "so many", " lies", "goes along", "that of", "those of", "what is ",
        "works off", "by itself", "is wanted", "all the same", "may be given several times",
        "[default:", "told", "thereof", "hence", "whoever"}) {
    EXPECT_THAT(text, Not(HasSubstr(phrase)));
  }
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), kColumns) << line;
}

/// Splits an example as a shell would; only single quotes count.
Words words_of(const std::string& line) {
  Words words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

TEST(CliHelp, EveryCommandKeepsTheRules) {
  const Bench bench;
  for (const auto& [name, budget] : budgets()) {
    SCOPED_TRACE(name);
    const Words lines = lines_of(bench.run({name, "--help"}).out);
    EXPECT_LE(lines.size(), budget);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    expect_plain(text);
    for (const std::string& line : lines) {
      if (!line.starts_with("  --")) continue;
      const size_t meaning = line.find("  ", 4);
      ASSERT_NE(meaning, std::string::npos) << line;
      const size_t first = line.find_first_not_of(' ', meaning);
      ASSERT_NE(first, std::string::npos) << line;
      EXPECT_TRUE(std::isupper(static_cast<unsigned char>(line[first])) != 0) << line;
    }
  }
}

TEST(CliHelp, CommandsAndTopicsAreListed) {
  const Bench bench;
  const std::string help = bench.run({"help"}).out;
  expect_plain(help);
  for (const auto& [name, unused] : budgets()) EXPECT_THAT(help, HasSubstr("\n  " + name + " "));
  for (const Topic& topic : topics()) {
    EXPECT_THAT(help, HasSubstr("\n  " + std::string(topic.name) + " "));
  }
}

TEST(CliHelp, CommonFlagsComeFirst) {
  const Bench bench;
  for (const char* name : {"train", "run"}) {
    const std::string help = bench.run({name, "--help"}).out;
    EXPECT_LT(help.find("\nCommon:\n"), help.find("\nNetwork and data:\n")) << name;
  }
}

TEST(CliHelp, ExamplesOfTopicsWork) {
  const Bench bench;
  for (const Topic& topic : topics()) {
    SCOPED_TRACE(topic.name);
    const Outcome help = bench.run({"help", topic.name});
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_EQ(help.out, topic.text());
    expect_plain(help.out);
    EXPECT_LE(lines_of(help.out).size(), 60u);
    int examples = 0;
    for (const std::string& line : lines_of(help.out)) {
      if (!line.starts_with("  halfscope ")) continue;
      ++examples;
      Words words = words_of(line.substr(2));
      words.erase(words.begin());
      words.emplace_back("--print-config");
      const Outcome outcome = bench.run(words);
      EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.err;
    }
    EXPECT_GE(examples, 3);
    EXPECT_LE(examples, 6);
  }
}

TEST(CliHelp, ThePlanInTheTopicIsValid) {
  const Bench bench;
  const std::string text = bench.run({"help", "plans"}).out;
  const size_t begin = text.find("  {\"schema\""), end = text.find("}]}", begin);
  ASSERT_NE(end, std::string::npos);
  std::ofstream(bench / "mine.json") << text.substr(begin, end + 3 - begin);
  const Outcome outcome = bench.run({"train", "--plan", "mine.json", "--print-config"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(CliHelp, AnUnknownTopicIsAnError) {
  const Bench bench;
  const Outcome near = bench.run({"help", "fromats"}), far = bench.run({"help", "cheese"});
  for (const Outcome& each : {near, far}) {
    EXPECT_EQ(each.code, 2);
    EXPECT_EQ(each.out, "");
  }
  EXPECT_THAT(near.err, HasSubstr("unknown command or topic 'fromats'"));
  EXPECT_THAT(near.err, HasSubstr("did you mean formats?"));
  EXPECT_THAT(far.err, HasSubstr("topics: plans, formats"));
}

TEST(CliHelp, DiagnoseNamesTheNetworkThatWasMeant) {
  const Bench bench;
  const struct {
    const char *name, *what, *hint;
  } cases[] = {{"lenet5", "run file or network not found: 'lenet5'", "did you mean lenet?"},
               {"zoo", "the case is missing", "halfscope diagnose zoo:F7"},
               {"nothere.onnx", "cannot open 'nothere.onnx': file not found", "check the path"}};
  for (const auto& [name, what, hint] : cases) {
    const Outcome outcome = bench.run({"diagnose", name});
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(what));
    EXPECT_THAT(outcome.err, HasSubstr(hint));
  }
}

TEST(CliHelp, ZooPrintsNothingIfItCannotStart) {
  const Bench bench;
  for (const Words& words : {Words{"zoo", "run", "F7", "--plan", "nothere"},
                             {"zoo", "run", "F7", "--out", "nowhere/x.hscope"},
                             {"zoo", "run", "F999"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 2) << words[2];
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace halfscope
