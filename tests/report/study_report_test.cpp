// SPDX-License-Identifier: MIT
// The reports of a study: well-formed, self-contained, the same bytes from the same results, and
// safe whatever names contain.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/study/study_facts.h"
#include "tests/report/html_fault.h"
#include "tests/report/study_fixtures.h"

namespace halfscope::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string page_of(const StudyView& study, const std::string& folder = "") {
  return study_html(study, make_study_facts(study), folder);
}

/// Unlike HasSubstr it does not print a whole page when it fails.
testing::AssertionResult has(const std::string& page, const std::string& text) {
  if (page.find(text) != std::string::npos) return testing::AssertionSuccess() << "has " << text;
  return testing::AssertionFailure() << "lacks " << text;
}

StudyView only_baselines() {
  return made_study({"a"}, 4, [](TrialRow& trial, int plan, int) {
    if (plan < 0) finish_trial(trial, 1.0, 32.0);
  });
}

StudyView all_nan() {
  return made_study({"a", "b"}, 3, [](TrialRow& trial, int, int) {
    finish_trial(trial, std::nan(""), 16.0);
    for (CurvePoint& point : trial.curve) point.loss = std::nanf("");
  });
}

constexpr const char* kHostile = "</pre><script>alert(\"1\")</script>&'\x1b[31m";

StudyView hostile_study() {
  return made_study({kHostile, "javascript:alert(1)"}, 2, [](TrialRow& trial, int plan, int) {
    finish_trial(trial, plan < 0 ? 1.0 : 3.0, 16.0);
    trial.first_bad = {3, kHostile, kHostile};
    trial.cause = "forward_overflow";
    trial.cause_layer = kHostile;
    trial.command = kHostile;
    trial.run = "javascript:alert(1)//\"><b>";
  });
}

TEST(StudyHtml, IsWellFormedAndSelfContained) {
  const StudyView studies[] = {sample_study(),   partial_study(0), partial_study(3),
                               only_baselines(), all_nan(),        StudyView({}, {})};
  for (const StudyView& study : studies) {
    const std::string page = page_of(study);
    EXPECT_EQ(html_fault(page, "./trials/"), "");
    for (const char* word : {"://", "src=", "url(", "@import", "<link", "<img", "fetch("}) {
      EXPECT_FALSE(has(page, word));
    }
    EXPECT_EQ(page.find("<script"), page.rfind("<script"));
    EXPECT_TRUE(has(page, "default-src 'none'"));
    EXPECT_FALSE(has(page, "nan%")) << "no drawing at a place that is not a number";
    EXPECT_FALSE(has(page, "d=\"Mnan"));
    EXPECT_FALSE(has(page, "inf\""));
  }
}

TEST(StudyHtml, BeginsWithTheHeadlineAndHasEverySection) {
  const StudyView study = sample_study();
  const StudyFacts facts = make_study_facts(study);
  const std::string page = study_html(study, facts, "");
  EXPECT_TRUE(has(page, "<h1>" + facts.verdict.headline + "</h1>"));
  for (const char* id : {"seeds", "cost", "losses", "first", "trials", "definitions"}) {
    EXPECT_TRUE(has(page, std::string(" id=\"") + id + "\""));
  }
  EXPECT_TRUE(has(page, "70% (39.7% to 89.2%)"));
  EXPECT_TRUE(has(page, "seed 1: fails, conv2 overflows; gap not finite"));
  EXPECT_TRUE(has(page, "<td class=\"n\">90%</td>")) << "accuracies, as in reports of runs";
  // A gap that is not finite is no ordinary point at the top of the axis.
  EXPECT_TRUE(has(page, "<span style=\"top:5.0%\">not finite</span>"));
  EXPECT_TRUE(has(page, "<i class=\"up\" style=\"left:"));
  EXPECT_TRUE(has(page, "halfscope train --plan mixed_float16 --seed 1"));
  EXPECT_TRUE(has(page, "href=\"./trials/0000000000002000.hscope\""));
  EXPECT_TRUE(
      has(page_of(study, "../my study/"), "href=\"../my%20study/trials/0000000000002000.hscope\""));
}

