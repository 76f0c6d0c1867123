// SPDX-License-Identifier: MIT
// A training that was stopped and resumed ends with the very bytes of one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/run_view.h"
#include "core/train/checkpoint.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using test::text_of;
using Words = std::vector<std::string>;

Words training(Words more) {
  Words words{"train",
              "--model",
              "mlp:784-16-10",
              "--batch",
              "16",
              "--quiet",
              "--no-record",
              "--optimizer",
              "adam",
              "--micro-batches",
              "4",
              "--threads",
              "1",
              "--accumulate-grads",
              "fp16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A step schedule does not depend on the length, so the first part can be a separate run.
TEST(CliResume, GoesOnWithTheSameBits) {
  const Bench bench;
  const auto run = [&](Words more) {
    more.insert(more.end(), {"--schedule", "step:every=4,gamma=0.5"});
    const Outcome outcome = bench.run(training(more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  run({"--steps", "11", "--out", "whole.hscope", "--save-weights", "whole.npz"});
  run({"--steps", "5", "--out", "a.hscope", "--checkpoint", "c.npz", "--save-weights", "a.npz"});
  // It can continue in the file that it came from.
  run({"--steps", "11", "--out", "b.hscope", "--resume", "c.npz", "--checkpoint", "c.npz",
       "--save-weights", "b.npz"});
  EXPECT_TRUE(text_of(bench / "b.npz") == text_of(bench / "whole.npz"));
  EXPECT_FALSE(text_of(bench / "a.npz") == text_of(bench / "whole.npz"));
  EXPECT_EQ(load_checkpoint(bench / "c.npz").step, 11);
  const RunView whole = RunView::open(bench / "whole.hscope"),
                rest = RunView::open(bench / "b.hscope");
  ASSERT_EQ(rest.steps(1).size(), 6u);
  EXPECT_THAT(bench.run({"inspect", "b.hscope"}).out, testing::HasSubstr(" 11/11 "));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rest.steps(1)[i].step, whole.steps(1)[i + 5].step);
    EXPECT_EQ(rest.steps(1)[i].loss, whole.steps(1)[i + 5].loss);
    EXPECT_EQ(rest.steps(1)[i].learning_rate, whole.steps(1)[i + 5].learning_rate);
  }
}

// A lane's name may contain its backend; then the name is not that of its plan.
TEST(CliResume, LanesMayNameTheirBackend) {
  const Bench bench;
  const auto run = [&](Words more) {
    more.insert(more.end(), {"--lanes", "float32,emulated:mixed_float16"});
    const Outcome outcome = bench.run(training(more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  run({"--steps", "4", "--out", "whole.hscope", "--save-weights", "whole.npz"});
  run({"--steps", "2", "--out", "a.hscope", "--checkpoint", "c.npz"});
  run({"--steps", "4", "--out", "b.hscope", "--resume", "c.npz", "--save-weights", "b.npz"});
  EXPECT_TRUE(text_of(bench / "b.npz") == text_of(bench / "whole.npz"));
}

// The checkpoint after Ctrl-C is enough to resume, whenever Ctrl-C came.
TEST(CliResume, AfterCtrlC) {
  const Bench bench;
  const Words settings{"--steps", "3000", "--schedule", "cosine:warmup=20,floor=0.1"};
  const auto with = [&](Words more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return training(more);
  };
  const pid_t child =
      bench.start(with({"--out", "a.hscope", "--checkpoint", "c.npz", "--save-weights", "a.npz"}));
  for (int tries = 0; tries < 600; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    try {
      if (RunView::open(bench / "a.hscope").steps(1).size() >= 5) break;
    } catch (const std::exception&) {
      continue;  // not there yet
    }
  }
  kill(child, SIGINT);
  const Outcome stopped = bench.finish(child);
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  const RunView first = RunView::open(bench / "a.hscope");
  ASSERT_EQ(first.status(), RunStatus::interrupted) << "it was over before the signal came";
  const int64_t done = load_checkpoint(bench / "c.npz").step;
  EXPECT_EQ(done, static_cast<int64_t>(first.steps(1).size()));
  ASSERT_EQ(
      bench.run(with({"--out", "b.hscope", "--resume", "c.npz", "--save-weights", "b.npz"})).code,
      0);
  ASSERT_EQ(bench.run(with({"--out", "whole.hscope", "--save-weights", "whole.npz"})).code, 0);
  EXPECT_TRUE(text_of(bench / "b.npz") == text_of(bench / "whole.npz")) << "stopped at " << done;
  EXPECT_FALSE(text_of(bench / "a.npz") == text_of(bench / "whole.npz"));
  const RunView rest = RunView::open(bench / "b.hscope");
  EXPECT_EQ(rest.steps(1).front().step, done);
  EXPECT_EQ(rest.steps(1).back().loss, RunView::open(bench / "whole.hscope").steps(1).back().loss);
}

TEST(CliResume, CheckpointsAreWrittenOnTheWay) {
  const Bench bench;
  const pid_t child =
      bench.start(training({"--steps", "1e6", "--checkpoint", "c.npz", "--checkpoint-every", "3",
                            "--lanes", "mixed_float16"}));
  for (int tries = 0; tries < 600 && !std::filesystem::exists(bench / "c.npz"); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(child, SIGKILL);  // nothing is written at this end
  bench.finish(child);
  const Checkpoint checkpoint = load_checkpoint(bench / "c.npz");
  EXPECT_GT(checkpoint.step, 0);
  EXPECT_EQ(checkpoint.step % 3, 0);
}

}  // namespace
}  // namespace halfscope
