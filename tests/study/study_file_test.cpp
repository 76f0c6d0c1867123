// SPDX-License-Identifier: MIT
// The study file: what is written is read again, and rows are judged as their definition says.
#include "analysis/study/study_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>

#include "analysis/recorder.h"
#include "analysis/study/study_schema.h"
#include "analysis/study/trial_file.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

StudyInfo sample_study() {
  return {.name = "a study",
          .json = "{\"axes\": {}}",
          .version = "1.2",
          .baseline = "float32",
          .tolerance = 0.05,
          .axes = {{"plan", {"fp16", "bf16"}}, {"seed", {"1", "2"}}}};
}

/// Four trials and two baselines.
std::vector<TrialSpec> sample_specs() {
  std::vector<TrialSpec> specs;
  for (const auto& [hash, places, base] :
       std::vector<std::tuple<std::string, std::vector<int>, std::optional<int>>>{
           {"a", {0, 0}, 4},
           {"b", {0, 1}, 5},
           {"c", {1, 0}, 4},
           {"d", {1, 1}, 5},
           {"e", {-1, 0}, {}},
           {"f", {-1, 1}, {}}}) {
    specs.push_back({.hash = hash,
                     .baseline = !base,
                     .places = places,
                     .base = base,
                     .command = "halfscope train --seed 1",
                     .run = "trials/" + hash + ".hscope"});
  }
  return specs;
}

TrialResult done(double loss, std::vector<CurvePoint> curve = {{0.0F, 2.0F}}) {
  return {.status = TrialStatus::done, .steps = 100, .loss = loss, .curve = std::move(curve)};
}

std::string error_of(const std::filesystem::path& file) {
  try {
    StudyView::open(file);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void execute_sql(const std::filesystem::path& file, const char* sql) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &handle), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(handle);
}

std::string words_of(const std::string& text) {
  std::string words;
  for (const char c : text) {
    if (c == ' ' || c == '\n') {
      if (!words.empty() && words.back() != ' ') words += ' ';
    } else {
      words += c;
    }
  }
  return words;
}

TEST(StudyFile, ReturnsWhatWasWritten) {
  const TemporaryFolder folder;
  TrialResult all{.status = TrialStatus::done,
                  .error = "stopped",
                  .steps = 90,
                  .skipped = 7,
                  .loss = 0.25,
                  .test_loss = kInf,
                  .accuracy = 0.5,
                  .first_bad = FirstBad{12, "conv2", "activation"},
                  .cause = "forward_overflow",
                  .cause_layer = "conv2",
                  .headline = "conv2 overflows",
                  .bits = 17.5,
                  .curve = {{0.0F, 2.5F}, {89.0F, -1.0F / 0.0F}},
                  .seconds = 1.5,
                  .worker = "local 2"};
  {
    StudyFile file(folder / "study.sqlite", sample_study(), sample_specs());
    file.write(1, all);
    file.write(2, {.status = TrialStatus::failed, .error = "out of memory"});
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "study.sqlite-wal")) << "one plain file";
  const StudyView view = StudyView::open(folder.path());
  EXPECT_EQ(view.info(), sample_study());
  ASSERT_EQ(view.trials().size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const TrialSpec wanted = sample_specs()[i];
    const TrialRow& row = view.trials()[i];
    EXPECT_EQ(row.trial, static_cast<int>(i));
    EXPECT_EQ(row.hash, wanted.hash);
    EXPECT_EQ(row.baseline, wanted.baseline);
    EXPECT_EQ(row.places, wanted.places);
    EXPECT_EQ(row.base, wanted.base);
    EXPECT_EQ(row.command, wanted.command);
    EXPECT_EQ(row.run, wanted.run);
  }
  const TrialRow& row = view.trials()[1];
  EXPECT_EQ(row.status, TrialStatus::done);
  EXPECT_EQ(row.error, "stopped");
  EXPECT_EQ(row.steps, 90);
  EXPECT_EQ(row.skipped, 7);
  EXPECT_EQ(row.loss, 0.25);
  EXPECT_EQ(row.test_loss, kInf);
  EXPECT_EQ(row.accuracy, 0.5);
  ASSERT_TRUE(row.first_bad);
  EXPECT_EQ(row.first_bad->step, 12);
  EXPECT_EQ(row.first_bad->layer, "conv2");
  EXPECT_EQ(row.first_bad->role, "activation");
  EXPECT_EQ(row.cause, "forward_overflow");
  EXPECT_EQ(row.cause_layer, "conv2");
  EXPECT_EQ(row.headline, "conv2 overflows");
  EXPECT_EQ(row.bits, 17.5);
  ASSERT_EQ(row.curve.size(), 2u);
  EXPECT_EQ(row.curve[0].loss, 2.5F);
  EXPECT_EQ(row.curve[1].step, 89.0F);
  EXPECT_EQ(row.curve[1].loss, -1.0F / 0.0F);
  EXPECT_EQ(row.seconds, 1.5);
  EXPECT_EQ(row.worker, "local 2");
  EXPECT_EQ(view.trials()[0].status, TrialStatus::waiting);
  EXPECT_TRUE(std::isnan(view.trials()[0].loss));
  EXPECT_EQ(view.trials()[2].status, TrialStatus::failed);
  EXPECT_EQ(view.trials()[2].error, "out of memory");
  EXPECT_EQ(view.plan(view.trials()[3]), "bf16");
  EXPECT_EQ(view.plan(view.trials()[4]), "float32");
  EXPECT_EQ(view.value(view.trials()[4], 1), "1");
  EXPECT_EQ(view.value(view.trials()[4], 0), "");
}

