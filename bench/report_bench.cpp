// SPDX-License-Identifier: MIT
// The time for a report of a run with 1,000 layers. The budget is 2 s and, for the HTML page, 2 MB.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "analysis/report/report.h"
#include "tests/report/report_fixtures.h"

namespace {

using namespace halfscope;  // NOLINT: a program of its own

const RunView& run() {
  static const RunView kRun = test::large_run(1000);
  return kRun;
}

const Report& report() {
  static const Report kReport = make_report(run());
  return kReport;
}

void BM_MakeReport(benchmark::State& state) {
  run();
  for (auto _ : state) benchmark::DoNotOptimize(make_report(run()));
}
BENCHMARK(BM_MakeReport)->Unit(benchmark::kMillisecond);

void BM_Write(benchmark::State& state, std::string (*write)(const Report&)) {
  report();
  size_t bytes = 0;
  for (auto _ : state) {
    const std::string text = write(report());
    bytes = text.size();
    benchmark::DoNotOptimize(text.data());
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK_CAPTURE(BM_Write, html, report_html)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Write, markdown, report_markdown)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Write, json, report_json)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Write, csv, report_csv)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
