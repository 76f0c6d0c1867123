// SPDX-License-Identifier: MIT
// A lane whose backend failed: it has no result, and nobody takes that for a matter of precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/report/report.h"
#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

RunView with_lost(int lane) {
  RunView run = make_run(healthy_spec());
  run.set_lost(lane, {7, "CUDA launch: unspecified launch failure"});
  return run;
}

TEST(LaneLost, IsAnErrorOfThatLane) {
  const RunView run = with_lost(1);
  const std::vector<Finding> findings = run_rules(run);
  EXPECT_EQ(worst_severity(findings), Severity::error);
  const auto found = std::find_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.rule == "lane_lost";
  });
  ASSERT_NE(found, findings.end());
  EXPECT_EQ(found->lane, 1);
  EXPECT_EQ(found->step, 7);
  EXPECT_THAT(found->text, HasSubstr("at step 7: CUDA launch: unspecified launch failure"));
  EXPECT_FALSE(recommend(run, findings, 1)) << "no plan mends a device";
  for (const Finding& each : run_rules(make_run(healthy_spec()))) EXPECT_NE(each.rule, "lane_lost");
}

TEST(LaneLost, IsWhatTheReportSaysFirst) {
  const Report report = make_report(with_lost(1));
  EXPECT_EQ(report.verdict.state, Verdict::State::broken);
  EXPECT_THAT(report.verdict.text,
              AllOf(StartsWith("mixed_float16 stopped at step 7: CUDA launch: unspecified launch "
                               "failure."),
                    Not(HasSubstr("does not train"))));
  EXPECT_FALSE(report.cure);
  EXPECT_STREQ(lane_verdict(report.lanes[1]), "lost");
  EXPECT_STREQ(lane_verdict(report.lanes[0]), "reference");

  const auto json = nlohmann::json::parse(report_json(report));
  EXPECT_EQ(json["lanes"][1]["lost"]["step"], 7);
  EXPECT_EQ(json["lanes"][1]["lost"]["why"], "CUDA launch: unspecified launch failure");
  EXPECT_TRUE(json["lanes"][0]["lost"].is_null());
  EXPECT_THAT(report_markdown(report), HasSubstr("| `mixed_float16` | lost |"));
  EXPECT_THAT(report_html(report), HasSubstr(">lost<"));
}

TEST(LaneLost, TheReferenceMayBe) {
  const Report report = make_report(with_lost(0));
  EXPECT_THAT(report.verdict.text, AllOf(StartsWith("float32 stopped at step 7: "),
                                         HasSubstr("mixed_float16 is healthy: final loss "),
                                         Not(HasSubstr("that of float32"))));
  EXPECT_STREQ(lane_verdict(report.lanes[0]), "lost");
}

// A problem with the format of another lane comes first: the run is about that.
TEST(LaneLost, DoesNotHideWhatPrecisionDid) {
  RunView run = make_run(hot_spec());
  const std::string before = make_report(run).verdict.headline;
  run.set_lost(0, {7, "out of memory"});
  const Report report = make_report(run);
  EXPECT_EQ(report.verdict.headline, before);
  EXPECT_THAT(report.verdict.text, HasSubstr("stopped at step 7: out of memory."));
  const std::vector<Finding> findings = run_rules(run);
  EXPECT_EQ(default_lane(run, findings), 1) << "whom to advise";
  EXPECT_TRUE(recommend(run, findings, 1));
}

}  // namespace
}  // namespace halfscope::test