TEST(StudyFile, ShowsResultsAtACommitAndLosesNoneOfThem) {
  const TemporaryFolder folder;
  StudyFile file(folder / "study.sqlite", sample_study(), sample_specs());
  file.commit();
  file.write(0, done(1.0));
  EXPECT_EQ(StudyView::open(folder.path()).count(TrialStatus::done), 0u);
  file.commit();
  EXPECT_EQ(StudyView::open(folder.path()).count(TrialStatus::done), 1u);
}

TEST(StudyFile, AnotherWriterIsRefusedAndChangesNothing) {
  const TemporaryFolder folder;
  StudyFile file(folder / "study.sqlite", sample_study(), sample_specs());
  file.write(0, done(1.0));
  file.commit();
  EXPECT_THROW(StudyFile(folder / "study.sqlite", sample_study(), sample_specs()), Error);
  EXPECT_EQ(StudyView::open(folder.path()).count(TrialStatus::done), 1u);
}

// The old contents can be read, and nobody else writes, before they are replaced.
TEST(StudyFile, IsReadUnderItsLock) {
  const TemporaryFolder folder;
  const auto path = folder / "study.sqlite";
  const auto open = [&](const std::function<void()>& before) {
    const StudyFile file(path, sample_study(), sample_specs(), before);
  };
  size_t calls = 0;
  open([&] {
    ++calls;
    EXPECT_EQ(StudyView::open(path).trials().size(), 6u) << "a new file is a study";
    EXPECT_EQ(StudyView::open(path).count(TrialStatus::waiting), 6u);
  });
  {
    StudyFile file(path, sample_study(), sample_specs());
    file.write(0, done(1.0));
  }
  EXPECT_THROW(open([] { throw Error("another study"); }), Error);
  open([&] {
    ++calls;
    EXPECT_EQ(StudyView::open(path).count(TrialStatus::done), 1u) << "not replaced yet";
    EXPECT_THROW(open([] { ADD_FAILURE() << "two writers"; }), Error);
    EXPECT_EQ(StudyView::open(path).count(TrialStatus::done), 1u);
  });
  EXPECT_EQ(calls, 2u);
  EXPECT_EQ(StudyView::open(path).count(TrialStatus::done), 0u);
}

// By hand: gap = (loss - base) / base, but at least 1% of the first loss of the base, 2, below.
TEST(StudyView, JudgesTrialsByTheirBaseline) {
  std::vector<TrialRow> rows(6);
  const std::vector<TrialSpec> specs = sample_specs();
  for (size_t i = 0; i < 6; ++i) static_cast<TrialSpec&>(rows[i]) = specs[i];
  const auto set = [&rows](size_t i, const TrialResult& result) {
    static_cast<TrialResult&>(rows[i]) = result;
  };
  set(0, done(0.42));   // 5% above 0.4
  set(1, done(0.002));  // base 0.001: (0.002 - 0.001) / 0.02
  set(2, done(0.44));   // 10% above
  set(3, done(kNan));
  set(4, done(0.4));
  set(5, done(0.001));
  const StudyView view(sample_study(), rows);
  EXPECT_NEAR(view.trials()[0].gap, 0.05, 1e-12);
  EXPECT_NEAR(view.trials()[1].gap, 0.05, 1e-12);
  EXPECT_NEAR(view.trials()[2].gap, 0.1, 1e-12);
  EXPECT_TRUE(std::isnan(view.trials()[3].gap));
  EXPECT_TRUE(std::isnan(view.trials()[4].gap));
  EXPECT_FALSE(view.trials()[1].fails);
  EXPECT_TRUE(view.trials()[2].fails);
  EXPECT_EQ(view.trials()[2].why, "its loss is 10% above the baseline's");
  EXPECT_TRUE(view.trials()[3].fails);
  EXPECT_EQ(view.trials()[3].why, "its loss is not finite");
  EXPECT_FALSE(view.trials()[4].fails);

  set(2, {.status = TrialStatus::failed, .error = "out of memory"});
  set(0, {.status = TrialStatus::done, .error = "the loss scale is 0", .loss = 0.4});
  set(4, {});  // no baseline yet
  set(3, done(1e6));
  set(5, {.status = TrialStatus::failed});
  const StudyView other(sample_study(), rows);
  EXPECT_FALSE(other.trials()[2].fails) << "it did not train";
  EXPECT_TRUE(other.trials()[0].fails);
  EXPECT_EQ(other.trials()[0].why, "its training stopped: the loss scale is 0");
  EXPECT_FALSE(other.trials()[3].fails) << "nothing to compare with";
}

