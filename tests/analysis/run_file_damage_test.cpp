// SPDX-License-Identifier: MIT
// Files that are not run files, no longer run files, or run files of another time: one Error or
// a view that makes sense, never anything else.
#include <gmock/gmock.h>

#include <random>
#include <string>

#include "analysis/proof_file.h"
#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "analysis/sqlite.h"
#include "core/error.h"
#include "tests/analysis/long_run.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using testing::HasSubstr;

std::string sample_file_bytes(int64_t steps) {
  const TemporaryFolder folder;
  {
    Recorder recorder(folder / "run.hscope");
    send_run(recorder, sample_info(), steps);
  }
  return read_text(folder / "run.hscope");
}

/// Returns the Error from opening `file`; fails the test if there is none.
Error open_error(const fs::path& file) {
  try {
    RunView::open(file);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string()));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    return error;
  }
  ADD_FAILURE() << "no Error came";
  return Error("");
}

/// True if it opened. Anything but a view or an Error fails the test (or crashes it).
bool opens(const fs::path& file) {
  try {
    const RunView run = RunView::open(file);
    for (int lane = 0; lane < run.lane_count(); ++lane) {
      for (const SiteInfo& site : run.lane(lane).sites) {
        TensorStats sum;
        for (const StatsWindow& window : run.windows(lane, site.order)) sum.merge(window.stats);
        EXPECT_EQ(sum.n, run.total(lane, site.order).n);
        EXPECT_EQ(sum.exponents, run.total(lane, site.order).exponents);
      }
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(DamagedRun, NotARunFile) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  EXPECT_THAT(open_error(file).what(), HasSubstr("file not found"));
  EXPECT_EQ(open_error(file).kind(), ErrorKind::runtime);
  EXPECT_EQ(open_error(folder.path()).kind(), ErrorKind::usage);

  write_text(file, "");
  EXPECT_THAT(open_error(file).what(), HasSubstr("contain a run yet"));
  for (const std::string& text : {std::string("x"), std::string(5000, 'x')}) {
    write_text(file, text);
    EXPECT_THAT(open_error(file).what(), HasSubstr("not a run file"));
    EXPECT_EQ(open_error(file).kind(), ErrorKind::usage);
    EXPECT_EQ(read_text(file), text);
  }
}

TEST(DamagedRun, AnotherProgramsDatabase) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  write_text(file, "");
  {
    sqlite::Database database(file, sqlite::Access::read_write);
    database.execute("CREATE TABLE t(x)");
  }
  EXPECT_THAT(open_error(file).what(), HasSubstr("not a run file"));
  EXPECT_EQ(open_error(file).kind(), ErrorKind::usage);
}

TEST(DamagedRun, NewerSchema) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  write_text(file, sample_file_bytes(1));
  sqlite::Database(file, sqlite::Access::read_write).execute("PRAGMA user_version=8");
  const Error error = open_error(file);
  EXPECT_THAT(error.what(), HasSubstr("newer format 8"));
  EXPECT_THAT(error.hint(), HasSubstr("update"));
}

