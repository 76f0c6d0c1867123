// SPDX-License-Identifier: MIT
// The numbers that a study keeps of a run, beside the numbers that were put into it.
#include "analysis/study/trial_summary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "analysis/proof_file.h"
#include "analysis/recorder.h"
#include "analysis/sqlite.h"
#include "analysis/study/trial_file.h"
#include "core/backend/loss_scaler.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

using test::TemporaryFolder;

RunInfo one_lane() {
  RunInfo info = test::sample_info();
  info.lanes.erase(info.lanes.begin());  // mixed_float16 stays
  return info;
}

std::vector<StepRow> falling_losses(int64_t steps) {
  std::vector<StepRow> rows;
  for (int64_t step = 0; step < steps; ++step) {
    rows.push_back({.step = step, .loss = 1000.0 - static_cast<double>(step)});
  }
  return rows;
}

TEST(LossCurve, HasEveryStepOfAShortTraining) {
  EXPECT_TRUE(loss_curve({}).empty());
  const std::vector<StepRow> rows = falling_losses(128);
  const std::vector<CurvePoint> curve = loss_curve(rows);
  ASSERT_EQ(curve.size(), 128u);
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(curve[i].step, static_cast<float>(i));
    EXPECT_EQ(curve[i].loss, 1000.0F - static_cast<float>(i));
  }
}

// 1 + 127 * 2 steps: the first alone, then pairs, whose mean is half a step before the second.
TEST(LossCurve, HasMeansOfALongOne) {
  const std::vector<StepRow> rows = falling_losses(255);
  const std::vector<CurvePoint> curve = loss_curve(rows);
  ASSERT_EQ(curve.size(), kMostCurvePoints);
  EXPECT_EQ(curve[0].loss, 1000.0F);
  for (size_t i = 1; i < curve.size(); ++i) {
    EXPECT_EQ(curve[i].step, static_cast<float>(2 * i));
    EXPECT_EQ(curve[i].loss, 1000.0F - static_cast<float>(2 * i) + 0.5F);
  }
  EXPECT_EQ(loss_curve(falling_losses(100000)).back().step, 99999.0F);
}

TEST(TrialSummary, CountsWhatTheStepsSay) {
  RunView run(one_lane(), RunStatus::complete);
  for (int64_t step = 0; step < 10; ++step) {
    StepRow row{.step = step, .loss = static_cast<double>(10 - step)};
    row.skipped = step == 3 || step == 4;
    if (step >= 4) row.first_bad = 1;
    run.add_step(0, row);
  }
  run.add_eval(0, {5, 7.0, 0.25});
  run.add_eval(0, {10, 3.0, 0.75});
  const TrialResult result = summarize_trial(run);
  EXPECT_EQ(result.status, TrialStatus::done);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(result.skipped, 2);
  EXPECT_EQ(result.loss, 1.5) << "the last fifth: losses 2 and 1";
  EXPECT_EQ(result.test_loss, 3.0);
  EXPECT_EQ(result.accuracy, 0.75);
  ASSERT_TRUE(result.first_bad);
  EXPECT_EQ(result.first_bad->step, 4);
  EXPECT_EQ(result.first_bad->layer, run.lane(0).sites[1].path);
  EXPECT_EQ(result.first_bad->role, role_name(run.lane(0).sites[1].role));
  double bits = 0.0, elements = 0.0;
  for (const SiteInfo& site : run.lane(0).sites) {
    double count = 1.0;
    for (const int64_t size : site.shape) count *= static_cast<double>(size);
    bits += count * (1 + site.format.exponent_bits + site.format.mantissa_bits);
    elements += count;
  }
  EXPECT_DOUBLE_EQ(result.bits, bits / elements);
}

TEST(TrialSummary, ALossThatIsNotFiniteAtTheEndIsNaN) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    RunView run(one_lane(), RunStatus::complete);
    for (int64_t step = 0; step < 10; ++step) run.add_step(0, {.step = step, .loss = 1.0});
    run.add_step(0, {.step = 10, .loss = bad});
    EXPECT_TRUE(std::isnan(summarize_trial(run).loss));
    for (int64_t step = 11; step < 100; ++step) run.add_step(0, {.step = step, .loss = 1.0});
    EXPECT_EQ(summarize_trial(run).loss, 1.0) << "long before the end";
  }
}

