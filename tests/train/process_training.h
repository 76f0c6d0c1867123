// SPDX-License-Identifier: MIT
// Trainings of several processes, for which threads stand, and how to compare them with ranks that
// are simulated in one process.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "tests/train/small_training.h"
#include "tests/train/thread_exchange.h"

namespace halfscope::test {

inline bool same_or_nan(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Also keeps what ranks add to the events of a run.
class RankCollector final : public TapSink {
 public:
  void begin(const RunInfo&) override {}
  void step(int lane, const StepRow& row, std::span<const TensorStats> stats) override {
    seen.step(lane, row, stats);
  }
  void eval(int lane, const EvalRow& row) override { seen.eval(lane, row); }
  void error(int lane, const SiteError& error) override { seen.error(lane, error); }
  void sums(int lane, const SiteSums& sums) override { seen.sums(lane, sums); }
  void deviation(int lane, const Deviation& each) override { seen.deviation(lane, each); }
  void reduction(int lane, const ReductionError& error) override {
    reductions.emplace_back(lane, error);
  }
  void ranks(int, const RankSpread& spread) override { spreads.push_back(spread); }
  void end(RunEnd how) override { seen.end(how); }

  Collector seen;
  std::vector<std::pair<int, ReductionError>> reductions;
  std::vector<RankSpread> spreads;
};

struct Trained {
  RankCollector sink;
  std::vector<NamedTensors> weights;  ///< by lane
};

inline void train_into(const TrainConfig& config, const Dataset& data, Trained& into) {
  Trainer trainer(config, data);
  const std::atomic<bool> stop{false};
  trainer.run(&into.sink, {}, stop);
  for (size_t lane = 0; lane < config.lanes.size(); ++lane) {
    into.weights.push_back(trainer.weights(static_cast<int>(lane)));
  }
}

inline void expect_same_evaluations(const RankCollector& a, const RankCollector& b) {
  ASSERT_EQ(a.seen.evals.size(), b.seen.evals.size());
  for (size_t i = 0; i < a.seen.evals.size(); ++i) {
    EXPECT_EQ(a.seen.evals[i].loss, b.seen.evals[i].loss);
    EXPECT_EQ(a.seen.evals[i].accuracy, b.seen.evals[i].accuracy);
    EXPECT_EQ(a.seen.evals[i].auc, b.seen.evals[i].auc);
  }
}

/// Expects the events of two trainings to be the same, bit for bit.
inline void expect_same_events(const RankCollector& a, const RankCollector& b) {
  expect_same_steps(a.seen, b.seen);
  ASSERT_EQ(a.seen.stats.size(), b.seen.stats.size());
  for (size_t i = 0; i < a.seen.stats.size(); ++i) {
    EXPECT_EQ(a.seen.stats[i].size(), b.seen.stats[i].size()) << "step " << i;
    EXPECT_EQ(a.seen.rows[i].first_bad, b.seen.rows[i].first_bad) << "step " << i;
  }
  ASSERT_EQ(a.reductions.size(), b.reductions.size());
  for (size_t i = 0; i < a.reductions.size(); ++i) {
    EXPECT_EQ(a.reductions[i].second.error, b.reductions[i].second.error);
    EXPECT_EQ(a.reductions[i].second.swamped, b.reductions[i].second.swamped);
    EXPECT_EQ(a.reductions[i].second.site, b.reductions[i].second.site);
  }
  ASSERT_EQ(a.seen.errors.size(), b.seen.errors.size());
  for (size_t i = 0; i < a.seen.errors.size(); ++i) {
    EXPECT_EQ(a.seen.errors[i].second.site, b.seen.errors[i].second.site);
    EXPECT_EQ(a.seen.errors[i].second.total, b.seen.errors[i].second.total);
    EXPECT_EQ(a.seen.errors[i].second.max_ulps, b.seen.errors[i].second.max_ulps);
  }
  ASSERT_EQ(a.seen.deviations.size(), b.seen.deviations.size());
  for (size_t i = 0; i < a.seen.deviations.size(); ++i) {
    EXPECT_EQ(a.seen.deviations[i].second.name, b.seen.deviations[i].second.name);
    EXPECT_TRUE(same_or_nan(a.seen.deviations[i].second.error, b.seen.deviations[i].second.error));
    EXPECT_TRUE(
        same_or_nan(a.seen.deviations[i].second.spread, b.seen.deviations[i].second.spread));
  }
  EXPECT_EQ(a.spreads.size(), b.spreads.size());
  EXPECT_EQ(a.seen.ends, b.seen.ends);
}

/// Expects that the first step was skipped and a later one was not.
inline void expect_recovery(const std::vector<StepRow>& steps) {
  ASSERT_FALSE(steps.empty());
  EXPECT_TRUE(steps.front().skipped);
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const StepRow& row) {
    return !row.skipped;
  })) << "no step updates the weights, so nothing was compared";
}

/// Compares a training of processes, on every rank, with ranks that the emulator simulates. Returns
/// the steps of the first lane. `backend` runs the lanes of the processes that are not in double;
/// null: the emulator does. Each thread calls `prepare` before its training.
inline std::vector<StepRow> expect_simulated(TrainConfig config, int ranks, const Dataset& data,
                                             const Backend* backend = nullptr,
                                             const std::function<void(Exchange&)>& prepare = {}) {
  config.ranks = ranks;
  Trained expected;
  train_into(config, data, expected);
  std::vector<Trained> found(static_cast<size_t>(ranks));
  for (LaneConfig& lane : config.lanes) {
    if (backend != nullptr && !lane.plan.double_precision) lane.backend = backend;
  }
  on_ranks(ranks, [&](Exchange& exchange) {
    omp_set_num_threads(1);
    if (prepare) prepare(exchange);
    TrainConfig own = config;
    own.exchange = &exchange;
    train_into(own, data, found[static_cast<size_t>(exchange.rank())]);
  });
  for (const Trained& each : found) {
    for (size_t lane = 0; lane < config.lanes.size(); ++lane) {
      expect_same_weights(each.weights[lane], expected.weights[lane]);
    }
    expect_same_evaluations(each.sink, expected.sink);
  }
  expect_same_events(found.back().sink, expected.sink);
  const std::vector<StepRow>& rows = expected.sink.seen.rows;
  std::vector<StepRow> first;
  for (size_t i = 0; i < rows.size(); i += config.lanes.size()) first.push_back(rows[i]);
  return first;
}

}  // namespace halfscope::test
