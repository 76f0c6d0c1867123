// SPDX-License-Identifier: MIT
// Long runs: the file stays bounded, and its windows contain exactly the sums of their steps, even
// with readers and if the writer is killed at any time.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

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

TEST(RunFileWindows, AreTheSumsOfTheirSteps) {
  constexpr int64_t kSteps = 4000;
  for (const int every : {1, 7}) {
    for (const int events : {0, 20, 1000}) {
      const TemporaryFolder folder;
      const fs::path file = folder / "run.hscope";
      const LongRun run{.every = every, .events = events};
      {
        Recorder recorder(file, {.limits = kFewWindows});
        recorder.begin(long_info(run));
        for (int64_t step = 0; step < kSteps; step += kSteps / 8) {
          send_long(recorder, run, step, kSteps / 8);
          const RunView view = RunView::open(file);
          EXPECT_EQ(view.status(), RunStatus::running);
          EXPECT_EQ(expect_long_run(view, run, kFewWindows), step + kSteps / 8);
        }
        recorder.end(RunEnd::complete);
      }
      EXPECT_EQ(expect_long_run(RunView::open(file), run, kFewWindows), kSteps);
      ASSERT_FALSE(HasFailure()) << "every " << every << ", events " << events;
    }
  }
}

/// With the limits of the contract.
TEST(RunFileWindows, TwentyThousandSteps) {
  constexpr int64_t kSteps = 20'000;
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const LongRun run{.every = 1, .events = 80, .sites = 2};
  Recorder recorder(file);
  recorder.begin(long_info(run));
  send_long(recorder, run, 0, kSteps);
  recorder.end(RunEnd::early_stop);
  const RunView view = RunView::open(file);
  EXPECT_EQ(view.status(), RunStatus::early_stop);
  EXPECT_EQ(expect_long_run(view, run, WindowList::Limits{}), kSteps);
  EXPECT_GT(view.windows(0, 0).size(), 2500u);
}

/// Only when the last lane of a step has arrived is it known whether the step is an event.
TEST(RunFileWindows, AnEventOfAnyLaneCounts) {
  const TemporaryFolder folder;
  const RunInfo info = sample_info();
  Recorder recorder(folder / "run.hscope", {.limits = {.windows = 2}});
  recorder.begin(info);
  for (int64_t step = 0; step < 40; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      StepRow row;
      row.step = step;
      row.skipped = (step == 10 && lane == 0) || (step == 20 && lane == 1);
      row.first_bad = step == 30 && lane == 1 ? 2 : -1;
      recorder.step(lane, row, sample_all_stats(info, lane, step));
    }
  }
  recorder.end(RunEnd::complete);
  const RunView view = RunView::open(folder / "run.hscope");
  for (const int64_t step : {10, 20, 30}) {
    const auto window = view.windows(0, 0).find(step);
    ASSERT_TRUE(window) << step;
    EXPECT_EQ(window->step_count, 1) << step;
    EXPECT_EQ(window->stats(), sample_stats(0, step, 0));
  }
  EXPECT_LE(view.windows(0, 0).size(), 8u);
}

TEST(RunFileWindows, OneLaneMayBeRecordedAlone) {
  const TemporaryFolder folder;
  const RunInfo info = sample_info();
  Recorder recorder(folder / "run.hscope", {.limits = kFewWindows});
  recorder.begin(info);
  for (int64_t step = 0; step < 100; ++step) {
    recorder.step(0, {.step = step}, {});
    recorder.step(1, {.step = step}, sample_all_stats(info, 1, step));
  }
  recorder.end(RunEnd::complete);
  const RunView view = RunView::open(folder / "run.hscope");
  EXPECT_TRUE(view.windows(0, 0).empty());
  EXPECT_EQ(view.total(0, 0).n, 0);
  EXPECT_GT(view.windows(1, 0).size(), 10u);
  EXPECT_EQ(view.total(1, 0).zero, 300);
}

TEST(RunFileWindows, KilledWhileTheyMerge) { kill_long_runs(30, 5); }

TEST(RunFileWindows, ReadersBesideTheWriterWhileTheyMerge) {
  constexpr int64_t kSteps = 3000;
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const LongRun run{.every = 1, .events = 50, .sites = 3};
  Recorder recorder(file, {.limits = kFewWindows});
  recorder.begin(long_info(run));
  std::atomic<bool> done{false};
  int reads = 0;
  std::thread reader([&] {
    int64_t last = 0;
    while (!done && !HasFailure()) {
      const int64_t steps = expect_long_run(RunView::open(file), run, kFewWindows);
      EXPECT_GE(steps, last);
      last = steps;
      ++reads;
    }
  });
  for (int64_t step = 0; step < kSteps; ++step) send_long(recorder, run, step, 1);
  done = true;
  reader.join();
  recorder.end(RunEnd::complete);
  EXPECT_GT(reads, 3);
  EXPECT_EQ(expect_long_run(RunView::open(file), run, kFewWindows), kSteps);
}

/// A reader keeps a transaction open for a long time. The WAL must grow meanwhile and be truncated
/// afterwards; the writer does not wait.
TEST(RunFileWindows, AReaderThatStaysDoesNotStallTheWriter) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const LongRun run{.every = 1, .events = 0, .sites = 60};
  constexpr int64_t kSteps = 4000;
  constexpr uintmax_t kWalLimit = 20'000'000;  // of the recorder
  Recorder recorder(file, {.limits = kFewWindows});
  recorder.begin(long_info(run));
  send_long(recorder, run, 0, 1);
  const auto wal_size = [&] { return fs::file_size(folder / "run.hscope-wal"); };
  int64_t step = 1;
  {
    sqlite::Database database(file, sqlite::Access::read_only);
    sqlite::Transaction snapshot(database, sqlite::Transaction::Kind::read);
    EXPECT_EQ(database.query_integer("SELECT count(*) FROM steps"), 2);
    for (; step < kSteps; ++step) {
      const auto start = std::chrono::steady_clock::now();
      send_long(recorder, run, step, 1);
      // Far less than the five seconds for which a blocked connection would wait.
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    }
    EXPECT_GT(wal_size(), kWalLimit + kWalLimit / 2) << "the snapshot did not hold";
    EXPECT_EQ(database.query_integer("SELECT count(*) FROM steps"), 2) << "nor is it one";
  }
  send_long(recorder, run, step, 5);
  EXPECT_LE(wal_size(), kWalLimit);
  recorder.end(RunEnd::complete);
  EXPECT_EQ(expect_long_run(RunView::open(file), run, kFewWindows), kSteps + 5);
}

}  // namespace
}  // namespace halfscope
