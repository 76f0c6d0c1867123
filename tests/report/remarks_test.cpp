// SPDX-License-Identifier: MIT
// A remark that is true of several lanes is said once, with the names of all of them.
#include "analysis/report/remarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "analysis/report/report.h"
#include "analysis/report/report_parts.h"
#include "tests/report/html_fault.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

size_t times(const std::string& text, const std::string& words) {
  size_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Remarks, AreSaidOnceForAllTheirLanes) {
  report::Remarks remarks;
  remarks.add("a", "It stopped.");
  remarks.add("b", "Its loss jumps.");
  remarks.add("c", "It stopped.");
  remarks.add("d", "");
  remarks.add("e", "It stopped.");
  EXPECT_EQ(remarks.text(), "a: It stopped. The same for c and e. b: Its loss jumps.");
}

TEST(Remarks, TextsShareWholeSentences) {
  using report::shared_sentences;
  EXPECT_EQ(shared_sentences("A b. C d.", "A b. C d."), "A b. C d.");
  EXPECT_EQ(shared_sentences("A b. C d.", "A b. C e."), "A b.");
  EXPECT_EQ(shared_sentences("A b.", "A b. C d."), "A b.");
  EXPECT_EQ(shared_sentences("A b. C d.", "A b."), "A b.");
  EXPECT_EQ(shared_sentences("It is 1.", "It is 1.5 now."), "") << "no sentence ends in a number";
  EXPECT_EQ(shared_sentences("2^-4.0 to 3.", "2^-4.0 to 4."), "");
  EXPECT_EQ(shared_sentences("", "A."), "");
}

/// A report on lanes of these names, with a finding for each pair of a lane and a text.
Report report_of(const std::vector<std::string>& lanes,
                 const std::vector<std::pair<int, std::string>>& texts) {
  Report report;
  for (const std::string& name : lanes) {
    report.lanes.emplace_back();
    report.lanes.back().name = name;
  }
  report.focus = 0;
  for (const auto& [lane, text] : texts) {
    Finding finding;
    finding.rule = "forward_overflow";
    finding.lane = lane;
    finding.severity = Severity::warning;
    finding.site = "conv2.activation";
    finding.layer = "conv2";
    finding.text = text;
    finding.action.text = "Keep conv2 in fp32.";
    finding.evidence["share"] = 0.2;
    report.findings.push_back(finding);
    report.finding_ids.push_back(finding.rule + ":" + lanes[static_cast<size_t>(lane)]);
  }
  return report;
}

TEST(FindingsOfLanes, TheSameWordsAreOneFinding) {
  const Report report =
      report_of({"mixed_float16", "float16", "half"},
                {{0, "conv2 overflows."}, {1, "conv2 overflows."}, {2, "conv2."}});
  const std::vector<report::FindingGroup> groups = report::finding_groups(report);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].lanes, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(report::text_of(report, groups[0]), "conv2 overflows.");
  const std::string md = report_markdown(report), html = report_html(report);
  EXPECT_EQ(times(md, "conv2 overflows."), 1u);
  EXPECT_THAT(md, HasSubstr("in `mixed_float16` and `float16`: conv2 overflows."));
  EXPECT_EQ(html_fault(html), "");
  EXPECT_EQ(times(html, "conv2 overflows."), 1u);
  for (const char* id : {"finding-1", "finding-2", "finding-3"}) {  // links still lead somewhere
    EXPECT_EQ(times(html, "id=\"" + std::string(id) + "\""), 1u) << id;
  }
  EXPECT_EQ(times(html, "forward_overflow:float16"), 1u) << "the id for a gate";
}

TEST(FindingsOfLanes, TheirOwnNamesMakeNoDifference) {
  const Report report =
      report_of({"mixed_float16", "float16"},
                {{0, "mixed_float16's loss is NaN."}, {1, "float16's loss is NaN."}});
  const std::vector<report::FindingGroup> groups = report::finding_groups(report);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(report::text_of(report, groups[0]),
            "mixed_float16's loss is NaN. The same for float16.");
  // "float16" is only a part of the other lane's name.
  const Report other = report_of({"mixed_float16", "float16"},
                                 {{0, "Unlike mixed_float16."}, {1, "Unlike mixed_float16."}});
  EXPECT_EQ(report::finding_groups(other).size(), 2u);
}

