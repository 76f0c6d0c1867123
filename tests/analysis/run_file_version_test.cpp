// SPDX-License-Identifier: MIT
// Run files of versions 1, which HalfScope 0.1 wrote, to 3.
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
#include "tests/analysis/old_run_files.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using sqlite::Database;
using testing::HasSubstr;

TEST(RunFileVersion, OneIsRead) {
  const TemporaryFolder folder;
  const fs::path file = folder / "old.hscope";
  const RunView expected = sample_of_version_1();
  write_version_1(file, expected);
  const std::string before = read_text(file);
  const RunView run = RunView::open(file);
  expect_same_run(run, expected);
  EXPECT_TRUE(std::isnan(run.steps(0)[0].learning_rate));
  EXPECT_EQ(run.lane(1).loss_scale, "");
  EXPECT_TRUE(run.info().settings.empty());
  EXPECT_TRUE(run.errors(1).empty());
  EXPECT_EQ(run.proof(1), "");
  EXPECT_EQ(read_text(file), before);
}

TEST(RunFileVersion, OneIsNotUpgradedSilently) {
  const TemporaryFolder folder;
  const fs::path file = folder / "old.hscope";
  write_version_1(file, sample_of_version_1());
  const std::string before = read_text(file);
  try {
    store_proof(file, 0, "{}");
    ADD_FAILURE() << "no Error came";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr(file.string() + " has the older format 1"));
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_EQ(read_text(file), before);
}

TEST(RunFileVersion, OneIsCheckedToo) {
  const TemporaryFolder folder;
  const fs::path file = folder / "old.hscope";
  write_version_1(file, sample_of_version_1());
  const std::string bytes = read_text(file);
  for (const std::string& sql : std::initializer_list<std::string>{
           "UPDATE stats SET exponents=x'80' WHERE site=1",
           "UPDATE stats SET exponents=x'0101' || x'0101' WHERE site=1",
           "UPDATE stats SET exponents=7 WHERE site=1", "UPDATE stats SET site=site+1 WHERE site=5",
           "UPDATE stats SET exponents=x'ac02ffffffffffffffff7f' WHERE site=1",
           "UPDATE stats SET site=-1 WHERE site=0", "UPDATE stats SET lane=2 WHERE lane=1",
           "UPDATE stats SET n=-1", "UPDATE stats SET n=9223372036854775807",
           "UPDATE stats SET n='many'", "UPDATE stats SET step_count=1000000",
           "UPDATE stats SET max_abs=1e300", "UPDATE stats SET max_abs=-1",
           "UPDATE stats SET min_abs='small'", "UPDATE stats SET zero=n+1", "DROP TABLE stats"}) {
    write_text(file, bytes);
    Database(file, sqlite::Access::read_write).execute(("PRAGMA synchronous=OFF;" + sql).c_str());
    try {
      RunView::open(file);
      ADD_FAILURE() << sql;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged")) << sql;
    }
  }
}

TEST(RunFileVersion, TwoIsReadAndTakesProofs) {
  const TemporaryFolder folder;
  const fs::path file = folder / "old.hscope";
  write_version_2(file);
  const RunView run = RunView::open(file);
  EXPECT_EQ(run.lane(0).sites.size(), sample_info().lanes[0].sites.size());
  EXPECT_EQ(run.lane(0).sites[0].scale, "");
  EXPECT_EQ(run.steps(1).size(), 3u);
  EXPECT_TRUE(run.sums(1).empty());
  store_proof(file, 0, "{}");
  EXPECT_EQ(RunView::open(file).proof(0), "{}");
}

TEST(RunFileVersion, ThreeIsReadAndTakesProofs) {
  const TemporaryFolder folder;
  const fs::path file = folder / "old.hscope";
  write_version_3(file);
  const RunView run = RunView::open(file);
  EXPECT_EQ(run.steps(1).size(), 3u);
  EXPECT_FALSE(run.sums(1).empty());
  EXPECT_TRUE(run.kernels(1).empty());
  store_proof(file, 0, "{}");
  EXPECT_EQ(RunView::open(file).proof(0), "{}");
}

TEST(RunFileVersion, NewOnesSayHowOperandsAreScaled) {
  const TemporaryFolder folder;
  RunInfo info = sample_info();
  info.lanes[1].sites[0].scale = "delayed:history=16";
  {
    Recorder recorder(folder / "new.hscope");
    send_run(recorder, info, 1);
    Database database(folder / "new.hscope", sqlite::Access::read_only);
    EXPECT_EQ(check_schema(database), 4);
  }
  const RunView run = RunView::open(folder / "new.hscope");
  EXPECT_FALSE(run.kernels(1).empty());
  EXPECT_EQ(run.lane(1).sites[0].scale, "delayed:history=16");
  EXPECT_EQ(run.lane(0).sites[0].scale, "");
}

// A run of a kind that came later is no damaged file, nor a training.
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
    EXPECT_EQ(error.what(), file.string() +
                                " holds a run of the kind \"search\", which this "
                                "program does not know");
    EXPECT_EQ(error.hint(), "update HalfScope");
  }
}

/// The meta key is newer than the flag: older files say it in their settings alone.
TEST(RunFileVersion, EvaluatedAveragesAreKnownFromTheKeyOrTheSettings) {
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
  const std::string older = "DELETE FROM meta WHERE key='evaluated'";
  EXPECT_FALSE(reread(info, older));
  info.settings = {"--model", "lenet", "--ema", "0.9", "--eval-ema", "--no-errors", "--no-eval"};
  EXPECT_TRUE(reread(info, older));
  // As a value it is none.
  info.settings = {"--model", "lenet", "--ema", "0.9", "--no-errors", "--init", "--eval-ema"};
  EXPECT_FALSE(reread(info, older));
  info.settings = {"--model", "--eval-ema", "--ema", "0.9"};
  EXPECT_FALSE(reread(info, older));
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
