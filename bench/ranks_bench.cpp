// SPDX-License-Identifier: MIT
// Data-parallel ranks that one process simulates.
//   ranks_bench [--threads N] [--turns T] [--ranks N] [--model mlp|lenet|resnet20]
//   ranks_bench --errors [--ranks N] [--known N] [--threads N] [--model NAME] [--steps N]
// Processor time of a step with --ranks N beside the same batch with --micro-batches N, with lanes
// float32 and mixed_bfloat16. Both run in turns, so that load on the machine affects both; the
// median of the ratios is printed: steps without statistics, steps with all of them, steps that
// compare lanes and check reductions, and a training of 200 steps that compares three of them.
// With --errors: the error of every reduction on 2, 4 ... N ranks (4096), as Markdown, and how far
// estimates from fewer ranks (--known, 64) are off.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "analysis/recorder.h"
#include "bench/networks.h"
#include "bench/open_end.h"
#include "bench/other_program.h"
#include "bench/rank_errors.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

enum class Kind { plain, recorded, compared };

class Contender {
 public:
  Contender(const std::string& model, int64_t ranks, bool simulates, Kind kind)
      : file_(std::filesystem::temp_directory_path() /
              fmt::format("halfscope_ranks_{}{}.hscope", static_cast<int>(kind), simulates)) {
    const Workload network = workload(model);
    data_ = network.data(kSamples * ranks);
    TrainConfig config;
    config.model = model;
    config.build = network.build;
    config.optimizer = network.optimizer;
    config.batch = kSamples * ranks;
    (simulates ? config.ranks : config.micro_batches) = ranks;
    config.steps = int64_t{1} << 40;
    config.every = kind == Kind::plain ? 0 : 1;
    config.evaluate = false;
    config.errors = {.enabled = kind == Kind::compared, .every = 1, .pairs = {}};
    for (const char* plan : {"float32", "mixed_bfloat16"}) {
      config.lanes.push_back({*preset_plan(plan), {}, &emulation_backend()});
    }
    trainer_ = std::make_unique<Trainer>(config, data_);
    recorder_ = std::make_unique<Recorder>(file_, Recorder::Options{.force = true});
    sink_ = std::make_unique<OpenEnd>(recorder_.get());
    sink_->begin(trainer_->describe());
    run(1);  // warm-up
  }
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  ~Contender() {
    recorder_.reset();
    std::filesystem::remove(file_);
  }

  /// Returns the seconds of processor time that a step takes.
  double run(int64_t steps) {
    std::atomic<bool> stop{false};
    int64_t done = 0;
    const std::clock_t start = std::clock();
    trainer_->run(
        sink_.get(), [&](const std::vector<StepRow>&) { stop = ++done == steps; }, stop);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / static_cast<double>(steps);
  }

 private:
  static constexpr int64_t kSamples = 2;  ///< of a rank
  std::filesystem::path file_;
  Dataset data_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<OpenEnd> sink_;
};

/// Seconds of a step, by turn.
struct Times {
  std::vector<double> parts, ranks;
};

Times times_of(const std::string& model, int64_t ranks, Kind kind, int64_t steps, int turns) {
  Contender parts(model, ranks, false, kind), simulated(model, ranks, true, kind);
  Times times;
  for (int turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < 2; ++i) {
      const bool simulates = (turn + i) % 2 != 0;
      (simulates ? times.ranks : times.parts).push_back((simulates ? simulated : parts).run(steps));
    }
  }
  return times;
}

double ratio(const Times& times) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times.parts.size(); ++i) ratios.push_back(times.ranks[i] / times.parts[i]);
  return median(ratios);
}

struct Size {
  const char* name;
  const char* model;
  int64_t steps;  ///< of a turn
};
constexpr Size kSizes[] = {
    {"mlp", "mlp:784-128-10", 6}, {"lenet", "lenet", 2}, {"resnet20", "resnet20", 1}};

void measure(const Size& size, int64_t ranks, int turns) {
  const Times plain = times_of(size.model, ranks, Kind::plain, size.steps, turns);
  const Times recorded = times_of(size.model, ranks, Kind::recorded, size.steps, turns);
  const Times compared = times_of(size.model, ranks, Kind::compared, 1, std::max(1, turns / 2));
  // `train` compares three steps, of 200 by default.
  const auto training = [&](std::vector<double> Times::*which) {
    return 197.0 * median(recorded.*which) + 3.0 * median(compared.*which);
  };
  fmt::print("{:<16} {:>10.2f} {:>8.2f} {:>12.2f} {:>15.2f} {:>16.2f}\n", size.model,
             1e3 * median(plain.parts), ratio(plain), ratio(recorded), ratio(compared),
             training(&Times::ranks) / training(&Times::parts));
  std::fflush(stdout);
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  using namespace halfscope;  // NOLINT: a program of its own
  limit_spinning(argv);
  int threads = 1, turns = 5;
  int64_t ranks = 0;
  std::string only;
  RankErrorOptions wanted;
  const bool errors = argc > 1 && std::string(argv[1]) == "--errors";
  for (int i = errors ? 2 : 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--turns") turns = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--ranks") ranks = std::max(2, std::atoi(argv[i + 1]));
    if (flag == "--model") only = argv[i + 1];
    if (flag == "--known") wanted.known = std::max(2, std::atoi(argv[i + 1]));
    if (flag == "--steps") wanted.steps = std::max(0, std::atoi(argv[i + 1]));
  }
  omp_set_num_threads(threads);
  if (errors) {
    if (ranks > 0) wanted.ranks = ranks;
    if (!only.empty()) wanted.model = only;
    print_rank_errors(wanted);
    return 0;
  }
  if (ranks == 0) ranks = 64;
  fmt::print("batch {}, {} ranks beside {} micro-batches, {} threads, kernels {}\n", 2 * ranks,
             ranks, ranks, threads, isa_name(active_isa()));
  fmt::print("{:<16} {:>10} {:>8} {:>12} {:>15} {:>16}\n", "model", "ms plain", "plain",
             "every step", "compared step", "training of 200");
  for (const Size& size : kSizes) {
    if (only.empty() || only == size.name) measure(size, ranks, turns);
  }
}
