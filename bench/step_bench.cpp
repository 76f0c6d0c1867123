// SPDX-License-Identifier: MIT
// Training step compared with PyTorch's plain fp32 step, in one run: rounds of PyTorch, our fp32
// lane, our emulated fp16 lane without statistics, and the same lane with every site recorded to a
// run file every step. Prints medians over the rounds' medians and the ratios to PyTorch in the
// same round.
//   step_bench [--threads N] [--rounds R] [--python PROGRAM]
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
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

constexpr int64_t kBatch = 128;

/// Returns milliseconds per step, including writing the run file.
double our_step(const std::string& model, const Plan& plan, bool record, const Dataset& data) {
  TrainConfig config;
  config.model = model;
  config.batch = kBatch;
  config.steps = model == "lenet" ? 24 : 120;
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

/// Returns PyTorch's milliseconds per step of both models, or null if it is not installed.
nlohmann::json torch_step(const std::string& python, int threads) {
  const std::string command = fmt::format("{} {}/bench/torch_step.py --threads {} 2>/dev/null",
                                          python, HALFSCOPE_SOURCE_DIR, threads);
  return json_of(command);
}

void run(int threads, int rounds, const std::string& python) {
  omp_set_num_threads(threads);
  const Dataset data = make_digits();
  const Plan fp32 = *preset_plan("float32"), fp16 = *preset_plan("mixed_float16");
  const struct {
    const char *model, *key;
  } models[] = {{"mlp:784-512-512-10", "mlp_ms"}, {"lenet", "lenet_ms"}};
  struct Times {
    std::vector<double> torch, fp32, fp16, recorded;
  } times[2];
  std::string version = "not found";
  for (int round = 0; round < rounds; ++round) {
    const nlohmann::json torch = torch_step(python, threads);
    if (torch.is_object()) version = torch.at("torch").get<std::string>();
    for (size_t i = 0; i < 2; ++i) {
      if (torch.is_object()) times[i].torch.push_back(torch.at(models[i].key).get<double>());
      times[i].fp32.push_back(our_step(models[i].model, fp32, false, data));
      times[i].fp16.push_back(our_step(models[i].model, fp16, false, data));
      times[i].recorded.push_back(our_step(models[i].model, fp16, true, data));
    }
  }
  fmt::print("batch {}, {} threads, {} rounds, kernels {}, PyTorch {}\n", kBatch, threads, rounds,
             isa_name(active_isa()), version);
  fmt::print("{:<20} {:<34} {:>9} {:>12}\n", "model", "step", "ms", "to PyTorch");
  for (size_t i = 0; i < 2; ++i) {
    const auto row = [&](const char* name, const std::vector<double>& ours) {
      std::vector<double> ratios;
      for (size_t j = 0; j < times[i].torch.size(); ++j)
        ratios.push_back(ours[j] / times[i].torch[j]);
      fmt::print("{:<20} {:<34} {:>9.3f} {:>12}\n", models[i].model, name, median(ours),
                 ratios.empty() ? "-" : fmt::format("{:.2f}", median(ratios)));
    };
    if (!times[i].torch.empty()) row("PyTorch fp32", times[i].torch);
    row("float32", times[i].fp32);
    row("mixed_float16", times[i].fp16);
    row("mixed_float16, all recorded", times[i].recorded);
  }
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
  int threads = 2, rounds = 5;
  std::string python = "python3";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--python") python = argv[i + 1];
  }
  halfscope::run(threads, rounds, python);
}
