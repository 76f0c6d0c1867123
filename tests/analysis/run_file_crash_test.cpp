// SPDX-License-Identifier: MIT
// The run file when things go wrong around it: readers beside the writer, killed writers, full
// disks, folders nobody may write to.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "analysis/sqlite.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using testing::AnyOf;
using testing::HasSubstr;

/// Starts a process that calls `work` until it is killed, kills it after `delay` and waits.
template <typename Work>
void kill_while_working(std::chrono::microseconds delay, Work work) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      work();
    } catch (...) {
    }
    ::_exit(0);
  }
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer stopped by itself";
}

/// Returns the number of complete steps, or -1 if the writer was killed before begin().
int64_t steps_left_by_a_killed_writer(const fs::path& file, RunStatus* status = nullptr) {
  try {
    const RunView run = RunView::open(file);
    if (status != nullptr) *status = run.status();
    return expect_whole_steps(run);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("contain a run yet"), HasSubstr("file not found")));
    return -1;
  }
}

TEST(RunFile, KilledWriterLeavesWholeSteps) {
  std::mt19937 random(7);
  int rounds_with_steps = 0;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const fs::path file = folder / "run.hscope";
    const std::chrono::microseconds delay(random() % 80000);
    kill_while_working(delay, [&file] {
      Recorder recorder(file);
      const RunInfo info = sample_info();
      recorder.begin(info);
      for (int64_t step = 0;; ++step) send_steps(recorder, info, step, 1);
    });
    RunStatus status = RunStatus::died;
    if (steps_left_by_a_killed_writer(file, &status) > 0) ++rounds_with_steps;
    EXPECT_EQ(status, RunStatus::died);
    // Reading again gives the same, and the file can be replaced.
    steps_left_by_a_killed_writer(file);
    Recorder recorder(file, {.force = true});
    send_run(recorder, sample_info(), 1);
  }
  EXPECT_GE(rounds_with_steps, 5);
}

TEST(RunFile, WriterKilledWhileItOpensOrCloses) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    const TemporaryFolder folder;
    const fs::path file = folder / "run.hscope";
    const std::chrono::microseconds delay(random() % 60000);
    kill_while_working(delay, [&file] {
      const RunInfo info = sample_info();
      for (;;) {
        Recorder recorder(file, {.force = true});
        recorder.begin(info);
        send_steps(recorder, info, 0, 3);
        recorder.end(RunEnd::complete);
      }
    });
    RunStatus status = RunStatus::running;
    const int64_t steps = steps_left_by_a_killed_writer(file, &status);
    EXPECT_LE(steps, 3);
    if (status == RunStatus::complete) {
      EXPECT_EQ(steps, 3);
    }
  }
}

TEST(RunFile, ReadersBesideTheWriterSeeWholeSteps) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const RunInfo info = sample_info();
  constexpr int64_t kSteps = 200;
  Recorder recorder(file);
  recorder.begin(info);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int64_t step = 0; step < kSteps; ++step) {
      send_steps(recorder, info, step, 1);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    recorder.end(RunEnd::complete);
    done = true;
  });
  int64_t last = 0;
  int reads = 0;
  while (!done) {
    const int64_t steps = expect_whole_steps(RunView::open(file));
    EXPECT_GE(steps, last);
    last = steps;
    ++reads;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  writer.join();
  EXPECT_GT(reads, 2);
  const RunView run = RunView::open(file);
  EXPECT_EQ(run.status(), RunStatus::complete);
  EXPECT_EQ(expect_whole_steps(run), kSteps);
  EXPECT_FALSE(fs::exists(folder / "run.hscope-wal"));
}

TEST(RunFile, ReaderInAnotherProcessBesideTheWriter) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const RunInfo info = sample_info();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Recorder recorder(file);
    recorder.begin(info);
    send_steps(recorder, info, 0, 300);
    recorder.end(RunEnd::complete);
    ::_exit(0);
  }
  int64_t last = -1;
  RunStatus status = RunStatus::running;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (status != RunStatus::complete && std::chrono::steady_clock::now() < deadline) {
    const int64_t steps = steps_left_by_a_killed_writer(file, &status);
    EXPECT_GE(steps, last);
    last = steps;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  int exit_status = 0;
  ::waitpid(child, &exit_status, 0);
  EXPECT_EQ(last, 300);
  EXPECT_FALSE(fs::exists(folder / "run.hscope-wal"));
}

