// SPDX-License-Identifier: MIT
// The progress line: its content, that it never wraps, that it does not appear in a pipe, and that
// the terminal is left clean.
#include "cli/terminal/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/terminal.h"

namespace halfscope {
namespace {

using test::Bench;
using test::on_terminal;
using test::small_training;
using testing::HasSubstr;
using testing::Not;

Progress some_progress() {
  return {.done = 120,
          .steps = 2000,
          .rate = 41.25,
          .lanes = {{.name = "float32", .loss = 0.14112},
                    {.name = "mixed_float16",
                     .loss = 0.14138,
                     .first_scale = 65536,
                     .scale = 32768,
                     .skipped = 3}}};
}

TEST(CliProgress, SaysWhatMattersInOneLine) {
  EXPECT_EQ(progress_text(some_progress(), 200),
            "step 120/2000  float32 0.1411  mixed_float16 0.1414 scale 32768, 3 skipped  "
            "41.2 steps/s  46s left");
  Progress calm = some_progress();
  calm.lanes[1].scale = 65536;
  calm.lanes[1].skipped = 0;
  EXPECT_THAT(progress_text(calm, 200), Not(HasSubstr("scale")));
  EXPECT_THAT(progress_text(calm, 200), Not(HasSubstr("skipped")));
  calm.lanes[1].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(progress_text(calm, 200), HasSubstr("mixed_float16 nan"));
  calm.rate = 0.0;
  EXPECT_THAT(progress_text(calm, 200), Not(HasSubstr("left"))) << "not known yet";
}

TEST(CliProgress, ForwardPassesCountBatchesAndHaveNoLosses) {
  Progress progress{
      .done = 3,
      .steps = 10,
      .inference = true,
      .rate = 2.0,
      .lanes = {{.name = "float32", .accuracy = 0.915},
                {.name = "bfloat16", .accuracy = std::numeric_limits<double>::quiet_NaN()}}};
  EXPECT_EQ(progress_text(progress, 200),
            "batch 3/10  float32 91.50%  bfloat16  2 batches/s  4s left");
}

TEST(CliProgress, NeverWraps) {
  std::string last = progress_text(some_progress(), 1000);
  for (size_t width = 120; width > 0; --width) {
    const std::string text = progress_text(some_progress(), width);
    EXPECT_LE(text.size(), width);
    EXPECT_LE(text.size(), last.size());
    EXPECT_TRUE(text.starts_with(std::string("step 120/2000").substr(0, width))) << text;
    last = text;
  }
  EXPECT_THAT(progress_text(some_progress(), 30), HasSubstr("46s left"));
}

TEST(CliProgress, Durations) {
  const struct {
    double seconds;
    const char* text;
  } table[] = {{0.0, "0s"},       {0.2, "1s"},       {59.0, "59s"},      {83.0, "1m23s"},
               {3600.0, "1h00m"}, {7500.0, "2h05m"}, {86400.0, "1d00h"}, {280000.0, "3d05h"},
               {1e300, "years"},  {-1.0, ""}};
  for (const auto& each : table) EXPECT_EQ(duration_text(each.seconds), each.text) << each.seconds;
}

TEST(CliProgress, RateFollowsTheLastSeconds) {
  RateMeter meter;
  EXPECT_EQ(meter.rate(), 0.0);
  double time = 0.0;
  int64_t step = 0;
  for (meter.add(time, step); time < 60.0; meter.add(time, ++step)) time += 0.01;
  EXPECT_NEAR(meter.rate(), 100.0, 2.0);
  for (; time < 70.0; meter.add(time, ++step)) time += 0.1;  // ten times slower
  EXPECT_NEAR(meter.rate(), 10.0, 0.5);
  meter.add(time + 20.0, ++step);
  EXPECT_GT(meter.rate(), 0.0) << "a step longer than the window";
  EXPECT_LT(meter.rate(), 5.0);
}

TEST(CliProgress, DrawsOnATerminalAndCleansUp) {
  const Bench bench;
  const std::vector<std::string> words{"train", "--model", "mlp:784-16-10", "--steps", "300"};
  const std::string clear = "\r\033[K";
  const std::string drawn = on_terminal(bench, words, 44);
  if (drawn.empty()) GTEST_SKIP() << "no pseudo-terminal here";
  EXPECT_TRUE(drawn.starts_with(clear + "step ")) << drawn;
  EXPECT_TRUE(drawn.ends_with(clear)) << drawn;
  EXPECT_THAT(drawn, HasSubstr("step 300/300"));
  EXPECT_THAT(drawn, Not(HasSubstr("\n")));
  for (size_t at = 0; at < drawn.size();) {
    const size_t next = std::min(drawn.find(clear, at + clear.size()), drawn.size());
    EXPECT_LT(next - at - clear.size(), 44u) << drawn.substr(at, next - at);
    at = next;
  }
}

TEST(CliProgress, IsSilentInAPipeAndWhenQuiet) {
  const Bench bench;
  const test::Outcome outcome =
      bench.run({"train", "--model", "mlp:784-16-10", "--steps", "3", "--no-eval"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("run file: run.hscope"));
  EXPECT_EQ(on_terminal(bench, small_training({"--out", "b.hscope"}), 80), "");
}

}  // namespace
}  // namespace halfscope
