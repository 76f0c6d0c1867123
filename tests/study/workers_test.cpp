// SPDX-License-Identifier: MIT
// Local workers: messages, deaths, and the line about progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "cli/sweep/local_workers.h"
#include "cli/sweep/sweep_progress.h"
#include "cli/sweep/trial_task.h"
#include "core/error.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

WorkerEvent next(LocalWorkers& workers) {
  for (int tries = 0; tries < 300; ++tries) {
    if (const std::optional<WorkerEvent> event = workers.wait(milliseconds(100))) return *event;
  }
  ADD_FAILURE() << "no event";
  return {};
}

std::string check_of(const std::string& batch) {
  TrialTask task{.work = TrialTask::Work::check, .hash = "h"};
  task.words = {"--model", "mlp:784-16-10", "--batch", batch, "--lanes", "float32"};
  return task.text();
}

TEST(LocalWorkers, AnswerEveryMessage) {
  LocalWorkers workers(2, HALFSCOPE_PROGRAM, {"sweep", "--serve"});
  EXPECT_EQ(workers.size(), 2);
  EXPECT_EQ(workers.name(1), "local 2");
  EXPECT_FALSE(workers.wait(milliseconds(1)));
  workers.give(0, check_of("16"));
  workers.give(1, check_of("100000"));
  std::vector<TrialAnswer> answers(2);
  for (int i = 0; i < 2; ++i) {
    const WorkerEvent event = next(workers);
    EXPECT_EQ(event.kind, WorkerEvent::Kind::result);
    answers[static_cast<size_t>(event.worker)] = TrialAnswer::parse("h", event.message);
  }
  EXPECT_FALSE(answers[0].error);
  ASSERT_TRUE(answers[1].error);
  EXPECT_EQ(answers[1].error->kind(), ErrorKind::usage);
  EXPECT_THAT(answers[1].error->what(), HasSubstr("100000"));
  EXPECT_THAT(answers[1].error->settings(), testing::ElementsAre("batch"));
}

/// A worker in the shell: it says that it is ready, takes a message and runs `script`.
std::vector<std::string> shell_worker(const std::string& script) {
  return {"-c", "printf '\\0' >&0; read -r x; " + script};
}

// As often as it takes: the process that deals the trials counts the deaths of each.
TEST(LocalWorkers, AreReplacedWhenTheyDie) {
  LocalWorkers workers(1, "/bin/sh", shell_worker("kill -9 $$"));
  for (int death = 0; death < 12; ++death) {
    workers.give(0, "a message\n");
    const WorkerEvent event = next(workers);
    EXPECT_EQ(event.kind, WorkerEvent::Kind::died);
    EXPECT_EQ(event.message, "signal 9 (Killed)");
  }
}

TEST(LocalWorkers, AreGivenUpIfTheyDoNotStart) {
  for (const bool with_task : {false, true}) {
    LocalWorkers missing(1, "/no/such/program", {});
    if (with_task) missing.give(0, "a message\n");
    try {
      next(missing);
      ADD_FAILURE() << "nothing gets better";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "worker 1 did not start in 5 attempts: exit code 127");
    }
  }
}

// The first two starts fail, and the task is still answered.
TEST(LocalWorkers, KeepTheirTaskIfAStartFails) {
  const test::Bench bench;
  const std::string count = (bench / "count").string();
  LocalWorkers workers(1, "/bin/sh",
                       {"-c", "echo x >>" + count + "; test $(wc -l <" + count +
                                  ") -gt 2 || exit 1; printf '\\0' >&0; read -r x; "
                                  "printf '%s\\0' \"$x\" >&0; read -r x"});
  workers.give(0, "a message\n");
  const WorkerEvent event = next(workers);
  EXPECT_EQ(event.kind, WorkerEvent::Kind::result);
  EXPECT_EQ(event.message, "a message");
}

// A busy worker would never end by itself.
TEST(LocalWorkers, AreEndedEvenIfTheyAreBusy) {
  LocalWorkers workers(1, "/bin/sh", shell_worker("exec sleep 1000"));
  workers.give(0, "a message\n");
  EXPECT_FALSE(workers.wait(milliseconds(100)));
}

TEST(TrialTask, ReturnsWhatWasWritten) {
  const TrialTask task{.work = TrialTask::Work::train,
                       .trial = 3,
                       .hash = "0123",
                       .command = "halfscope train",
                       .words = {"--model", "a b\n"},
                       .run = "/x/0123.hscope",
                       .threads = 2};
  const std::string text = task.text();
  EXPECT_EQ(text.find('\0'), std::string::npos);
  const TrialTask read = TrialTask::parse(text);
  EXPECT_EQ(read.work, TrialTask::Work::train);
  EXPECT_EQ(read.trial, 3);
  EXPECT_EQ(read.words, task.words);
  EXPECT_EQ(read.run, task.run);
  EXPECT_EQ(read.threads, 2);
  EXPECT_THROW(TrialTask::parse("{}"), Error);
  EXPECT_THROW(TrialAnswer::parse("0123", "{}"), Error);
}

TEST(SweepProgress, SaysWhatIsLeft) {
  EXPECT_EQ(sweep_progress_text({.done = 0, .trials = 40}, 80), "0/40 trials");
  EXPECT_EQ(sweep_progress_text({.done = 10, .trials = 40, .seconds = 5.0}, 80),
            "10/40 trials  15s left  2 trials/s");
  // 5 of the 10 were there before, and one failed: 6 in 12 s, 29 are left.
  EXPECT_EQ(sweep_progress_text(
                {.done = 10, .failed = 1, .trials = 40, .seconds = 24.0, .done_before = 5}, 80),
            "10/40 trials  1 failed  1m56s left  4s a trial");
  EXPECT_EQ(sweep_progress_text({.done = 10, .trials = 40, .seconds = 5.0}, 24),
            "10/40 trials  15s left");
}

}  // namespace
}  // namespace halfscope
