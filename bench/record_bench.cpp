// SPDX-License-Identifier: MIT
// The cost of recording for a training step, the growth of a run file, and the speed of reading it
// back.
//   record_bench [step] [soak] [large]     all parts without an argument; under two minutes
// Processor time is what a training step loses; wall time adds waiting for the disk. Not a Google
// Benchmark, because size, memory and the course of a long run matter as much as a mean time.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "analysis/recorder.h"
#include "analysis/run_view.h"
#include "core/error.h"

namespace {

namespace fs = std::filesystem;
using namespace halfscope;  // NOLINT: a program of its own

constexpr int kLanes = 2;
constexpr double kMega = 1e6;

RunInfo make_info(int sites) {
  RunInfo info;
  info.model = "lenet";
  for (int lane = 0; lane < kLanes; ++lane) {
    LaneInfo lane_info;
    lane_info.name = "lane" + std::to_string(lane);
    for (int i = 0; i < sites; ++i) {
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

/// Returns statistics of a bell-shaped tensor of some hundred thousand elements: about 25 bins are
/// not empty.
std::vector<TensorStats> make_stats(int sites, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TensorStats> all(static_cast<size_t>(sites));
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

/// A run file that is deleted at the end, with its side files.
class BenchFile {
 public:
  BenchFile()
      : path_(fs::temp_directory_path() /
              ("halfscope-bench-" + std::to_string(::getpid()) + ".hscope")) {}
  ~BenchFile() {
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(path_.string() + suffix);
  }
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;
  const fs::path& path() const { return path_; }
  /// Returns the size with the side files that exist while it is written.
  double megabytes() const {
    uintmax_t sum = 0;
    for (const char* suffix : {"", "-wal", "-shm"}) {
      std::error_code error;
      const uintmax_t size = fs::file_size(path_.string() + suffix, error);
      if (!error) sum += size;
    }
    return static_cast<double>(sum) / kMega;
  }

 private:
  fs::path path_;
};

/// Some steps have an event: in a run with loss scaling, one in a thousand or so.
constexpr int64_t kEventPeriod = 1000;

void record_step(Recorder& recorder, int64_t step, const std::vector<TensorStats>& stats) {
  StepRow row;
  row.step = step;
  row.loss = 2.3 / (1.0 + static_cast<double>(step));
  row.skipped = step % kEventPeriod == kEventPeriod - 1;
  for (int lane = 0; lane < kLanes; ++lane) recorder.step(lane, row, stats);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / kMega;
}

/// Returns the processor time of the calling thread, including system time.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns a line "VmRSS:  123 kB" of this process as megabytes.
double status_megabytes(std::string_view name) {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size() + 1)) * 1024 / kMega;
  }
  return 0.0;
}

struct Cost {
  double processor = 0.0, wall = 0.0, worst = 0.0;  // microseconds per step
};

Cost record_steps(Recorder& recorder, int64_t first, int64_t count,
                  const std::vector<TensorStats>& stats) {
  Cost cost;
  const double processor = processor_seconds();
  const double wall = wall_seconds();
  double before = wall;
  for (int64_t step = first; step < first + count; ++step) {
    record_step(recorder, step, stats);
    const double now = wall_seconds();
    cost.worst = std::max(cost.worst, (now - before) * kMega);
    before = now;
  }
  const auto steps = static_cast<double>(count);
  cost.processor = (processor_seconds() - processor) * kMega / steps;
  cost.wall = (wall_seconds() - wall) * kMega / steps;
  return cost;
}

/// Cost over the course of a run: before windows merge, while every step merges two, and later.
void step_part() {
  constexpr int kSites = 30;
  std::printf("step: %d lanes of %d sites, every step recorded\n", kLanes, kSites);
  const BenchFile file;
  const std::vector<TensorStats> stats = make_stats(kSites, 1);
  Recorder recorder(file.path(), {.force = true});
  recorder.begin(make_info(kSites));
  int64_t first = 0;
  for (const int64_t end : {2'000, 4'000, 8'000, 16'000, 32'000}) {
    const Cost cost = record_steps(recorder, first, end - first, stats);
    std::printf("  steps %6d to %6d: %6.1f us processor, %6.1f us wall, worst %5.1f ms\n",
                static_cast<int>(first), static_cast<int>(end), cost.processor, cost.wall,
                cost.worst / 1e3);
    first = end;
  }
  recorder.end(RunEnd::complete);
  std::printf("  file: %.1f MB\n", file.megabytes());
}

/// A process that opens the file again and again until this object is destroyed.
class Looker {
 public:
  explicit Looker(const fs::path& file) : child_(::fork()) {
    if (child_ != 0) return;
    constexpr std::chrono::milliseconds kBetweenLooks{500};
    for (;;) {
      try {
        RunView::open(file);
      } catch (const Error&) {  // the run has not started yet
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  ~Looker() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;

 private:
  pid_t child_;
};

/// A long run with a reader that keeps opening the file.
void soak_part() {
  constexpr int kSites = 30;
  constexpr int64_t kSteps = 100'000;
  constexpr int kTenths = 10;
  std::printf("soak: %d steps, %d lanes of %d sites, a reader that opens the file twice a second\n",
              static_cast<int>(kSteps), kLanes, kSites);
  const BenchFile file;
  const Looker looker(file.path());
  const std::vector<TensorStats> stats = make_stats(kSites, 1);
  Recorder recorder(file.path(), {.force = true});
  recorder.begin(make_info(kSites));
  double largest = 0.0;
  for (int tenth = 0; tenth < kTenths; ++tenth) {
    const Cost cost = record_steps(recorder, tenth * kSteps / kTenths, kSteps / kTenths, stats);
    largest = std::max(largest, file.megabytes());
    if (tenth != 0 && tenth != kTenths - 1) continue;
    std::printf(
        "  %s tenth: %6.1f us processor, %6.1f us wall, worst %5.1f ms; %.1f MB resident, "
        "%.1f MB on disk\n",
        tenth == 0 ? "first" : "last ", cost.processor, cost.wall, cost.worst / 1e3,
        status_megabytes("VmRSS:"), file.megabytes());
  }
  recorder.end(RunEnd::complete);
  std::printf("  file: %.1f MB at the end, at most %.1f MB with its WAL\n", file.megabytes(),
              largest);
}

/// The largest possible file: all windows of a deep model.
void large_part() {
  constexpr int kSites = 250;
  constexpr int64_t kSteps = 20'000;
  std::printf("large: %d steps, %d lanes of %d sites\n", static_cast<int>(kSteps), kLanes, kSites);
  const BenchFile file;
  double largest = 0.0;
  {
    const std::vector<TensorStats> stats = make_stats(kSites, 1);
    Recorder recorder(file.path(), {.force = true});
    recorder.begin(make_info(kSites));
    for (int64_t first = 0; first < kSteps; first += 1'000) {
      const Cost cost = record_steps(recorder, first, 1'000, stats);
      largest = std::max(largest, file.megabytes());
      if (first != 0 && first != 3'000 && first != kSteps - 1'000) continue;
      std::printf("  from step %5d: %6.1f us processor, %6.1f us wall\n", static_cast<int>(first),
                  cost.processor, cost.wall);
    }
    recorder.end(RunEnd::complete);
  }
  std::printf("  file: %.1f MB at the end, at most %.1f MB with its WAL\n", file.megabytes(),
              largest);
  const double before = status_megabytes("VmRSS:");
  double start = wall_seconds();
  const RunView run = RunView::open(file.path());
  std::printf("  opened in %.3f s: %d windows of %d sites, %.1f MB resident more, %.1f MB peak\n",
              wall_seconds() - start, static_cast<int>(run.windows(0, 0).size()), kLanes * kSites,
              status_megabytes("VmRSS:") - before, status_megabytes("VmHWM:"));
  start = wall_seconds();
  int64_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int site = 0; site < kSites; ++site) {
      for (const PackedWindow& window : run.windows(lane, site)) sum += window.counts().underflow;
    }
  }
  const double counted = wall_seconds() - start;
  start = wall_seconds();
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int site = 0; site < kSites; ++site) {
      for (const StatsWindow& window : run.windows(lane, site)) sum -= window.stats.underflow;
    }
  }
  std::printf("  all counters read in %.3f s, all windows unpacked in %.3f s%s\n", counted,
              wall_seconds() - start, sum == 0 ? "" : ", AND THEY DIFFER");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> parts(argv + 1, argv + argc);
  const auto wanted = [&parts](std::string_view part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  if (wanted("step")) step_part();
  if (wanted("soak")) soak_part();
  if (wanted("large")) large_part();
  return 0;
}