TEST(DamagedRun, RowsThatMakeNoSense) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  const std::string bytes = sample_file_bytes(2);
  for (const std::string& sql : std::initializer_list<std::string>{
           "UPDATE windows SET stats=7",
           "UPDATE windows SET stats=x''",
           "UPDATE windows SET stats=x'80'",
           "UPDATE windows SET stats=substr(stats, 1, length(stats) - 1)",
           "UPDATE windows SET stats=CAST(stats || x'00' AS BLOB)",
           "UPDATE windows SET stats=CAST(x'00' || stats AS BLOB)",
           "UPDATE windows SET step=-1 WHERE step=0",
           "UPDATE windows SET step=9223372036854775807 WHERE step=1",
           "UPDATE windows SET step_count=2 WHERE step=0",
           "UPDATE windows SET step_count=0",
           "UPDATE windows SET step_count=-1",
           "UPDATE windows SET step_count='many'",
           "INSERT INTO meta VALUES('lost_lanes', 'all of them')",
           "INSERT INTO meta VALUES('lost_lanes', '[7]')",
           "INSERT INTO meta VALUES('lost_lanes', '[{\"lane\":0,\"step\":3}]')",
           "INSERT INTO meta VALUES('lost_lanes', '[{\"lane\":9,\"step\":3,\"why\":\"\"}]')",
           "INSERT INTO meta VALUES('lost_lanes', '[{\"lane\":0,\"step\":-3,\"why\":\"\"}]')",
           "UPDATE kernels SET lane=2",
           "UPDATE kernels SET site=6 WHERE site=2",
           "UPDATE kernels SET differing=n+1",
           "UPDATE kernels SET worst=n",
           "UPDATE kernels SET worst=NULL",
           "UPDATE kernels SET beyond=-1 WHERE site=1",
           "UPDATE kernels SET max_ulps=-1",
           "UPDATE kernels SET explained=sampled+1",
           "UPDATE kernels SET n='many'",
           "UPDATE sums SET lane=2",
           "UPDATE sums SET site=6 WHERE site=2",
           "UPDATE sums SET accumulation='sums'",
           "UPDATE sums SET swamped=products+1",
           "UPDATE sums SET overflowed=sums+1, first_overflow=0",
           "UPDATE sums SET first_overflow=NULL",
           "UPDATE sums SET products=-1, swamped=-1",
           "UPDATE sums SET largest='much'",
           "UPDATE errors SET lane=0",
           "UPDATE errors SET lane=2",
           "UPDATE errors SET site=6 WHERE site=2",
           "UPDATE errors SET other_lane=-1",
           "UPDATE errors SET other_site=6",
           "UPDATE errors SET step=-1",
           "UPDATE errors SET n=-1",
           "UPDATE errors SET n=1",
           "UPDATE errors SET sign_flips=9223372036854775807",
           "UPDATE errors SET total='much'",
           "UPDATE errors SET ulps=x'1a01'",
           "UPDATE errors SET ulps=7",
           "INSERT INTO proofs VALUES(2, '{}')",
           "INSERT INTO proofs VALUES(0, '{')",
           "INSERT INTO proofs VALUES(0, x'7b7d')",
           "UPDATE meta SET value='[1]' WHERE key='settings'",
           "UPDATE meta SET value='--lr' WHERE key='settings'",
           "DELETE FROM meta WHERE key='settings'",
           "DELETE FROM meta WHERE key='status'",
           "UPDATE steps SET learning_rate='fast'",
           "UPDATE steps SET lane=4294967296 WHERE lane=0",
           "UPDATE steps SET step=-1 WHERE step=0",
           "UPDATE steps SET first_bad=6",
           "UPDATE steps SET first_bad=-1",
           "UPDATE steps SET skipped='no'",
           "UPDATE evals SET lane=9 WHERE lane=1",
           "UPDATE lanes SET lane=7 WHERE lane=1",
           "UPDATE layers SET layer=7 WHERE layer=1",
           "UPDATE layers SET inputs='[1]'",
           "UPDATE layers SET inputs='['",
           "UPDATE layers SET read='fp99'",
           "UPDATE layers SET parameters=-5",
           "UPDATE sites SET site=9 WHERE site=3",
           "UPDATE sites SET role='hero'",
           "UPDATE sites SET phase='moon'",
           "UPDATE sites SET format=''",
           "UPDATE sites SET shape='{}'",
           "UPDATE sites SET shape='[-1]'",
           "UPDATE sites SET shape='[1e99]'",
           "UPDATE sites SET path=x'00'",
           "UPDATE meta SET value='sleeping' WHERE key='status'",
           "UPDATE meta SET value='8x' WHERE key='threads'",
           "UPDATE meta SET value='99999999999999999999' WHERE key='seed'",
           "DELETE FROM meta WHERE key='model'",
           "DROP TABLE windows",
           "DROP TABLE errors",
           "DROP TABLE proofs",
           "ALTER TABLE lanes RENAME COLUMN loss_scale TO scale",
           "ALTER TABLE steps RENAME COLUMN loss TO lost",
           "PRAGMA user_version=0",
       }) {
    write_text(file, bytes);
    sqlite::Database database(file, sqlite::Access::read_write);
    database.execute(("PRAGMA synchronous=OFF;" + sql).c_str());
    EXPECT_THAT(open_error(file).what(), HasSubstr("damaged")) << sql;
  }
}

