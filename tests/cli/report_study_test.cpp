// SPDX-License-Identifier: MIT
// `halfscope report` on a study: forms, exit codes, and what does not apply to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/study/study_file.h"
#include "tests/cli/program.h"
#include "tests/report/study_fixtures.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::text_of;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Writes the sample study into the folder "s".
void write_study(const Bench& bench, const StudyView& study) {
  std::filesystem::create_directory(bench / "s");
  const std::vector<TrialSpec> specs(study.trials().begin(), study.trials().end());
  StudyFile file(bench / "s/study.sqlite", study.info(), specs);
  for (const TrialRow& trial : study.trials()) {
    if (trial.status != TrialStatus::waiting) file.write(trial.trial, trial);
  }
  file.commit();
}

TEST(CliStudyReport, WritesEveryFormOfAFolderAndOfAFile) {
  const Bench bench;
  write_study(bench, test::sample_study());
  const Outcome printed = bench.run({"report", "s"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_THAT(printed.out, StartsWith("## HalfScope study: plans by seeds\n"));
  const Outcome files = bench.run({"report", "s/study.sqlite", "--html", "r.html", "--md", "r.md",
                                   "--json", "r.json", "--csv", "r.csv"});
  EXPECT_EQ(files.code, 0) << files.err;
  EXPECT_THAT(files.out, IsEmpty());
  EXPECT_EQ(text_of(bench / "r.md"), printed.out);
  EXPECT_EQ(nlohmann::json::parse(text_of(bench / "r.json"))["schema"], "halfscope.study-report/1");
  EXPECT_THAT(text_of(bench / "r.csv"), StartsWith("trial,hash,group,"));
  EXPECT_THAT(text_of(bench / "r.html"), HasSubstr("href=\"s/trials/0000000000002000.hscope\""));
  const Outcome inside = bench.run({"report", "s", "--html", "s/r.html"});
  EXPECT_EQ(inside.code, 0) << inside.err;
  EXPECT_THAT(text_of(bench / "s/r.html"), HasSubstr("href=\"./trials/0000000000002000.hscope\""));
  const Outcome summary = bench.run({"report", "s", "--summary"});
  EXPECT_THAT(summary.out, HasSubstr("fails in 7 of 10 seeds"));
  EXPECT_THAT(bench.run({"report", "s", "--quiet"}).out, IsEmpty());
}

TEST(CliStudyReport, RefusesWhatOnlyRunsHave) {
  const Bench bench;
  write_study(bench, test::partial_study(2));
  for (const char* flag : {"--steps", "--stats", "--tensorboard", "--junit"}) {
    const Outcome outcome = bench.run({"report", "s", flag, "out"});
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_EQ(outcome.err, std::string("halfscope: ") + flag +
                               " does not apply to a study\nhint: use it on the run file of one "
                               "trial\n");
    EXPECT_FALSE(std::filesystem::exists(bench / "out"));
  }
  EXPECT_EQ(bench.run({"report", "s", "--fail-on", "error"}).code, 2);
  EXPECT_EQ(bench.run({"report", "s", "--html", "s/study.sqlite", "--force"}).code, 2);
  EXPECT_EQ(bench.run({"report", "s", "--md", "-", "--summary"}).code, 2);
}

}  // namespace
}  // namespace halfscope