TEST(FindingsOfLanes, WhatOnlyOneLaneHasIsSaidOfThatLane) {
  const std::string all = "conv2 overflows in all of its steps.";
  for (const bool first : {true, false}) {  // the longer text may come first
    Report report = report_of({"a", "b"}, {{0, all}, {1, all}});
    report.findings[first ? 0 : 1].text += " So does fc1.";
    report.findings[first ? 0 : 1].action.text = "Keep conv2 and fc1 in fp32.";
    report.findings[first ? 0 : 1].evidence["share"] = 0.3;
    const std::vector<report::FindingGroup> groups = report::finding_groups(report);
    ASSERT_EQ(groups.size(), 1u);
    const std::string lane = first ? "a" : "b";
    EXPECT_EQ(report::text_of(report, groups[0]), all + " In " + lane + ": So does fc1.");
    const std::string html = report_html(report);
    EXPECT_EQ(html_fault(html), "");
    EXPECT_THAT(html, HasSubstr("<p class=\"todo\">" + lane + ": Keep conv2 and fc1 in fp32.</p>"));
    EXPECT_EQ(times(html, "<table class=\"evidence\">"), 2u) << "the numbers of each lane";
  }
}

TEST(FindingsOfLanes, OtherNumbersOrOtherTensorsAreOtherFindings) {
  const Report numbers = report_of({"a", "b"}, {{0, "conv2 loses 20% of it. That is all."},
                                                {1, "conv2 loses 30%. That is all."}});
  EXPECT_EQ(report::finding_groups(numbers).size(), 2u);
  Report tensors = report_of({"a", "b"}, {{0, "It overflows."}, {1, "It overflows."}});
  tensors.findings[1].site = "conv2.operand";
  EXPECT_EQ(report::finding_groups(tensors).size(), 2u);
  Report severities = report_of({"a", "b"}, {{0, "It overflows."}, {1, "It overflows."}});
  severities.findings[1].severity = Severity::error;
  EXPECT_EQ(report::finding_groups(severities).size(), 2u);
}

TEST(ReportOfLanes, ThreeLanesWithOneTroubleAreToldOnce) {
  RunSpec spec = hot_spec();
  for (const char* name : {"second", "third"}) {
    spec.lanes.push_back(spec.lanes[1]);
    spec.lanes.back().name = name;
  }
  const Report report = make_report(make_run(spec));
  EXPECT_THAT(report.verdict.text, HasSubstr("second and third fail for the same reason."));
  EXPECT_EQ(times(report.verdict.text, "same reason"), 1u);
  const std::string html = report_html(report), md = report_markdown(report);
  EXPECT_EQ(html_fault(html), "");
  EXPECT_EQ(times(html, "how NaN or infinity spread at step"), 1u);
  EXPECT_THAT(html, HasSubstr("<h3>mixed_float16, second and third: how NaN or infinity spread"));
  EXPECT_EQ(times(md, "First non-finite value"), 1u);
  EXPECT_EQ(report.findings.size(), report.finding_ids.size()) << "data keep every lane's";
}

// Where fp32 loses all updates as well, they are no reason to move weights to fp32.
TEST(ReportOfLanes, AnEffectIsToldOfTheTensorThatTheAdviceIsFor) {
  RunSpec spec = healthy_spec();
  spec.lanes[1] = {.name = "bfloat16", .format = kBf16, .storage = kBf16};
  RunView run(make_run(spec).info(), RunStatus::complete);
  for (int64_t step = 0; step < 3; ++step) {
    for (const int lane : {0, 1}) {
      run.add_step(lane, {.step = step, .loss = 1.0, .loss_scale = 1.0});
      const auto add = [&](const char* site, const TensorStats& stats) {
        run.add_window(lane, run.find_site(lane, site).value(), {.step = step, .stats = stats});
      };
      add("conv1.weight_update", {.n = 10, .lost = 10, .max_abs = 1e-9f});
      add("fc1.weight_update", {.n = 10, .lost = lane == 0 ? 0 : 9, .max_abs = 1e-4f});
    }
  }
  const Report report = make_report(run);
  ASSERT_EQ(report.actions.size(), 1u);
  EXPECT_THAT(report.actions[0].effect,
              HasSubstr("90% of the non-zero updates of fc1.weight_update are lost"));
  EXPECT_THAT(report.actions[0].effect, Not(HasSubstr("conv1")));
}

}  // namespace
}  // namespace halfscope::test