TEST(StudyView, RefusesPlacesThatDoNotExist) {
  for (const std::vector<int>& places : std::vector<std::vector<int>>{{0}, {0, 2}, {-2, 0}}) {
    std::vector<TrialRow> rows(1);
    rows[0].places = places;
    EXPECT_THROW(StudyView(sample_study(), rows), Error);
  }
  std::vector<TrialRow> rows(1);
  rows[0].places = {0, 0};
  rows[0].base = 1;
  EXPECT_THROW(StudyView(sample_study(), rows), Error);
}

TEST(StudyView, SaysWhatIsWrongWithAFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder.path()), HasSubstr("file not found"));
  std::ofstream(folder / "text.sqlite") << std::string(2000, 'x');
  EXPECT_THAT(error_of(folder / "text.sqlite"), HasSubstr("is not a study file"));
  { const Recorder run(folder / "unused.hscope"); }
  const auto file = folder / "study.sqlite";
  { const StudyFile study(file, sample_study(), sample_specs()); }
  EXPECT_TRUE(is_study(file));
  EXPECT_TRUE(is_study(folder.path()));
  EXPECT_FALSE(is_study(folder / "text.sqlite"));
  EXPECT_FALSE(is_study(folder / "none"));
  execute_sql(file, "UPDATE trials SET places='[0,9]' WHERE trial=2");
  EXPECT_THAT(error_of(file), HasSubstr("does not fit its axes"));
  execute_sql(file, "UPDATE trials SET places='[0,1]', status='odd' WHERE trial=2");
  EXPECT_THAT(error_of(file), HasSubstr("is damaged"));
  execute_sql(file, "UPDATE trials SET status='done', curve=x'00' WHERE trial=2");
  EXPECT_THAT(error_of(file), HasSubstr("is damaged"));
  execute_sql(file, "DELETE FROM trials WHERE trial=2");
  EXPECT_THAT(error_of(file), HasSubstr("is damaged"));
  execute_sql(file, "DROP TABLE axes");
  EXPECT_THAT(error_of(file), HasSubstr("is damaged"));
  execute_sql(file, "PRAGMA user_version=2");
  EXPECT_THAT(error_of(file), HasSubstr("has the newer format 2"));
}

TEST(StudySchema, IsTheDocumentedOne) {
  std::ifstream stream(HALFSCOPE_SOURCE_DIR "/docs/reference/sweep.md");
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_THAT(words_of(page), HasSubstr(words_of(kStudySchemaSql)));
}

TEST(TrialJson, ReturnsWhatWasWritten) {
  const TrialResult result{.status = TrialStatus::done,
                           .loss = kNan,
                           .test_loss = -kInf,
                           .accuracy = 0.1,
                           .first_bad = FirstBad{3, "a\"b\n", "weight"},
                           .bits = 1.0 / 3.0,
                           .curve = {{0.0F, 0.1F}, {1.0F, 1.0F / 0.0F}}};
  const std::string text = trial_json("0123", result);
  EXPECT_EQ(text.find('\n'), std::string::npos) << "one line";
  EXPECT_FALSE(parse_trial("0124", text)) << "another trial's";
  EXPECT_FALSE(parse_trial("0123", text.substr(0, text.size() / 2)));
  EXPECT_FALSE(parse_trial("0123", "[]"));
  const std::optional<TrialResult> read = parse_trial("0123", text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->status, TrialStatus::done);
  EXPECT_TRUE(std::isnan(read->loss));
  EXPECT_EQ(read->test_loss, -kInf);
  EXPECT_EQ(read->accuracy, 0.1);
  EXPECT_EQ(read->first_bad->layer, "a\"b\n");
  EXPECT_EQ(read->bits, 1.0 / 3.0);
  ASSERT_EQ(read->curve.size(), 2u);
  EXPECT_EQ(read->curve[0].loss, 0.1F);
  EXPECT_EQ(read->curve[1].loss, 1.0F / 0.0F);
}

}  // namespace
}  // namespace halfscope
