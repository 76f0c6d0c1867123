// SPDX-License-Identifier: MIT
// The long versions, minutes of them: many killed writers, and the size of the largest run.
#include <gtest/gtest.h>

#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "tests/analysis/long_run.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the helpers of these tests

TEST(RunFileSlow, AThousandKilledWriters) { kill_long_runs(1000, 17); }

/// 10^5 steps of two lanes with 250 sites each, as many events as get separate windows, and
/// histograms of 25 bins: under 300 MB at any time, including the WAL.
TEST(RunFileSlow, TheLargestRunStaysUnder300Megabytes) {
  constexpr int64_t kSteps = 100'000;
  constexpr uintmax_t kLimit = 300'000'000;
  constexpr int kSites = 250;
  constexpr int64_t kEventPeriod = 50;
  const TemporaryFolder folder;
  const fs::path file = folder / "run.hscope";
  std::vector<TensorStats> stats(kSites);
  for (int site = 0; site < kSites; ++site) {
    TensorStats& s = stats[static_cast<size_t>(site)];
    for (size_t i = 0; i < 25; ++i) {
      s.exponents[100 + i] = (1'000'000 >> i) + 100 + site;
      s.n += s.exponents[100 + i];
    }
    s.underflow = 12'345;
    s.subnormal = 54'321;
    s.max_abs = s.min_abs = 1.0f / 3.0f;
    s.sum = s.sum_sq = 1.0 / 3.0;
  }
  Recorder recorder(file);
  recorder.begin(sample_info(kSites));
  uintmax_t largest = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      recorder.step(lane,
                    {.step = step,
                     .loss = 1.0 / 3.0,
                     .skipped = step % kEventPeriod == 0,
                     .grad_norm = 1.0 / 3.0,
                     .accuracy = 1.0 / 3.0,
                     .ms = 1.0 / 3.0},
                    stats);
    }
    if (step % 100 == 0) {
      largest = std::max(largest, fs::file_size(file) + fs::file_size(folder / "run.hscope-wal"));
    }
  }
  recorder.end(RunEnd::complete);
  largest = std::max(largest, fs::file_size(file));
  EXPECT_LT(largest, kLimit);
  RecordProperty("megabytes", static_cast<int>(largest / 1'000'000));
  const RunView view = RunView::open(file);
  EXPECT_EQ(static_cast<int64_t>(view.steps(1).size()), kSteps);
  EXPECT_EQ(view.total(1, kSites - 1).n, kSteps * stats.back().n);
  EXPECT_GT(view.windows(0, 0).size(), 3000u);
}

}  // namespace
}  // namespace halfscope
