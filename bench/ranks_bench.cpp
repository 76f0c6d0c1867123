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
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/networks.h"
#include "bench/other_program.h"
#include "bench/rank_errors.h"
#include "bench/timed_training.h"
#include "core/memory.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

enum class Kind { plain, recorded, compared };

constexpr int64_t kSamples = 2;  // of a rank

/// Returns a training after its first step. It simulates `ranks` ranks, or has as many
/// micro-batches.
std::unique_ptr<TimedTraining> contender(const std::string& model, int64_t ranks, bool simulates,
                                         Kind kind) {
  const Workload network = workload(model);
  TrainConfig config;
  config.model = model;
  config.build = network.build;
  config.optimizer = network.optimizer;
  config.batch = kSamples * ranks;
  (simulates ? config.ranks : config.micro_batches) = ranks;
  config.every = kind == Kind::plain ? 0 : 1;
  config.errors = {.enabled = kind == Kind::compared, .every = 1, .pairs = {}};
  for (const char* plan : {"float32", "mixed_bfloat16"}) {
    config.lanes.push_back({*preset_plan(plan), {}, &emulation_backend()});
  }
  const std::string name = fmt::format("ranks_{}{}", static_cast<int>(kind), simulates);
  auto training = std::make_unique<TimedTraining>(config, network.data(kSamples * ranks), name,
                                                  TimedTraining::Clock::processor);
  training->run(1);
  return training;
}

/// Seconds of a step, by turn.
struct Times {
  std::vector<double> parts, ranks;
};

Times times_of(const std::string& model, int64_t ranks, Kind kind, int64_t steps, int turns) {
  const auto parts = contender(model, ranks, false, kind),
             simulated = contender(model, ranks, true, kind);
  Times times;
  for (int turn = 0; turn < turns; ++turn) {
    for (int i = 0; i < 2; ++i) {
      const bool simulates = (turn + i) % 2 != 0;
      (simulates ? times.ranks : times.parts)
          .push_back((simulates ? simulated : parts)->run(steps));
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
  keep_freed_memory();
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
