// SPDX-License-Identifier: MIT
// Text for people: wrapping, colours, tables with long names, and the ending of a run in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/terminal/ending.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

TEST(CliLayout, ParagraphsAreWrappedWhereThereIsAWidth) {
  const std::string text = "one two three four";
  EXPECT_EQ(paragraph(text, {}, 2, 4), "  one two three four\n");
  EXPECT_EQ(paragraph(text, {.width = 13}, 0, 4), "one two\n    three\n    four\n");
  EXPECT_EQ(paragraph(text, {.width = 3}, 2, 2), "  one\n  two\n  three\n  four\n")
      << "a word is never cut";
}

TEST(CliLayout, ColoursAreThoseOfTheTerminal) {
  EXPECT_EQ(coloured("broken", Colour::red, {}), "broken");
  const TextStyle style{.width = 80, .colour = true};
  EXPECT_EQ(coloured("broken", Colour::red, style), "\033[1;31mbroken\033[0m");
  EXPECT_EQ(coloured("healthy", Colour::green, style), "\033[1;32mhealthy\033[0m");
  EXPECT_EQ(coloured("attention", Colour::yellow, style), "\033[1;33mattention\033[0m");
  EXPECT_EQ(coloured("cured", Colour::cyan, style), "\033[1;36mcured\033[0m");
}

TEST(CliLayout, NamesThatDoNotFitGetALineToThemselves) {
  const std::vector<std::vector<std::string>> rows{
      {"lane", "loss"}, {"float32", "0.25"}, {"emulated:mixed_float16", "0.5"}};
  EXPECT_EQ(aligned(rows, {false, true}),
            "lane                    loss\n"
            "float32                 0.25\n"
            "emulated:mixed_float16   0.5\n");
  EXPECT_EQ(aligned(rows, {false, true}, 28), aligned(rows, {false, true}));
  EXPECT_EQ(aligned(rows, {false, true}, 27),
            "lane     loss\n"
            "float32  0.25\n"
            "emulated:mixed_float16\n"
            "          0.5\n");
}

/// A verdict that colours would hide, were they counted as text.
TEST(CliLayout, EveryStateHasAColour) {
  const TextStyle style{.width = 20, .colour = true};
  EXPECT_EQ(verdict_text({Verdict::State::cured, "a b is cured by a wider plan.", "", ""}, style),
            "verdict: \033[1;36mcured\033[0m\n  a b is cured by a\n  wider plan.\n");
  EXPECT_EQ(verdict_text({Verdict::State::attention, "One.", "Two.", ""}, {}),
            "verdict: attention\n  One.\n  Two.\n");
}

LaneInfo lane_of(const std::string& name, const FloatFormat& format) {
  LaneInfo lane;
  lane.name = name;
  lane.loss_scale = "none";
  LayerInfo layer;
  layer.path = "fc1";
  layer.op = "Gemm";
  layer.read = layer.write = format;
  lane.layers.push_back(layer);
  return lane;
}

/// Conclusion of a run without steps that recorded statistics every `every` steps.
Conclusion conclusion_of(int every, RunStatus status) {
  RunInfo info;
  info.every = every;
  info.lanes = {lane_of("float32", kFp32), lane_of("float16", kFp16), lane_of("bfloat16", kBf16)};
  info.settings = {"--model", "a b", "--no-record"};
  info.lane_settings = {"--lanes", "float32,float16,bfloat16"};
  Conclusion conclusion;
  conclusion.run.emplace(std::move(info), status);
  conclusion.report = make_report(*conclusion.run);
  return conclusion;
}

TEST(CliLayout, AdviceOnOneOfSeveralLanesNamesItAndIsProvedWhereTheRunEnded) {
  for (const RunStatus status : {RunStatus::complete, RunStatus::interrupted}) {
    Conclusion conclusion = conclusion_of(1, status);
    Report& report = *conclusion.report;
    report.verdict.state = Verdict::State::broken;
    report.verdict.text = report.verdict.headline = "float16 fails: x overflows.";
    report.sick = 1;
    const auto finding = [](const char* rule, const char* mechanism, Severity severity) {
      return Finding{.rule = rule, .lane = 1, .severity = severity, .mechanism = mechanism};
    };
    report.findings = {finding("a", "x overflows", Severity::error),
                       finding("b", "y underflows", Severity::warning),
                       finding("b", "z underflows", Severity::warning),
                       finding("c", "remark", Severity::info)};
    report.recommendation = Recommendation{.lane = 1, .text = "Keep fc1 in fp32."};
    const std::string text = ending_text(conclusion, "my run.hscope", "", {});
    EXPECT_THAT(text, HasSubstr("\nverdict: broken\n  float16 fails: x overflows.\n"
                                "cause (float16): y underflows.\n"
                                "advice (float16): Keep fc1 in fp32.\n"
                                "run file: my run.hscope\nnext: "));
    const bool proves = status == RunStatus::complete;
    EXPECT_THAT(text, HasSubstr(std::string("next: halfscope diagnose 'my run.hscope'") +
                                (proves ? " --verify" : "") + " --out plan.json\n"));
    // If the proof refutes the advice, there is nothing to prove.
    report.proof = Proof{};
    report.proof->holds = false;
    EXPECT_THAT(ending_text(conclusion, "r.hscope", "", {}),
                HasSubstr("next: halfscope report r.hscope --html report.html\n"));
  }
}

TEST(CliLayout, AfterATrainingWithoutStatisticsTheNextOneHasThem) {
  const Conclusion conclusion = conclusion_of(0, RunStatus::complete);
  EXPECT_THAT(ending_text(conclusion, "r.hscope", "", {}),
              HasSubstr("next: halfscope train --model 'a b' --lanes float32,float16,bfloat16 "
                        "--out recorded.hscope\n"));
}

TEST(CliLayout, WithoutARunFileThereIsNoVerdict) {
  const Conclusion conclusion = conclude("there-is-none.hscope");
  EXPECT_EQ(verdict_json(conclusion), nullptr);
  EXPECT_EQ(ending_text(conclusion, "there-is-none.hscope", "", {}),
            "run file: there-is-none.hscope\n");
  EXPECT_THROW(conclusion.check(), Error);
}

}  // namespace
}  // namespace halfscope
