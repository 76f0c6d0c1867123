// SPDX-License-Identifier: MIT
// rank_reduction and rank_disagreement on numbers chosen by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "analysis/rules/recommend.h"
#include "analysis/rules/rules.h"
#include "tests/report/synthetic.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<Finding> rank_findings(const RunView& run, const std::string& rule) {
  std::vector<Finding> found;
  for (const Finding& finding : run_rules(run)) {
    if (finding.rule == rule) found.push_back(finding);
  }
  return found;
}

/// A healthy run that was trained with this reduction.
RunView ranked_run(const std::string& reduce) {
  const RunView plain = make_run(healthy_spec());
  RunInfo info = plain.info();
  if (!reduce.empty()) info.settings = {"--ranks", "384", "--reduce", reduce};
  RunView run(info, plain.status());
  for (int lane = 0; lane < plain.lane_count(); ++lane) {
    for (const StepRow& row : plain.steps(lane)) run.add_step(lane, row);
  }
  return run;
}

void add_reduced(RunView& run, const std::string& site, int64_t ranks, double error, double stored,
                 int64_t broken = 0, int64_t step = 10) {
  run.add_reduction(1, {.step = step,
                        .site = run.find_site(1, site).value(),
                        .ranks = ranks,
                        .n = 1000,
                        .broken = broken,
                        .error = error,
                        .stored = stored,
                        .additions = 1000,
                        .swamped = 250});
}

TEST(RankReduction, SaysHowFarWhereAndWhatToDo) {
  RunView run = ranked_run("ring:format=bf16");
  for (const auto& [ranks, error] :
       {std::pair<int64_t, double>{2, 0.0018}, {8, 0.0034}, {96, 0.0124}, {384, 0.026}}) {
    add_reduced(run, "conv2.weight_grad", ranks, error, 0.0015);
    add_reduced(run, "fc1.weight_grad", ranks, error / 2.0, 0.0015);
  }
  const std::vector<Finding> found = rank_findings(run, "rank_reduction");
  ASSERT_EQ(found.size(), 1u);
  const Finding& finding = found[0];
  EXPECT_EQ(finding.lane, 1);
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_EQ(finding.site, "conv2.weight_grad");
  EXPECT_EQ(finding.step, 10);
  EXPECT_EQ(std::get<std::string>(finding.evidence.at("cause")), "gradient_sum");
  EXPECT_EQ(std::get<double>(finding.evidence.at("error")), 0.026);
  EXPECT_THAT(finding.mechanism,
              HasSubstr("the sum over 384 ranks makes conv2.weight_grad wrong by 2.6%"));
  EXPECT_THAT(finding.text, HasSubstr("0.18% over 2 ranks, 0.34% over 8, 1.24% over 96"));
  EXPECT_THAT(finding.text, HasSubstr("conv2 and fc1"));
  EXPECT_THAT(finding.text, HasSubstr("25% of the additions change nothing"));
  ASSERT_TRUE(finding.action.edit.reduction());
  EXPECT_EQ(reduction_text(*finding.action.edit.reduction()), "all-to-all:format=bf16");
  EXPECT_THAT(finding.action.text, HasSubstr("all-to-all:format=fp32"));
  const auto advice = recommend(run, run_rules(run), 1);
  ASSERT_TRUE(advice);
  EXPECT_THAT(advice->plan_json, HasSubstr("\"reduce\": \"all-to-all:format=bf16\""));
}

/// If storing the sum once costs as much, no other order helps.
TEST(RankReduction, AdvisesFp32WhereTheFormatItselfIsTooNarrow) {
  RunView run = ranked_run("tree:format=e5m2");
  add_reduced(run, "fc1.weight_grad", 8, 0.08, 0.06);
  const std::vector<Finding> found = rank_findings(run, "rank_reduction");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(reduction_text(found[0].action.edit.reduction().value()), "tree:format=fp32");
}

TEST(RankReduction, OverflowOnTheWayIsAWarning) {
  RunView run = ranked_run("ring:average=after");
  add_reduced(run, "fc1.weight_grad", 8, 0.0002, 0.0002, 3);
  const std::vector<Finding> found = rank_findings(run, "rank_reduction");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_THAT(found[0].mechanism, HasSubstr("3 values of fc1.weight_grad overflow"));
  EXPECT_EQ(reduction_text(found[0].action.edit.reduction().value()),
            "ring:format=fp32,average=after");
}

TEST(RankReduction, SmallErrorsAreRemarksOrNothing) {
  RunView run = ranked_run("ring:format=bf16");
  add_reduced(run, "fc1.weight_grad", 64, 0.009, 0.0015);
  const std::vector<Finding> found = rank_findings(run, "rank_reduction");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_TRUE(found[0].action.edit.empty());
  RunView right = ranked_run("ring:format=bf16");
  add_reduced(right, "fc1.weight_grad", 4, 0.003, 0.0015);
  add_reduced(right, "fc1.weight_grad", 2, 0.5, 0.0015);  // fewer ranks than in the run
  EXPECT_TRUE(rank_findings(right, "rank_reduction").empty());
}

TEST(RankDisagreement, SaysWhenHowOftenAndHowFar) {
  RunView run = ranked_run("ring:vote=one");
  run.add_ranks(1, {4, 2, 1, 0.001});
  run.add_ranks(1, {5, 2, 0, 0.004});
  run.add_ranks(1, {6, 2, 1, 0.02});
  const std::vector<Finding> found = rank_findings(run, "rank_disagreement");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[0].step, 4);
  EXPECT_EQ(std::get<std::string>(found[0].evidence.at("cause")), "rank_disagreement");
  EXPECT_THAT(found[0].text, HasSubstr("At step 4, 1 of 2 ranks skipped"));
  EXPECT_THAT(found[0].text, HasSubstr("They disagreed in 2 steps; at step 6"));
  EXPECT_THAT(found[0].text, HasSubstr("differ from rank 0's by 2%"));
  EXPECT_EQ(reduction_text(found[0].action.edit.reduction().value()), "ring");

  RunView near = ranked_run("ring:vote=one");
  near.add_ranks(1, {4, 2, 1, 0.001});
  EXPECT_EQ(rank_findings(near, "rank_disagreement").at(0).severity, Severity::warning);
  RunView lost = ranked_run("ring:vote=one");
  lost.add_ranks(1, {4, 2, 1, std::numeric_limits<double>::infinity()});
  EXPECT_THAT(rank_findings(lost, "rank_disagreement").at(0).text, HasSubstr("are NaN or infinite"));
  EXPECT_TRUE(rank_findings(ranked_run("ring:vote=one"), "rank_disagreement").empty());
}

/// One change answers both, and the plan's own word counts.
TEST(RankRules, AdviseOneReduction) {
  RunView run = ranked_run("ring:format=bf16,vote=one");
  add_reduced(run, "fc1.weight_grad", 384, 0.03, 0.0015);
  run.add_ranks(1, {4, 2, 1, 0.5});
  const auto advice = recommend(run, run_rules(run), 1);
  ASSERT_TRUE(advice);
  EXPECT_EQ(reduction_text(advice->edit.reduction().value()), "all-to-all:format=bf16");
}

}  // namespace
}  // namespace halfscope::test