TEST(TrialSummary, TellsTrainingsThatFailFromTrialsThatFail) {
  RunView run(one_lane(), RunStatus::interrupted);
  EXPECT_EQ(summarize_trial(run).status, TrialStatus::waiting);
  run.set_lost(0, {.step = 3, .why = "out of memory"});
  EXPECT_EQ(summarize_trial(run).status, TrialStatus::failed);
  EXPECT_EQ(summarize_trial(run).error, "out of memory");
  RunInfo info = one_lane();
  info.lanes[0].loss_scale = "deepspeed";
  RunView stopped(info, RunStatus::interrupted);
  const std::string why = stop_text(parse_loss_scale("deepspeed"), ScalerStop::at_minimum).what;
  stopped.set_lost(0, {.step = 3, .why = why});
  EXPECT_EQ(summarize_trial(stopped).status, TrialStatus::done);
  EXPECT_EQ(summarize_trial(stopped).error, why);
}

TEST(TrialFile, KeepsTheResultInTheRunFile) {
  const TemporaryFolder folder;
  const auto file = folder / "a.hscope";
  EXPECT_FALSE(stored_trial(file, "a")) << "missing";
  {
    Recorder recorder(file, {.private_until_end = true});
    test::send_run(recorder, one_lane(), 20);
  }
  const RunView run = RunView::open(file);
  EXPECT_EQ(run.status(), RunStatus::complete);
  EXPECT_EQ(run.steps(0).size(), 20u);
  const std::optional<TrialResult> of_run = stored_trial(file, "a");
  ASSERT_TRUE(of_run) << "a run that `train` has written";
  EXPECT_EQ(of_run->steps, 20);
  TrialResult result = *of_run;
  result.steps = 77;
  store_trial(file, "a", result);
  EXPECT_EQ(stored_trial(file, "a")->steps, 77) << "read again, not made again";
  EXPECT_FALSE(stored_trial(file, "b"));
  EXPECT_EQ(RunView::open(file).steps(0).size(), 20u) << "still a run file";
  std::filesystem::resize_file(file, 6000);
  EXPECT_FALSE(stored_trial(file, "a")) << "cut off";
  std::filesystem::resize_file(file, 0);
  EXPECT_FALSE(stored_trial(file, "a"));
}

/// A trial's run file in `folder`, and its result in it.
TrialResult write_trial(const std::filesystem::path& file) {
  {
    Recorder recorder(file, {.private_until_end = true});
    test::send_run(recorder, one_lane(), 20);
  }
  const TrialResult result = summarize_trial(RunView::open(file));
  store_trial(file, "a", result);
  return result;
}

void change(const std::filesystem::path& file, const char* sql) {
  sqlite::Database(file, sqlite::Access::read_write).execute(sql);
}

/// All numbers of a run that the study could show.
std::string numbers_of(const std::filesystem::path& file) {
  const RunView run = RunView::open(file);
  std::string text;
  for (const StepRow& row : run.steps(0)) {
    text += fmt::format("{} {} {} {}\n", row.step, row.loss, row.loss_scale, row.grad_norm);
  }
  return text;
}

TEST(TrialFile, ContentsThatChangedAreNotItsResult) {
  const TemporaryFolder folder;
  const auto file = folder / "a.hscope";
  const char* const changes[] = {
      "UPDATE steps SET loss=loss+1e-12 WHERE step=7",
      "UPDATE windows SET stats=substr(stats,1,9)||x'00'||substr(stats,11) WHERE step=3",
      "UPDATE meta SET value=replace(value,'\"steps\":20','\"steps\":21') WHERE key='trial'",
      "DELETE FROM steps WHERE step=19", "UPDATE sites SET path='other' WHERE site=1"};
  for (const char* sql : changes) {
    write_trial(file);
    ASSERT_TRUE(stored_trial(file, "a"));
    change(file, sql);
    EXPECT_FALSE(stored_trial(file, "a")) << sql;
    std::filesystem::remove(file);
  }
  // `diagnose --verify` adds to a run file.
  write_trial(file);
  store_trials(file, 0, "{}");
  store_proof(file, 0, "{}");
  EXPECT_TRUE(stored_trial(file, "a"));
}

// Bytes that a changed file may have are those that no query reads.
TEST(TrialFile, AChangedByteIsFoundOrHarmless) {
  const TemporaryFolder folder;
  const auto file = folder / "a.hscope", damaged = folder / "b.hscope";
  const TrialResult result = write_trial(file);
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const std::string numbers = numbers_of(file);
  int found = 0, harmless = 0;
  for (size_t at = 0; at < bytes.size(); at += 61) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    std::ofstream(damaged, std::ios::binary) << changed;
    const std::optional<TrialResult> stored = stored_trial(damaged, "a");
    ++(stored ? harmless : found);
    if (!stored) continue;
    EXPECT_EQ(trial_json("a", *stored), trial_json("a", result)) << at;
    EXPECT_EQ(numbers_of(damaged), numbers) << at;
  }
  EXPECT_GT(found, 50);
  EXPECT_GT(harmless, 0);
}

}  // namespace
}  // namespace halfscope
