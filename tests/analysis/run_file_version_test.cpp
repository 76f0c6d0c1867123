// SPDX-License-Identifier: MIT
// Versions of run files, and contents that newer versions may have.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "analysis/memory_sink.h"
#include "analysis/proof_file.h"
#include "analysis/recorder.h"
#include "analysis/run_schema.h"
#include "analysis/run_view.h"
#include "analysis/sqlite.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using sqlite::Database;
using testing::HasSubstr;

TEST(RunFileVersion, AnotherOneIsAUsageError) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  {
    Recorder recorder(file);
    send_run(recorder, sample_info(), 1);
  }
  for (const auto& [version, problem, hint] :
       {std::tuple{3, "' has the older format 3", "record the run again"},
        {99, "' has the newer format 99", "update HalfScope"}}) {
    Database(file, sqlite::Access::read_write)
        .execute(fmt::format("PRAGMA user_version={}", version).c_str());
    const std::string before = read_text(file);
    for (const bool writes : {false, true}) {
      try {
        if (writes) {
          store_proof(file, 0, "{}");
        } else {
          RunView::open(file);
        }
        ADD_FAILURE() << "no Error came";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_THAT(error.what(), HasSubstr(file.string() + problem));
        EXPECT_EQ(error.hint(), hint);
      }
    }
    EXPECT_EQ(read_text(file), before);
  }
}

// Version 6 has the same tables, but no scores beside the accuracy.
TEST(RunFileVersion, TheOneBeforeIsReadWithoutItsScores) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  {
    Recorder recorder(file);
    recorder.begin(sample_info());
    recorder.eval(0, {.step = 2, .loss = 0.5, .accuracy = 0.75, .auc = 0.875, .mean_iou = 0.625});
    recorder.end(RunEnd::complete);
  }
  const EvalRow now = RunView::open(file).evals(0).front();
  EXPECT_EQ(now.auc, 0.875);
  EXPECT_EQ(now.mean_iou, 0.625);
  Database(file, sqlite::Access::read_write)
      .execute(
          "ALTER TABLE evals DROP COLUMN auc; ALTER TABLE evals DROP COLUMN mean_iou;"
          "PRAGMA user_version=6");
  const EvalRow before = RunView::open(file).evals(0).front();
  EXPECT_EQ(before.accuracy, 0.75);
  EXPECT_TRUE(std::isnan(before.auc));
  EXPECT_TRUE(std::isnan(before.mean_iou));
}

TEST(RunFileVersion, NewOnesSayHowOperandsAreScaled) {
  const TemporaryFolder folder;
  RunInfo info = sample_info();
  info.lanes[1].sites[0].scale = "delayed:history=16";
  {
    Recorder recorder(folder / "new.hscope");
    send_run(recorder, info, 1);
  }
  const RunView run = RunView::open(folder / "new.hscope");
  EXPECT_FALSE(run.kernels(1).empty());
  EXPECT_EQ(run.lane(1).sites[0].scale, "delayed:history=16");
  EXPECT_EQ(run.lane(0).sites[0].scale, "");
}

// A run of a newer kind is neither a damaged file nor a training.
TEST(RunFileVersion, AKindThatIsNotKnownIsToldSo) {
  const TemporaryFolder folder;
  const fs::path file = folder / "new.hscope";
  {
    Recorder recorder(file);
    send_run(recorder, sample_info(), 1);
  }
  for (const char* kind : {"training", "inference"}) {
    Database(file, sqlite::Access::read_write)
        .execute(fmt::format("INSERT OR REPLACE INTO meta VALUES('kind', '{}')", kind).c_str());
    EXPECT_EQ(RunView::open(file).info().inference, kind == std::string("inference"));
  }
  Database(file, sqlite::Access::read_write)
      .execute("UPDATE meta SET value='search' WHERE key='kind'");
  try {
    RunView::open(file);
    ADD_FAILURE() << "no Error came";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.what(), "'" + file.string() +
                                "' is a run of the kind \"search\", which this "
                                "program does not know");
    EXPECT_EQ(error.hint(), "update HalfScope");
  }
}

TEST(RunFileVersion, FactsAboutAScriptMayComeLate) {
  const TemporaryFolder folder;
  const fs::path file = folder / "new.hscope";
  RunInfo info = sample_info();
  info.observed = {"loss"};
  Recorder recorder(file);
  recorder.begin(info);
  EXPECT_EQ(RunView::open(file).info().observed, info.observed);
  recorder.observed({"loss", "scaled_step"});
  recorder.end(RunEnd::interrupted);
  EXPECT_THAT(RunView::open(file).info().observed, testing::ElementsAre("loss", "scaled_step"));
}

TEST(RunFileVersion, EvaluatedAveragesAreKnownFromTheKey) {
  const TemporaryFolder folder;
  const auto reread = [&](const RunInfo& info, const std::string& sql) {
    const fs::path file = folder / "new.hscope";
    {
      Recorder recorder(file, Recorder::Options{.force = true});
      send_run(recorder, info, 1);
    }
    if (!sql.empty()) Database(file, sqlite::Access::read_write).execute(sql.c_str());
    return RunView::open(file).info().evaluates_averages;
  };
  RunInfo info = sample_info();
  EXPECT_FALSE(reread(info, ""));
  info.evaluates_averages = true;
  EXPECT_TRUE(reread(info, ""));
  try {
    reread(info, "UPDATE meta SET value='medians' WHERE key='evaluated'");
    ADD_FAILURE() << "no Error came";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("evaluations of \"medians\""));
  }
}

}  // namespace
}  // namespace halfscope