// Labels are at numbers of bits that formats have, wherever the axis ends; a cell is a square.
TEST(StudyHtml, LabelsOfBitsAndCells) {
  const StudyView study = made_study({"bfloat16"}, 4, [](TrialRow& trial, int plan, int seed) {
    const bool gone = plan >= 0 && seed > 0;
    finish_trial(trial, gone ? std::nan("") : 1.0, plan < 0 ? 32.0 : 16.0);
  });
  const std::string page = study_html(study, make_study_facts(study), "");
  for (const char* label : {">16 bits<", ">20<", ">32<"}) EXPECT_THAT(page, HasSubstr(label));
  EXPECT_THAT(page, Not(HasSubstr(">33"))) << "there are no 33-bit numbers";
  EXPECT_THAT(page, HasSubstr("style=\"max-width:104px\"")) << "4 seeds of 26 pixels";
  EXPECT_THAT(page, HasSubstr("<i class=\"up\"")) << "a median that is not finite has its own mark";
}

TEST(StudyHtml, FewSquaresLeaveTheirRoomToNames) {
  for (const int seeds : {4, 10}) {
    const StudyView study =
        made_study({"a"}, seeds, [](TrialRow& trial, int, int) { finish_trial(trial, 1.0, 16.0); });
    const std::string page = page_of(study);
    EXPECT_EQ(html_fault(page, "./trials/"), "");
    EXPECT_EQ(page.find("class=\"heat few\"") != std::string::npos, seeds == 4);
    EXPECT_EQ(page.find("class=\"strip\" style=\"min-width:104px\"") != std::string::npos,
              seeds == 4);
  }
}

TEST(StudyHtml, PointsThatAreCloseShareAShortLabel) {
  // Seven plans at the same place. The one that fails is drawn first, behind the others.
  const StudyView study =
      made_study({"a", "b", "c", "d", "e", "f", "g"}, 3, [](TrialRow& trial, int plan, int seed) {
        finish_trial(trial, plan == 6 && seed == 0 ? 1.5 : 1.0, plan < 0 ? 32.0 : 16.0);
      });
  const std::string page = page_of(study);
  EXPECT_THAT(page, HasSubstr(">2, 3, 4, 5 and 3 more</span>"));
  const std::string chart = page.substr(page.find("class=\"plot pareto\""));
  EXPECT_LT(chart.find("<i class=\"fail\" style"), chart.find("<i class=\"pass\" style"));
}

TEST(StudyHtml, HasTheSameBytesWhoeverTrainedTheTrials) {
  const StudyView study = sample_study();
  std::vector<TrialRow> rows(study.trials().begin(), study.trials().end());
  for (TrialRow& row : rows) {
    row.seconds = 3.0 * row.trial;
    row.worker = "host:" + std::to_string(row.trial);
  }
  const StudyView other(study.info(), rows);
  const StudyFacts facts = make_study_facts(study), again = make_study_facts(other);
  EXPECT_EQ(study_html(study, facts, ""), study_html(other, again, ""));
  EXPECT_EQ(study_json(study, facts), study_json(other, again));
  EXPECT_EQ(study_csv(study, facts), study_csv(other, again));
  EXPECT_EQ(study_markdown(study, facts), study_markdown(other, again));
}

TEST(StudyHtml, HostileNamesAreText) {
  const StudyView study = hostile_study();
  const std::string page = page_of(study);
  EXPECT_EQ(html_fault(page, "./javascript"), "");
  EXPECT_FALSE(has(page, "<script>alert"));
  EXPECT_FALSE(has(page, "href=\"javascript"));
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  const StudyFacts facts = make_study_facts(study);
  const std::string markdown = study_markdown(study, facts);
  EXPECT_EQ(markdown.find('\x1b'), std::string::npos);
  EXPECT_THAT(markdown, Not(HasSubstr("<script>alert(\"1\")</script>&'\x1b")));
  EXPECT_THAT(study_json(study, facts), Not(HasSubstr("\x1b")));
}

TEST(StudyHtml, ALargeStudyStaysSmallEnoughToMail) {
  const StudyView study = made_study(
      {"a", "b", "c", "d"}, 600, [](TrialRow& trial, int, int) { finish_trial(trial, 1.0, 16.0); });
  const std::string page = page_of(study);
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_TRUE(has(page, "The first 2000 of 3000 trials."));
  EXPECT_EQ(html_fault(page, "./trials/"), "");
}

