// SPDX-License-Identifier: MIT
// Additions to a run file after its run has ended, and the check whether it has ended.
#include "analysis/proof_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "analysis/live_writer.h"
#include "analysis/memory_sink.h"
#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "analysis/sqlite.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests
using testing::HasSubstr;

constexpr const char* kProof = R"({"loss": 0.25, "why": "it's so"})";

void write_run(const fs::path& file, int64_t steps = 3) {
  Recorder recorder(file);
  send_run(recorder, sample_info(), steps);
}

/// Returns "usage: WHAT" or "runtime: WHAT" of the Error, on one line, or "" without an Error.
std::string refusal(const fs::path& file, int lane = 1, const std::string& proof = kProof) {
  try {
    store_proof(file, lane, proof);
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return (error.kind() == ErrorKind::usage ? "usage: " : "runtime: ") + what;
  }
  return "";
}

TEST(ProofFile, IsPutReplacedAndReadBack) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_run(file);
  MemorySink memory;
  send_run(memory, sample_info(), 3);
  RunView expected = memory.view();
  EXPECT_EQ(RunView::open(file).proof(1), "");
  for (const std::string& proof : {std::string("{}"), std::string(kProof), std::string("[1]")}) {
    store_proof(file, 1, proof);
    expected.set_proof(1, proof);
    expect_same_run(RunView::open(file), expected);
  }
  store_proof(file, 0, "7");
  expected.set_proof(0, "7");
  expect_same_run(RunView::open(file), expected);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "one plain file";
}

TEST(ProofFile, WrongCallsChangeNothing) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_run(file);
  const std::string before = read_text(file);
  EXPECT_THAT(refusal(file, 2), HasSubstr("usage: '" + file.string() + "' has no lane 2"));
  EXPECT_THAT(refusal(file, -1), HasSubstr("has no lane -1"));
  EXPECT_THAT(refusal(file, 0, "{"), HasSubstr("JSON"));
  EXPECT_THAT(refusal(folder / "other.hscope"), HasSubstr("cannot open"));
  EXPECT_FALSE(fs::exists(folder / "other.hscope"));
  EXPECT_EQ(read_text(file), before);
  write_text(folder / "text", std::string(5000, 'x'));
  EXPECT_THAT(refusal(folder / "text"), HasSubstr("usage: "));
}

TEST(ProofFile, WaitsForTheEndOfTheRun) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  Recorder recorder(file);
  recorder.begin(sample_info());
  send_steps(recorder, sample_info(), 0, 2);
  EXPECT_THAT(refusal(file), HasSubstr("usage: '" + file.string() + "' is still being recorded"));
  send_steps(recorder, sample_info(), 2, 1);
  recorder.end(RunEnd::complete);
  EXPECT_EQ(refusal(file), "");
  EXPECT_EQ(RunView::open(file).proof(1), kProof);
  EXPECT_EQ(expect_whole_steps(RunView::open(file)), 3);
}

TEST(ProofFile, ARunThatDiedTakesOneToo) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_killed_run(file, 3);
  store_proof(file, 1, kProof);
  const RunView run = RunView::open(file);
  EXPECT_EQ(run.status(), RunStatus::died);
  EXPECT_EQ(run.proof(1), kProof);
  EXPECT_EQ(expect_whole_steps(run), 3);
}

TEST(ProofFile, ReadOnly) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_run(file);
  const std::string before = read_text(file);
  const auto as_nobody = [&] {
    return in_unprivileged_child([&] {
      const std::string what = refusal(file);
      return what.find(file.string()) != std::string::npos && what.starts_with("runtime: ") ? 42
                                                                                            : 1;
    });
  };
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(file, fs::perms(0444));
  const int code = as_nobody();
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 42) << "a read-only file";
  fs::permissions(file, fs::perms(0666));
  fs::permissions(folder.path(), fs::perms(0555));
  EXPECT_EQ(as_nobody(), 42) << "a read-only folder";
  EXPECT_EQ(read_text(file), before);
}

