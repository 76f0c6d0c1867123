// SPDX-License-Identifier: MIT
// Ctrl-C: once ends the run in good order, twice at once; what was committed stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/run_view.h"
#include "tests/cli/program.h"

namespace halfscope {
namespace {

using test::Bench;
using test::Outcome;
using testing::HasSubstr;
using Words = std::vector<std::string>;

/// Waits until the run file, which may be read at any time, has that many steps of every lane.
size_t wait_for_steps(const std::filesystem::path& file, size_t steps) {
  size_t seen = 0;
  for (int tries = 0; tries < 600 && seen < steps; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    try {
      const RunView live = RunView::open(file);
      EXPECT_EQ(live.status(), RunStatus::running);
      seen = live.steps(live.lane_count() - 1).size();
    } catch (const std::exception&) {
      continue;  // not there yet
    }
  }
  return seen;
}

const Words kLongTraining{"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "1e6"};

TEST(CliSignals, OneEndsTheRunInGoodOrder) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Bench bench;
    const pid_t child = bench.start(kLongTraining);
    const size_t seen = wait_for_steps(bench / "run.hscope", 3);
    EXPECT_GE(seen, 3u);
    kill(child, signal);
    const Outcome outcome = bench.finish(child);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const RunView run = RunView::open(bench / "run.hscope");
    EXPECT_EQ(run.status(), RunStatus::interrupted);
    EXPECT_GE(run.steps(0).size(), seen);
    EXPECT_EQ(run.steps(0).size(), run.steps(1).size()) << "whole steps only";
    EXPECT_TRUE(run.evals(0).empty());
    EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope-wal")) << "one plain file";
    EXPECT_THAT(outcome.out, HasSubstr("mixed_float16")) << "the closing table";
    EXPECT_THAT(outcome.out, HasSubstr("stopped after " + std::to_string(run.steps(0).size()) +
                                       " of 1000000 steps"));
    EXPECT_THAT(outcome.out, HasSubstr("\nverdict: "));
    EXPECT_THAT(outcome.out, HasSubstr("\nnext: halfscope "));
  }
}

TEST(CliSignals, TheSummarySaysInterrupted) {
  const Bench bench;
  Words words = kLongTraining;
  words.push_back("--json");
  const pid_t child = bench.start(words);
  EXPECT_GE(wait_for_steps(bench / "run.hscope", 1), 1u);
  kill(child, SIGINT);
  const Outcome outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 0);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("status"), "interrupted");
  EXPECT_EQ(json.at("lanes").at(0).at("test_loss"), nullptr);
  EXPECT_TRUE(json.at("verdict").is_object());
}

// Steps of this network take long enough for both signals to arrive within one.
TEST(CliSignals, TwoEndItAtOnce) {
  const Bench bench;
  const pid_t child =
      bench.start({"train", "--model", "mlp:784-2048-2048-10", "--batch", "3000", "--steps", "1e6",
                   "--lanes", "float32", "--no-record", "--threads", "1"});
  EXPECT_GE(wait_for_steps(bench / "run.hscope", 1), 1u);
  kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(child, SIGINT);
  const Outcome outcome = bench.finish(child);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.out, "");
  const RunView run = RunView::open(bench / "run.hscope");
  EXPECT_EQ(run.status(), RunStatus::died) << "nobody closed it";
  EXPECT_GE(run.steps(0).size(), 1u) << "what was committed stays";
}

}  // namespace
}  // namespace halfscope