TEST(StudyMarkdown, FitsACommentAndSaysTheSame) {
  const StudyView study = sample_study();
  const StudyFacts facts = make_study_facts(study);
  const std::string text = study_markdown(study, facts);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60);
  EXPECT_THAT(text, HasSubstr("mixed\\_float16 fails in 7 of 10 seeds because conv2 overflows."));
  EXPECT_THAT(text, HasSubstr("| mixed\\_float16 | 7 of 10 | 70% (39.7% to 89.2%) | not finite |"));
  EXPECT_THAT(text, HasSubstr("| mixed\\_float16 | conv2 | activation | 7 | 43 |"));
  EXPECT_THAT(text, HasSubstr("6 of 7 failing trials"));
  const std::string summary = study_markdown_summary(study, facts);
  EXPECT_LE(std::count(summary.begin(), summary.end(), '\n'), 10);
}

TEST(StudyMarkdown, WithoutSeedsABaselineHasTheSameSettings) {
  const StudyView study = sample_study();
  StudyInfo info = study.info();
  info.axes[1].name = "batch";
  const StudyView other(info, {study.trials().begin(), study.trials().end()});
  EXPECT_THAT(study_markdown(study, make_study_facts(study)), HasSubstr("with the same seed."));
  EXPECT_THAT(study_markdown(other, make_study_facts(other)), HasSubstr("with the same settings."));
  EXPECT_THAT(study_html(other, make_study_facts(other), ""),
              HasSubstr("the baseline has the same settings and differs"));
}

TEST(StudyJson, HasTheNumbersOfTheFacts) {
  const StudyView study = sample_study();
  const nlohmann::json json = nlohmann::json::parse(study_json(study, make_study_facts(study)));
  EXPECT_EQ(json["schema"], "halfscope.study-report/1");
  EXPECT_EQ(json["trials_failing"], 7);
  EXPECT_EQ(json["groups"].size(), 4u);
  const nlohmann::json& group = json["groups"][1];
  EXPECT_EQ(group["name"], "mixed_float16");
  EXPECT_EQ(group["settings"]["plan"], "mixed_float16");
  EXPECT_EQ(group["failing_share"], 0.7);
  EXPECT_NEAR(group["interval"][1].get<double>(), 0.892208732593699, 1e-14);
  EXPECT_EQ(group["gap"], "inf");
  EXPECT_EQ(group["losses"]["median"][99], "inf");
  EXPECT_EQ(json["trials"][0]["loss"], "nan");
  EXPECT_EQ(json["trials"][0]["why"], "conv2 overflows");
  EXPECT_EQ(json["trials"][6]["gap"], 2.0);
  for (const char* key : {"seconds", "worker"}) EXPECT_FALSE(json["trials"][0].contains(key));
  const nlohmann::json partial =
      nlohmann::json::parse(study_json(partial_study(0), make_study_facts(partial_study(0))));
  EXPECT_EQ(partial["trials"][0]["status"], "waiting");
  EXPECT_TRUE(partial["trials"][0]["loss"].is_null());
  EXPECT_TRUE(partial["groups"][1]["failing_share"].is_null());
}

TEST(StudyCsv, HasARowPerTrial) {
  const StudyView study = sample_study();
  std::istringstream csv(study_csv(study, make_study_facts(study)));
  std::vector<std::string> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 41u);
  EXPECT_EQ(lines[0],
            "trial,hash,group,baseline,plan,seed,status,fails,why,steps,skipped,loss,gap,test_loss,"
            "accuracy,first_bad_step,first_bad_layer,first_bad_role,cause,cause_layer,bits,run,"
            "command");
  EXPECT_THAT(lines[1], testing::StartsWith("0,0000000000002000,mixed_float16,0,mixed_float16,1,"
                                            "done,1,conv2 overflows,100,10,nan,inf,"));
  EXPECT_THAT(lines[40], HasSubstr("float32 (baseline),1,,10,done,0,,100,0,1.09,0,"));
}

}  // namespace
}  // namespace halfscope::test