TEST(ProofFile, FullDisk) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_run(file);
  const std::string before = read_text(file);
  const std::string proof = '"' + std::string(300'000, 'p') + '"';
  // A limit on file sizes simulates the full disk: at the journal, or at the file itself.
  for (const rlim_t limit : {rlim_t{100}, rlim_t{before.size() + 10'000}}) {
    EXPECT_EQ(in_child([&] {
                ::signal(SIGXFSZ, SIG_IGN);
                const rlimit size{limit, limit};
                if (::setrlimit(RLIMIT_FSIZE, &size) != 0) return 1;
                const std::string what = refusal(file, 1, proof);
                return what.starts_with("runtime: cannot") ? 42 : 2;
              }),
              42)
        << limit;
    EXPECT_EQ(RunView::open(file).proof(1), "");
    EXPECT_EQ(expect_whole_steps(RunView::open(file)), 3);
    EXPECT_EQ(read_text(file), before) << limit;
  }
  EXPECT_EQ(refusal(file, 1, proof), "");
  EXPECT_EQ(RunView::open(file).proof(1), proof);
}

TEST(LiveWriter, IsSeenFromEverywhereUntilItIsGone) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const RunInfo info = sample_info();
  EXPECT_FALSE(has_live_writer(file)) << "there is no such file";
  fs::create_symlink(file, folder / "link.hscope");
  {
    Recorder recorder(file);
    recorder.begin(info);
    send_steps(recorder, info, 0, 2);
    for (const fs::path& name : {file, folder / "link.hscope"}) {
      EXPECT_TRUE(has_live_writer(name)) << name;
      EXPECT_EQ(RunView::open(name).status(), RunStatus::running) << name;
      EXPECT_EQ(in_child([&] { return has_live_writer(name) ? 42 : 1; }), 42) << name;
    }
    // Asking for the lock has not released it: other processes still cannot write.
    EXPECT_THROW(Recorder(file, {.force = true}), Error);
    EXPECT_EQ(in_child([&] {
                try {
                  Recorder second(file, {.force = true});
                } catch (const Error&) {
                  return 42;
                }
                return 1;
              }),
              42);
    recorder.end(RunEnd::interrupted);
    EXPECT_FALSE(has_live_writer(file));
  }
  EXPECT_EQ(RunView::open(file).status(), RunStatus::interrupted);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2) << "file and link";
}

TEST(LiveWriter, DeadOneIsNoticedWhileOthersRead) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_killed_run(file, 4);
  EXPECT_FALSE(has_live_writer(file));
  EXPECT_EQ(RunView::open(file).status(), RunStatus::died);
  sqlite::Database database(file, sqlite::Access::read_only);
  sqlite::Transaction snapshot(database, sqlite::Transaction::Kind::read);
  EXPECT_EQ(database.query_integer("SELECT count(*) FROM steps"), 8);
  EXPECT_FALSE(has_live_writer(file));
  EXPECT_EQ(RunView::open(file).status(), RunStatus::died);
  // A copy of an unfinished run has no writer either.
  const TemporaryFolder other;
  Recorder recorder(other / "run.hscope");
  recorder.begin(sample_info());
  send_steps(recorder, sample_info(), 0, 3);
  for (const char* name : {"run.hscope", "run.hscope-wal"}) {
    fs::copy_file(other / name, other / (std::string("copy-") + name));
  }
  const RunView copy = RunView::open(other / "copy-run.hscope");
  EXPECT_EQ(copy.status(), RunStatus::died);
  EXPECT_EQ(expect_whole_steps(copy), 3);
}

TEST(LiveWriter, WhoMayNotAskIsToldThatItRuns) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  write_killed_run(file, 2);
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder / "run.hscope-wal", fs::perms(0));
  const int code = in_unprivileged_child([&] { return has_live_writer(file) ? 42 : 1; });
  if (code == 77) GTEST_SKIP() << "may not change the user";
  EXPECT_EQ(code, 42);
}

/// A reader must never report a run that is just beginning or ending as dead. In memory, runs are
/// so short that these moments are common. Each run has a separate file. SQLite finds the side
/// files by name, so a reader would mix up files if a name changed its meaning twice within
/// microseconds.
TEST(LiveWriter, NoRunDiesThatBeginsOrEnds) {
  const fs::path memory = "/dev/shm";
  if (::access(memory.c_str(), W_OK) != 0) GTEST_SKIP() << "there is no /dev/shm";
  const TemporaryFolder folder(memory);
  constexpr int kRuns = 60;
  const auto name = [&](int run) { return folder / fmt::format("{}.hscope", run); };
  const RunInfo info = sample_info(1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (int i = 0; i < kRuns; ++i) {
      Recorder recorder(name(i));
      recorder.begin(info);
      recorder.end(RunEnd::complete);
    }
    ::_exit(0);
  }
  int current = 0;
  int opened = 0;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    while (fs::exists(name(current + 1))) ++current;
    try {
      EXPECT_NE(RunView::open(name(current)).status(), RunStatus::died);
      ++opened;
    } catch (const Error&) {  // there is none, or none has begun
    }
  }
  EXPECT_EQ(status, 0);
  EXPECT_GT(opened, 10);
}

/// A reader that opened a file just before a new run replaced it finds the journal of the new run
/// beside the old one. It must not undo what that run is about to write.
TEST(LiveWriter, KeepsItsJournalWhereItsFileReplacesOneThatIsRead) {
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  const fs::path journal = folder / "run.hscope-journal";
  write_run(file);
  const std::string before = read_text(file);
  write_text(journal, std::string(1000, 'j'));
  bool kept = false;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kept = fs::exists(journal);
    fs::remove(journal);
  });
  EXPECT_EQ(RunView::open(file).status(), RunStatus::complete);
  writer.join();
  EXPECT_TRUE(kept);
  EXPECT_EQ(read_text(file), before);
}

}  // namespace
}  // namespace halfscope
