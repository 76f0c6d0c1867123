// SPDX-License-Identifier: MIT
// Training step compared with PyTorch's plain fp32 step, in one run: rounds of PyTorch, our fp32
// lane, our emulated fp16 lane without statistics, and the same lane with every site recorded to a
// run file every step. Prints medians over the rounds' medians and the ratios to PyTorch in the
// same round.
//   step_bench [--threads N] [--rounds R] [--python PROGRAM] [--models mlp,lenet,resnet18,gpt]
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/recorder.h"
#include "bench/other_program.h"
#include "core/memory.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

/// A network, as bench/torch_step.py has it.
struct Network {
  std::string name, model;
  int64_t batch = 0, steps = 0;
  Shape sample;
  int64_t classes = 10;
  const char* optimizer = "sgd";
};

const std::vector<Network>& networks() {
  static const std::vector<Network> all{{"mlp", "mlp:784-512-512-10", 128, 120, {1, 28, 28}},
                                        {"lenet", "lenet", 128, 24, {1, 28, 28}},
                                        {"resnet18", "resnet18", 32, 10, {3, 32, 32}},
                                        {"gpt", "gpt:4x128x4", 16, 14, {128}, 65, "adamw:lr=1e-3"}};
  return all;
}

/// Random samples of the network's shape.
Dataset data_for(const Network& network) {
  constexpr int64_t kBatches = 4;
  const int64_t samples = kBatches * network.batch;
  const auto draw = [](uint64_t seed, int64_t count, int64_t end) {
    std::vector<int32_t> numbers;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t word = splitmix64((seed << 40) + static_cast<uint64_t>(i));
      numbers.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(end)));
    }
    return numbers;
  };
  Dataset data{.name = "random", .sample_shape = {}, .train = {}, .test = {}};
  data.classes = network.classes;
  const int64_t elements = samples * element_count(network.sample);
  if (network.sample.size() == 1) {
    for (const auto& [name, seed] : {std::pair("tokens", 1), std::pair("labels", 2)}) {
      SampleArray array{.name = name, .sample_shape = network.sample, .samples = samples};
      array.integers = draw(static_cast<uint64_t>(seed), elements, network.classes);
      data.train.arrays.push_back(std::move(array));
    }
    return data;
  }
  data.sample_shape = network.sample;
  for (const int32_t byte : draw(1, elements, 256))
    data.train.pixels.push_back(static_cast<uint8_t>(byte));
  data.train.labels = draw(2, samples, network.classes);
  return data;
}

/// Returns milliseconds per step, including writing the run file.
double our_step(const Network& network, const Plan& plan, bool record, const Dataset& data) {
  TrainConfig config;
  config.build = [&](int64_t batch) {
    return build_model(network.model, batch, network.sample, network.classes);
  };
  config.model = network.model;
  config.optimizer = parse_optimizer(network.optimizer);
  config.batch = network.batch;
  config.steps = network.steps;
  config.every = record ? 1 : 0;
  config.evaluate = false;
  LaneConfig lane{plan, {}, &emulation_backend()};
  if (needs_loss_scaling(plan)) lane.scaler = parse_loss_scale("dynamic");
  config.lanes = {lane};
  Trainer trainer(config, data);
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "halfscope_step_bench.hscope";
  std::unique_ptr<Recorder> recorder;
  if (record) {
    recorder = std::make_unique<Recorder>(file, Recorder::Options{.force = true});
    recorder->begin(trainer.describe());
  }
  std::vector<double> times;
  auto last = std::chrono::steady_clock::now();
  const std::atomic<bool> stop{false};
  trainer.run(
      recorder.get(),
      [&](const std::vector<StepRow>&) {
        const auto now = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::milli>(now - last).count());
        last = now;
      },
      stop);
  recorder.reset();
  std::filesystem::remove(file);
  times.erase(times.begin(), times.begin() + 4);  // warm-up
  return median(times);
}

/// Returns PyTorch's milliseconds per step of a network, or nothing if it is not installed.
nlohmann::json torch_step(const std::string& python, int threads, const Network& network) {
  const std::string command =
      fmt::format("{} {}/bench/torch_step.py --threads {} --models {} 2>/dev/null", python,
                  HALFSCOPE_SOURCE_DIR, threads, network.name);
  return json_of(command);
}

struct Times {
  std::vector<double> torch, fp32, fp16, recorded;
};

void print_rows(const Network& network, const Times& times) {
  const auto row = [&](const char* name, const std::vector<double>& ours) {
    std::vector<double> ratios;
    for (size_t j = 0; j < times.torch.size(); ++j) ratios.push_back(ours[j] / times.torch[j]);
    fmt::print("{:<20} {:<34} {:>9.3f} {:>12}\n", network.model, name, median(ours),
               ratios.empty() ? "-" : fmt::format("{:.2f}", median(ratios)));
  };
  if (!times.torch.empty()) row("PyTorch fp32", times.torch);
  row("float32", times.fp32);
  row("mixed_float16", times.fp16);
  row("mixed_float16, all recorded", times.recorded);
}

void run(int threads, int rounds, const std::string& python, const std::string& models) {
  omp_set_num_threads(threads);
  const Plan fp32 = *preset_plan("float32"), fp16 = *preset_plan("mixed_float16");
  fmt::print("{} threads, {} rounds, kernels {}\n", threads, rounds, isa_name(active_isa()));
  fmt::print("{:<20} {:<34} {:>9} {:>12}\n", "model", "step", "ms", "to PyTorch");
  std::string version = "not found";
  for (const Network& network : networks()) {
    if (("," + models + ",").find("," + network.name + ",") == std::string::npos) continue;
    const Dataset data = data_for(network);
    Times times;
    for (int round = 0; round < rounds; ++round) {
      const nlohmann::json torch = torch_step(python, threads, network);
      if (torch.is_object()) {
        version = torch.at("torch").get<std::string>();
        times.torch.push_back(torch.at(network.name + "_ms").get<double>());
      }
      times.fp32.push_back(our_step(network, fp32, false, data));
      times.fp16.push_back(our_step(network, fp16, false, data));
      times.recorded.push_back(our_step(network, fp16, true, data));
    }
    print_rows(network, times);
  }
  fmt::print("PyTorch {}; batches of 128, 32 (resnet18) and 16 (gpt, 128 tokens)\n", version);
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
  halfscope::keep_freed_memory();
  int threads = 2, rounds = 5;
  std::string python = "python3", models = "mlp,lenet,resnet18,gpt";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--python") python = argv[i + 1];
    if (flag == "--models") models = argv[i + 1];
  }
  halfscope::run(threads, rounds, python, models);
}
