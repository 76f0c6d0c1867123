// SPDX-License-Identifier: MIT
#include "tests/analysis/long_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "tests/analysis/sample_run.h"

namespace halfscope::test {
namespace {

namespace fs = std::filesystem;

uint64_t hash(int64_t lane, int64_t step, int64_t site) {
  auto x = static_cast<uint64_t>(step * 64 + lane * 32 + site + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

bool is_event(const LongRun& run, int64_t step) {
  return hash(7, step, 7) % 1000 < static_cast<uint64_t>(run.events);
}

bool is_recorded(const LongRun& run, int64_t step) { return step % run.every == 0; }

/// Sums may be added in any order.
void expect_same_stats(const TensorStats& actual, TensorStats expected) {
  EXPECT_NEAR(actual.sum, expected.sum, 1e-9 * static_cast<double>(expected.n));
  EXPECT_NEAR(actual.sum_sq, expected.sum_sq, 1e-9 * static_cast<double>(expected.n));
  expected.sum = actual.sum;
  expected.sum_sq = actual.sum_sq;
  EXPECT_EQ(actual, expected);
}

/// The windows of a site against the sums of its steps.
void expect_windows(const RunView& view, const LongRun& run, int lane, int site, int64_t steps) {
  TensorStats total;
  int64_t step = 0;
  const auto skip_what_was_not_measured = [&] {
    while (step < steps && (!is_recorded(run, step) || long_stats(run, lane, step, site).n == 0)) {
      ++step;
    }
  };
  for (const StatsWindow& window : view.windows(lane, site)) {
    skip_what_was_not_measured();
    ASSERT_LE(window.step, step);
    ASSERT_LT(step, window.step + window.step_count) << "an empty window";
    TensorStats expected;
    for (; step < window.step + window.step_count; ++step) {
      ASSERT_LT(step, steps);
      if (is_recorded(run, step)) expected.merge(long_stats(run, lane, step, site));
    }
    expect_same_stats(window.stats, expected);
    total.merge(expected);
    if (testing::Test::HasFailure()) FAIL() << "lane " << lane << " site " << site << " " << step;
  }
  skip_what_was_not_measured();
  ASSERT_EQ(step, steps) << "steps are missing";
  expect_same_stats(view.total(lane, site), total);
}

/// The first site is measured in every recorded step, so its windows are those of the file.
void expect_bounds(const RunView& view, const LongRun& run, const WindowList::Limits& limits,
                   int64_t steps) {
  std::vector<int64_t> events;
  for (int64_t step = 0; step < steps; step += run.every) {
    if (is_event(run, step)) events.push_back(step);
  }
  const WindowRange windows = view.windows(0, 0);
  const auto kept = std::min<size_t>(events.size(),
                                     static_cast<size_t>(limits.first_events + limits.last_events));
  EXPECT_LE(windows.size(), static_cast<size_t>(limits.windows) + kept);
  int64_t next = 0;
  for (const PackedWindow& window : windows) {
    ASSERT_EQ(window.step, next);
    ASSERT_EQ((window.step_count - 1) % run.every, 0);
    next = window.step + window.step_count - 1 + run.every;
  }
  EXPECT_EQ(next, (steps + run.every - 1) / run.every * run.every);
  const auto count = static_cast<int64_t>(events.size());
  for (int64_t i = 0; i < count; ++i) {
    if (i >= limits.first_events && i < count - limits.last_events) continue;
    const auto window = windows.find(events[static_cast<size_t>(i)]);
    ASSERT_TRUE(window) << "event " << i << " of " << count;
    EXPECT_EQ(window->step_count, 1);
  }
  for (int lane = 0; lane < view.lane_count(); ++lane) {
    for (const SiteInfo& site : view.lane(lane).sites) {
      for (const PackedWindow& window : view.windows(lane, site.order)) {
        const auto same = windows.find(window.step);
        ASSERT_TRUE(same);
        ASSERT_EQ(same->step_count, window.step_count);
      }
    }
  }
}

}  // namespace

RunInfo long_info(const LongRun& run) {
  RunInfo info = sample_info(run.sites);
  info.every = run.every;
  return info;
}

StepRow long_step(const LongRun& run, int lane, int64_t step) {
  StepRow row;
  row.step = step;
  row.loss = static_cast<double>(step) + lane;
  row.learning_rate = 0.5;
  if (is_event(run, step)) {  // in one lane or the other
    row.skipped = step % 2 == lane;
    row.first_bad = step % 2 == lane && is_recorded(run, step) ? 0 : -1;
  }
  return row;
}

TensorStats long_stats(const LongRun& run, int lane, int64_t step, int site) {
  TensorStats stats;
  if (site == run.sites - 1 && site > 0 && long_step(run, lane, step).skipped) return stats;
  const uint64_t key = hash(lane, step, site);
  const size_t first = 100 + key % 20;
  for (size_t bin = first; bin < first + 6; ++bin) {
    stats.exponents[bin] = static_cast<int64_t>((key >> (bin % 8)) % 300);
    stats.n += stats.exponents[bin];
  }
  stats.zero = 1 + static_cast<int64_t>(key % 3);
  stats.nan = key % 50 == 0 ? 1 : 0;
  stats.n += stats.zero + stats.nan;
  stats.underflow = stats.zero;
  stats.lost = static_cast<int64_t>(key % 2);
  stats.max_abs = std::ldexp(1.0f, static_cast<int>(key % 30));
  stats.min_abs = std::ldexp(1.0f, -static_cast<int>(key % 30));
  stats.sum = static_cast<double>(key % 1000) - 500.5;
  stats.sum_sq = static_cast<double>(key % 777);
  return stats;
}

void send_long(TapSink& sink, const LongRun& run, int64_t first, int64_t count) {
  std::vector<TensorStats> stats(static_cast<size_t>(run.sites));
  for (int64_t step = first; step < first + count; ++step) {
    for (int lane = 0; lane < 2; ++lane) {
      if (!is_recorded(run, step)) {
        sink.step(lane, long_step(run, lane, step), {});
        continue;
      }
      for (int site = 0; site < run.sites; ++site) {
        stats[static_cast<size_t>(site)] = long_stats(run, lane, step, site);
      }
      sink.step(lane, long_step(run, lane, step), stats);
    }
  }
}

int64_t expect_long_run(const RunView& view, const LongRun& run, const WindowList::Limits& limits) {
  const auto steps = static_cast<int64_t>(view.steps(0).size());
  for (int lane = 0; lane < view.lane_count(); ++lane) {
    EXPECT_EQ(static_cast<int64_t>(view.steps(lane).size()), steps);
    int64_t step = 0;
    for (const StepRow& row : view.steps(lane)) {
      EXPECT_TRUE(same(row, long_step(run, lane, step))) << lane << " " << step;
      ++step;
    }
    for (int site = 0; site < run.sites; ++site) expect_windows(view, run, lane, site, steps);
  }
  expect_bounds(view, run, limits, steps);
  return steps;
}

void kill_long_runs(int rounds, uint32_t seed) {
  constexpr int64_t kStepsBefore = 60;  // merging has begun
  constexpr uint32_t kLargestDelay = 20'000;
  std::mt19937 random(seed);
  void* memory = ::mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* committed = new (memory) std::atomic<int64_t>(0);  // steps that the writer knows are safe
  const LongRun run{.every = 1, .events = 100};
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const TemporaryFolder folder;
    const fs::path file = folder / "run.hscope";
    *committed = 0;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        Recorder recorder(file, {.limits = kFewWindows});
        recorder.begin(long_info(run));
        for (int64_t step = 0;; ++step) {
          send_long(recorder, run, step, 1);
          *committed = step + 1;
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    while (*committed < kStepsBefore && ::waitpid(child, nullptr, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % kLargestDelay));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const int64_t safe = *committed;
    ASSERT_GE(safe, kStepsBefore) << "the writer stopped by itself";
    const RunView view = RunView::open(file);
    EXPECT_EQ(view.status(), RunStatus::died);
    const int64_t steps = expect_long_run(view, run, kFewWindows);
    EXPECT_GE(steps, safe) << "round " << round;
    EXPECT_LE(steps, safe + 1) << "round " << round;
  }
  ::munmap(memory, sizeof(std::atomic<int64_t>));
}

}  // namespace halfscope::test
