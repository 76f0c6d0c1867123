// SPDX-License-Identifier: MIT
// What recording costs a training step, and how fast a run file is read back. The budget is
// 0.3 ms of processor time for a step of two lanes with 30 sites each; wall time adds the disk.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "analysis/recorder.h"
#include "analysis/run_view.h"

namespace {

namespace fs = std::filesystem;
using namespace halfscope;  // NOLINT: a program of its own

constexpr int kLanes = 2;
constexpr int kSites = 30;

RunInfo make_info() {
  RunInfo info;
  info.model = "lenet";
  for (int lane = 0; lane < kLanes; ++lane) {
    LaneInfo lane_info;
    lane_info.name = "lane" + std::to_string(lane);
    for (int i = 0; i < kSites; ++i) {
      SiteInfo site;
      site.path = "conv" + std::to_string(i);
      site.tensor = "activation";
      site.format = kFp16;
      site.shape = {128, 16, 12, 12};
      site.order = i;
      lane_info.sites.push_back(site);
    }
    info.lanes.push_back(lane_info);
  }
  return info;
}

/// A bell-shaped tensor of some hundred thousand elements: about 25 bins are not empty.
std::vector<TensorStats> make_stats(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TensorStats> all(kSites);
  for (TensorStats& stats : all) {
    const int middle = 120 + static_cast<int>(random() % 60);
    for (int i = 0; i < 25; ++i) {
      const int64_t count = (200'000 >> i) + static_cast<int64_t>(random() % 100);
      stats.exponents[static_cast<size_t>(middle - i)] = count;
      stats.n += count;
    }
    stats.underflow = static_cast<int64_t>(random() % 1000);
    stats.subnormal = static_cast<int64_t>(random() % 10'000);
    stats.max_abs = std::ldexp(1.1f, middle + kMinExponentBin);
    stats.min_abs = std::ldexp(1.3f, middle - 25 + kMinExponentBin);
    stats.sum = std::ldexp(static_cast<double>(random()), -40);
    stats.sum_sq = std::ldexp(static_cast<double>(random()), -40);
  }
  return all;
}

fs::path bench_file() {
  return fs::temp_directory_path() / ("halfscope-bench-" + std::to_string(::getpid()) + ".hscope");
}

void record_step(Recorder& recorder, int64_t step, const std::vector<TensorStats>& stats) {
  StepRow row;
  row.step = step;
  row.loss = 2.3 / (1.0 + static_cast<double>(step));
  for (int lane = 0; lane < kLanes; ++lane) recorder.step(lane, row, stats);
}

void BM_RecordStep(benchmark::State& state) {
  const std::vector<TensorStats> stats = make_stats(1);
  {
    Recorder recorder(bench_file(), {.force = true});
    recorder.begin(make_info());
    int64_t step = 0;
    for (auto _ : state) record_step(recorder, step++, stats);
    state.SetItemsProcessed(step * kLanes * kSites);
    recorder.end(false);
    state.counters["bytes/step"] =
        static_cast<double>(fs::file_size(bench_file())) / static_cast<double>(step);
  }
  fs::remove(bench_file());
}
// Long enough for the checkpoints, which sync the disk every 4000 pages, to count.
BENCHMARK(BM_RecordStep)->Unit(benchmark::kMicrosecond)->MinTime(3.0)->UseRealTime();

void BM_OpenRun(benchmark::State& state) {
  constexpr int64_t kSteps = 500;
  {
    Recorder recorder(bench_file(), {.force = true});
    recorder.begin(make_info());
    const std::vector<TensorStats> stats = make_stats(1);
    for (int64_t step = 0; step < kSteps; ++step) record_step(recorder, step, stats);
    recorder.end(false);
  }
  for (auto _ : state) benchmark::DoNotOptimize(RunView::open(bench_file()));
  state.SetItemsProcessed(state.iterations() * kSteps * kLanes * kSites);
  fs::remove(bench_file());
}
BENCHMARK(BM_OpenRun)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