TEST(RunFile, FullDiskIsOneErrorAndKeepsWhatIsThere) {
  // A limit on file sizes simulates the full disk; it is reached in begin() or in step().
  for (const rlim_t limit : {rlim_t{20'000}, rlim_t{120'000}, rlim_t{600'000}}) {
    const TemporaryFolder folder;
    const fs::path file = folder / "run.hscope";
    const int code = in_child([&file, limit] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      if (::setrlimit(RLIMIT_FSIZE, &size) != 0) return 1;
      try {
        Recorder recorder(file);
        const RunInfo info = sample_info();
        recorder.begin(info);
        try {
          for (int64_t step = 0; step < 100'000; ++step) send_steps(recorder, info, step, 1);
        } catch (const Error& error) {
          const std::string what = error.what();
          if (what.find(file.string()) == std::string::npos) return 3;
          if (what.find("cannot") == std::string::npos || error.hint().empty()) return 4;
          try {
            recorder.end(RunEnd::complete);
          } catch (const Error& second) {
            return std::string(second.what()).find("earlier error") == std::string::npos ? 5 : 42;
          }
          return 6;
        }
        return 2;
      } catch (const Error& error) {
        return error.hint().empty() ? 7 : 43;
      }
    });
    EXPECT_THAT(code, AnyOf(42, 43)) << limit;
    if (code == 42) {
      EXPECT_GT(steps_left_by_a_killed_writer(file), 0) << limit;
    }
  }
}

TEST(RunFile, KilledRunIsReadTwiceAndLeftAsItWas) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_killed_run(file, 4);
  const std::string before = read_text(file) + read_text(folder / "run.hscope-wal");
  for (int i = 0; i < 2; ++i) {
    const RunView run = RunView::open(file);
    EXPECT_EQ(run.status(), RunStatus::died);
    EXPECT_EQ(expect_whole_steps(run), 4);
  }
  EXPECT_EQ(read_text(file) + read_text(folder / "run.hscope-wal"), before);
}

/// Opens the file as somebody who may not write to its folder. Returns the number of steps,
/// 40 for an Error with a hint, 41 for one without.
int open_in_read_only_folder(const TemporaryFolder& folder, const std::string& name) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
    fs::permissions(entry.path(), fs::perms(0444));
  }
  fs::permissions(folder.path(), fs::perms(0555));
  const int code = in_unprivileged_child([&] {
    try {
      const RunView run = RunView::open(folder / name);
      return static_cast<int>(expect_whole_steps(run));
    } catch (const Error& error) {
      return error.hint().empty() ? 41 : 40;
    }
  });
  fs::permissions(folder.path(), fs::perms(0755));
  return code;
}

TEST(RunFile, ReadOnlyFolder) {
  const TemporaryFolder folder;
  {
    Recorder recorder(folder / "done.hscope");
    send_run(recorder, sample_info(), 3);
  }
  const int code = open_in_read_only_folder(folder, "done.hscope");
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 3);

  fs::permissions(folder.path(), fs::perms(0555));
  EXPECT_EQ(in_unprivileged_child([&] {
              try {
                Recorder recorder(folder / "new.hscope");
              } catch (const Error& error) {
                return error.hint().empty() ? 1 : 42;
              }
              return 0;
            }),
            42);
}

TEST(RunFile, ReadOnlyFolderWithAKilledRun) {
  const TemporaryFolder folder;
  write_killed_run(folder / "run.hscope", 3);
  const int code = open_in_read_only_folder(folder, "run.hscope");
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 3);
  // Without the -shm file SQLite cannot read the -wal file there.
  fs::remove(folder / "run.hscope-shm");
  EXPECT_EQ(open_in_read_only_folder(folder, "run.hscope"), 40);
}

TEST(RunFile, ReadOnlyFolderWithAFileLeftInWalMode) {
  const TemporaryFolder folder;
  {
    Recorder recorder(folder / "run.hscope");
    send_run(recorder, sample_info(), 3);
  }
  sqlite::Database(folder / "run.hscope", sqlite::Access::read_write)
      .execute("PRAGMA journal_mode=WAL");
  ASSERT_FALSE(fs::exists(folder / "run.hscope-wal"));
  const int code = open_in_read_only_folder(folder, "run.hscope");
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 3);
}

TEST(RunFile, UnreadableFile) {
  const TemporaryFolder folder;
  {
    Recorder recorder(folder / "run.hscope");
    send_run(recorder, sample_info(), 1);
  }
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder / "run.hscope", fs::perms(0));
  const int code = in_unprivileged_child([&] {
    try {
      RunView::open(folder / "run.hscope");
    } catch (const Error& error) {
      return std::string(error.what()).find("cannot open") == std::string::npos ? 1 : 42;
    }
    return 0;
  });
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 42);
}

}  // namespace
}  // namespace halfscope
