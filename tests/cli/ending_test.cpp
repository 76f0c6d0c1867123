// SPDX-License-Identifier: MIT
// The summary of `train`, `run` and `diagnose`: the report's verdict, advice and a command that
// works when pasted; colours and widths of a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/policy/policy.h"
#include "tests/cli/terminal.h"

namespace halfscope {
namespace {

using nlohmann::json;
using test::Bench;
using test::lines_of;
using test::Outcome;
using test::Stream;
using test::text_of;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

/// fp16 cannot train this network because of its one hot layer.
const Words kBroken{"train", "--model",     "lenet-hot", "--batch",   "8", "--steps",
                    "12",    "--no-errors", "--no-eval", "--threads", "1", "--force"};
const Words kHealthy{"train",   "--model", "mlp:784-16-10", "--batch", "64",
                     "--steps", "60",      "--threads",     "1"};

/// Returns the rest of the line that starts with `label`, or "" if there is none.
std::string line_after(const std::string& label, const std::string& text) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(label)) return line.substr(label.size());
  }
  return "";
}

/// Returns the words of the command on the line "next: halfscope ...", none of which are quoted
/// here.
Words next_words(const std::string& text) {
  Words words;
  std::istringstream line(line_after("next: halfscope ", text));
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

/// The verdict of the JSON report: what everything else must agree with.
json reported(const Bench& bench, const std::string& run) {
  const Outcome outcome = bench.run({"report", run, "--json", "-"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out).at("verdict");
}

/// The lines of the verdict's sentences, joined as the report has them.
std::string sentences(const std::string& text) {
  std::string all;
  bool inside = false;
  for (const std::string& line : lines_of(text)) {
    if (inside && !line.starts_with("  ")) break;
    if (inside) all += (all.empty() ? "" : " ") + line.substr(2);
    inside = inside || line.starts_with("verdict: ");
  }
  return all;
}

TEST(CliEnding, ABrokenRunEndsWithTheCommandThatProvesTheAdvice) {
  const Bench bench;
  const Outcome outcome = bench.run(kBroken);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json verdict = reported(bench, "run.hscope");
  EXPECT_EQ(verdict.at("state"), "broken");
  EXPECT_THAT(outcome.out, HasSubstr("\n\nverdict: broken\n"));
  EXPECT_EQ(sentences(outcome.out), verdict.at("text"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\ncause"))) << "the verdict names it";
  EXPECT_EQ(line_after("advice: ", outcome.out), "Keep conv2 in fp32.");
  EXPECT_EQ(line_after("confidence: ", outcome.out),
            "medium. The run shows the cause. The change is not tested yet.");
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
  EXPECT_THAT(outcome.out,
              EndsWith("\nrun file: run.hscope\n"
                       "next: halfscope diagnose run.hscope --verify --out plan.json\n"));
  const Words lines = lines_of(outcome.out);
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(lines[i].size(), 80u) << lines[i];

  // diagnose says the same, and so do the results as JSON.
  const Outcome diagnosis = bench.run({"diagnose", "run.hscope"});
  EXPECT_THAT(diagnosis.out, StartsWith("verdict: broken\n"));
  EXPECT_EQ(sentences(diagnosis.out), verdict.at("text"));
  EXPECT_EQ(line_after("fix, not tried yet: ", diagnosis.out), "Keep conv2 in fp32.");
  EXPECT_THAT(diagnosis.out, Not(HasSubstr("advice: "))) << "the same once more";
  EXPECT_EQ(line_after("next: ", diagnosis.out), line_after("next: ", outcome.out));
  Words words = kBroken;
  words.push_back("--json");
  EXPECT_EQ(json::parse(bench.run(words).out).at("verdict"), verdict);

  // Pasted, it writes the plan that helps.
  const Outcome proved = bench.run(next_words(outcome.out));
  EXPECT_EQ(proved.code, 0) << proved.err;
  EXPECT_EQ(load_plan((bench / "plan.json").string()).rules.back().path, "conv2");
  EXPECT_EQ(next_words(proved.out).front(), "train");
}

TEST(CliEnding, AHealthyRunEndsWithItsReport) {
  const Bench bench;
  const Outcome outcome = bench.run(kHealthy);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json verdict = reported(bench, "run.hscope");
  EXPECT_EQ(verdict.at("state"), "healthy");
  EXPECT_THAT(outcome.out, HasSubstr("\nverdict: healthy\n"));
  EXPECT_EQ(sentences(outcome.out), verdict.at("text"));
  for (const char* label : {"\nadvice", "\ncause", "\nconfidence", "\nproof"}) {
    EXPECT_THAT(outcome.out, Not(HasSubstr(label)));
  }
  EXPECT_EQ(line_after("next: ", outcome.out), "halfscope report run.hscope --html report.html");
  EXPECT_EQ(bench.run(next_words(outcome.out)).code, 0);
  EXPECT_THAT(text_of(bench / "report.html"), HasSubstr("</html>"));
  EXPECT_THAT(bench.run({"diagnose", "run.hscope"}).out,
              EndsWith("advice: none needed\n"
                       "next: halfscope report run.hscope --html report2.html\n"));
}

// The learning rate is at fault, which no format can help.
TEST(CliEnding, WhereFullPrecisionFailsNoFormatIsBlamed) {
  const Bench bench;
  const Outcome outcome = bench.run({"train", "--model", "lenet", "--batch", "8", "--steps", "4",
                                     "--lr", "1e30", "--no-eval", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(sentences(outcome.out), reported(bench, "run.hscope").at("text"));
  for (const char* label : {"\nadvice", "\ncause"}) {
    EXPECT_THAT(outcome.out, Not(HasSubstr(label)));
  }
}

TEST(CliEnding, ForwardPassesEndLikeTrainings) {
  const Bench bench;
  const Words network{"run", "lenet-hot", "--data",        "digits",    "--limit",
                      "32",  "--plan",    "mixed_float16", "--threads", "1"};
  const auto run = [&](const Words& more) {
    Words words = network;
    words.insert(words.end(), more.begin(), more.end());
    return bench.run(words);
  };
  const Outcome outcome = run({"--record", "r.hscope"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json verdict = reported(bench, "r.hscope");
  EXPECT_EQ(verdict.at("state"), "broken");
  EXPECT_THAT(outcome.out, HasSubstr("\nverdict: broken\n"));
  EXPECT_EQ(sentences(outcome.out), verdict.at("text"));
  EXPECT_EQ(line_after("advice: ", outcome.out), "Keep conv2 in fp32.");
  const Outcome next = bench.run(next_words(outcome.out));
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_EQ(load_plan((bench / "plan.json").string()).rules.back().path, "conv2");

  EXPECT_EQ(json::parse(run({"--record", "j.hscope", "--json"}).out).at("verdict"), verdict);
  EXPECT_EQ(json::parse(run({"--json"}).out).at("verdict"), nullptr) << "nothing was recorded";
  EXPECT_THAT(run({}).out, Not(HasSubstr("verdict")));
  EXPECT_EQ(run({"--record", "q.hscope", "--quiet"}).out, "");
}

TEST(CliEnding, WithoutStatisticsTheNextCommandRecordsThem) {
  const Bench bench;
  Words words = kHealthy;
  words.push_back("--no-record");
  const Outcome outcome = bench.run(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(line_after("verdict: ", outcome.out),
            reported(bench, "run.hscope").at("state").get<std::string>());
  const Outcome again = bench.run(next_words(outcome.out));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("\nverdict: healthy\n"));
  EXPECT_THAT(again.out, HasSubstr("\nrun file: recorded.hscope\n"));
}

TEST(CliEnding, TheVerdictComesBeforeTheProofAndTheNextCommandLast) {
  const Bench bench;
  Words words = kBroken;
  words.push_back("--verify");
  const Outcome outcome = bench.run(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  size_t last = 0;
  for (const char* label : {"float32 ", "\nverdict: ", "\nadvice: ", "\nconfidence: ",
                            "\nproof: Tested by training", "\nrun file: ", "\nnext: "}) {
    const size_t at = outcome.out.find(label);
    ASSERT_NE(at, std::string::npos) << label;
    EXPECT_GE(at, last) << label;
    last = at;
  }
  EXPECT_EQ(sentences(outcome.out), reported(bench, "run.hscope").at("text"))
      << "with what the proof has shown";
}

std::string without_colours(std::string text) {
  for (size_t at = 0; (at = text.find("\033[", at)) != std::string::npos;) {
    text.erase(at, text.find('m', at) + 1 - at);
  }
  return text;
}

TEST(CliEnding, OnATerminalItIsColouredAndWrapped) {
  const Bench bench;
  for (const int columns : {60, 80, 200}) {
    SCOPED_TRACE(columns);
    for (const Words& words : {kBroken, Words{"diagnose", "run.hscope"}}) {
      const std::string drawn = test::on_terminal(bench, words, columns, Stream::output);
      if (drawn.empty()) GTEST_SKIP() << "no pseudo-terminal here";
      EXPECT_THAT(drawn, HasSubstr("verdict: \033[1;31mbroken\033[0m\n"));
      const std::string plain = without_colours(drawn);
      EXPECT_EQ(plain.find('\033'), std::string::npos);
      EXPECT_EQ(sentences(plain), reported(bench, "run.hscope").at("text"));
      // The table has four lines and its headings alone are wider than 60 columns.
      bool table = words[0] == "train";
      for (const std::string& line : lines_of(plain)) {
        table = table && !line.empty();
        if (line.starts_with("next: ") || (table && columns < 80)) continue;
        EXPECT_LE(line.size(), static_cast<size_t>(std::min(columns, 80))) << line;
      }
      EXPECT_THAT(plain, HasSubstr("\nnext: halfscope diagnose run.hscope --verify --out "
                                   "plan.json\n"))
          << "in one line";
    }
  }
}

TEST(CliEnding, LongLaneNamesLeaveTheTableInEightyColumns) {
  const Bench bench;
  Words words = kHealthy;
  words.insert(words.end(), {"--lanes", "float32,emulated:mixed_float16,emulated:mixed_bfloat16"});
  const std::string drawn = test::on_terminal(bench, words, 80, Stream::output);
  if (drawn.empty()) GTEST_SKIP() << "no pseudo-terminal here";
  EXPECT_THAT(drawn, HasSubstr("\nemulated:mixed_bfloat16\n"));
  for (const std::string& line : lines_of(without_colours(drawn))) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(CliEnding, ColoursCanBeTurnedOff) {
  const Bench bench;
  ASSERT_EQ(bench.run(kBroken).code, 0);
  const Words diagnose{"diagnose", "run.hscope"};
  const auto drawn = [&](const std::string& environment) {
    return test::on_terminal(bench, diagnose, 80, Stream::output, environment);
  };
  const std::string coloured = drawn("TERM=xterm");
  if (coloured.empty()) GTEST_SKIP() << "no pseudo-terminal here";
  EXPECT_THAT(coloured, HasSubstr("\n  \033[1;31merror\033[0m: "));
  for (const char* environment : {"TERM=xterm\nNO_COLOR=1", "TERM=dumb"}) {
    EXPECT_EQ(drawn(environment), without_colours(coloured)) << environment;
  }
  EXPECT_EQ(drawn("TERM=xterm\nNO_COLOR="), coloured) << "an empty value is none";
}

}  // namespace
}  // namespace halfscope
