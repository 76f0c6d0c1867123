// SPDX-License-Identifier: MIT
// The cost of recording for a run of float32 and mixed_float16 side by side. The same training runs
// without statistics, with all of them every step, and every 10 steps, alternating every ten steps
// so that load on the machine affects all of them. Prints the median of the ratios. Comparing
// tensors of lanes (three samples per run by default) is timed separately, per sample.
//   recording_bench [--threads N] [--turns T] [--model mlp|lenet|resnet20]
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/other_program.h"
#include "bench/timed_training.h"
#include "core/memory.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

constexpr int64_t kTurn = 10;

/// Returns noise in CIFAR-10's shape; the content of the pixels does not affect the time.
Dataset make_noise() {
  Dataset data{
      .name = "noise", .sample_shape = {3, 32, 32}, .classes = 10, .train = {}, .test = {}};
  for (uint64_t i = 0; i < 512; ++i)
    data.train.labels.push_back(static_cast<int32_t>(splitmix64(i) % 10));
  for (uint64_t i = 0; i < 512 * 3072; ++i)
    data.train.pixels.push_back(static_cast<uint8_t>(splitmix64(i << 20)));
  return data;
}

std::unique_ptr<TimedTraining> contender(const std::string& model, const Dataset& data, int every,
                                         bool compares, const char* name) {
  TrainConfig config;
  config.model = model;
  config.every = every;
  config.errors = {.enabled = compares, .every = 1, .pairs = {}};
  for (const char* plan : {"float32", "mixed_float16"}) {
    LaneConfig lane{.plan = *preset_plan(plan), .scaler = {}, .backend = &emulation_backend()};
    if (needs_loss_scaling(lane.plan)) lane.scaler = parse_loss_scale("dynamic");
    config.lanes.push_back(lane);
  }
  return std::make_unique<TimedTraining>(config, data, std::string("recording_") + name,
                                         TimedTraining::Clock::wall);
}

void measure(const std::string& model, const Dataset& data, int turns) {
  std::array<std::unique_ptr<TimedTraining>, 3> contenders{
      contender(model, data, 0, false, "plain"), contender(model, data, 1, false, "all"),
      contender(model, data, 10, false, "every10")};
  for (const auto& each : contenders) each->run(kTurn);  // warm-up
  std::vector<double> plain, all, every_10;
  for (int turn = 0; turn < turns; ++turn) {
    std::array<double, 3> seconds{};
    for (size_t i = 0; i < 3; ++i) {
      const size_t who = (i + static_cast<size_t>(turn)) % 3;
      seconds[who] = contenders[who]->run(kTurn);
    }
    plain.push_back(seconds[0]);
    all.push_back(seconds[1] / seconds[0]);
    every_10.push_back(seconds[2] / seconds[0]);
  }
  for (auto& each : contenders) each.reset();
  const auto comparing = contender(model, data, 0, true, "compare");
  comparing->run(1);
  const double compared = comparing->run(3);
  fmt::print("{:<20} {:>10.2f} {:>12.3f} {:>12.3f} {:>14.1f}\n", model, 1e3 * median(plain),
             median(all), median(every_10), compared / median(plain));
  std::fflush(stdout);
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  using namespace halfscope;  // NOLINT: a program of its own
  limit_spinning(argv);
  keep_freed_memory();
  int threads = 2, turns = 15;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--turns") turns = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--model") only = argv[i + 1];
  }
  omp_set_num_threads(threads);
  fmt::print("batch 128, {} threads, {} turns of {} steps, kernels {}\n", threads, turns, kTurn,
             isa_name(active_isa()));
  fmt::print("{:<20} {:>10} {:>12} {:>12} {:>14}\n", "model", "ms plain", "every step", "every 10",
             "compared step");
  const Dataset digits = make_digits(), noise = make_noise();
  if (only.empty() || only == "mlp") measure("mlp:784-512-512-10", digits, turns);
  if (only.empty() || only == "lenet") measure("lenet", digits, turns);
  if (only.empty() || only == "resnet20") measure("resnet20", noise, std::min(turns, 5));
}