TEST(DamagedRun, CutOffAnywhere) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  const std::string bytes = sample_file_bytes(3);
  const size_t stride = bytes.size() / 150 + 1;
  for (size_t size = 0; size < bytes.size(); size += stride) {
    write_text(file, bytes.substr(0, size));
    EXPECT_FALSE(opens(file)) << size;
  }
  write_text(file, bytes);
  EXPECT_TRUE(opens(file));
}

/// A file in which windows have been merged, with errors and a proof.
std::string long_file_bytes() {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const LongRun run{.every = 1, .events = 50};
  {
    Recorder recorder(file, {.limits = kFewWindows});
    recorder.begin(long_info(run));
    for (int64_t step = 0; step < 200; ++step) {
      if (step % 10 == 0) {
        SiteError error = sample_error(1, step, 1);
        recorder.error(1, error);
      }
      send_long(recorder, run, step, 1);
    }
    recorder.end(RunEnd::complete);
  }
  store_proof(file, 1, R"({"loss": 0.5})");
  return read_text(file);
}

TEST(DamagedRun, FlippedBytes) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  for (const std::string& bytes : {sample_file_bytes(3), long_file_bytes()}) {
    write_text(file, bytes);
    ASSERT_TRUE(opens(file));
    std::mt19937 random(1);
    int opened = 0;
    constexpr int kRounds = 1200;
    for (int round = 0; round < kRounds; ++round) {
      std::string damaged = bytes;
      const int flips = 1 + static_cast<int>(random() % 8);
      for (int i = 0; i < flips; ++i) {
        size_t place = random() % bytes.size();
        // Every second time within a page's header and cell pointers, which define its structure.
        if (round % 2 == 0) place = place / 4096 * 4096 + random() % 160;
        if (place >= bytes.size()) continue;
        damaged[place] = static_cast<char>(random());
      }
      write_text(file, damaged);
      if (opens(file)) ++opened;
    }
    // Most flips hit bytes that cannot be checked (a counter's value, unused space).
    EXPECT_GT(opened, 0);
    EXPECT_LT(opened, kRounds);
  }
}

/// SQLite does not check these bytes, so only our own checks can find the damage.
TEST(DamagedRun, ScrambledStatistics) {
  const TemporaryFolder folder;
  const fs::path file = folder / "x.hscope";
  write_text(file, long_file_bytes());
  std::vector<uint8_t> good;
  sqlite::Database database(file, sqlite::Access::read_write);
  database.execute("PRAGMA synchronous=OFF");
  {
    sqlite::Statement select(database, "SELECT stats FROM windows WHERE step=0");
    ASSERT_TRUE(select.step());
    good.assign(select.blob(0).begin(), select.blob(0).end());
  }
  std::mt19937 random(3);
  int opened = 0;
  constexpr int kRounds = 1000;
  sqlite::Statement update(database, "UPDATE windows SET stats=?1 WHERE step=0");
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint8_t> damaged = good;
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1u << random() % 8);
    }
    if (round % 10 == 0) damaged.resize(random() % damaged.size());
    update.bind(1, std::span<const uint8_t>(damaged));
    update.run();
    if (opens(file)) ++opened;
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, kRounds);
}

TEST(DamagedRun, FlippedOrCutWal) {
  const TemporaryFolder source;
  write_killed_run(source / "run.hscope", 6);
  const std::string bytes = read_text(source / "run.hscope");
  const std::string wal = read_text(source / "run.hscope-wal");
  ASSERT_GT(wal.size(), 10'000u);
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const TemporaryFolder folder;
    write_text(folder / "run.hscope", bytes);
    std::string damaged = wal;
    if (round % 2 == 0) {
      damaged.resize(random() % wal.size());
    } else {
      damaged[random() % wal.size()] ^= static_cast<char>(1 + random() % 255);
    }
    write_text(folder / "run.hscope-wal", damaged);
    // The WAL's checksums show which steps are complete, so the reader gets complete steps or no
    // run.
    try {
      EXPECT_LE(expect_whole_steps(RunView::open(folder / "run.hscope")), 6);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace halfscope
