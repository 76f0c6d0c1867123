// SPDX-License-Identifier: MIT
// Training steps on a GPU compared with PyTorch on the same device, in one run. For each model and
// plan: the step of every backend without statistics, with statistics every tenth step and every
// step, and PyTorch's step. Prints medians over the rounds, ratios, and the memory of a lane. If
// PyTorch fails, its column is empty, and a line says why:
//   PyTorch failed: LAST LINE OF ITS ERROR
//   gpu_step_bench [--backends cuda,cuda-fast] [--models A,B] [--plans A,B] [--batch 512]
//                  [--steps 60] [--rounds 3] [--python PROGRAM] [--torch-script FILE]
// Needs a GPU (exit code 3 without one), except for the backend "emulated", which only tests this
// program.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu_options.h"
#include "bench/other_program.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"

namespace halfscope {
namespace {

struct Options {
  std::string backends = "cuda,cuda-fast";
  std::string models = "mlp:784-4096-4096-4096-10,lenet,resnet20";
  std::string plans = "float32,mixed_float16,mixed_bfloat16";
  std::string python = "python3";
  std::string torch_script = HALFSCOPE_SOURCE_DIR "/bench/torch_gpu_step.py";
  int64_t batch = 512, steps = 60;
  int rounds = 3;
};

/// Receives the statistics and drops them, so that only their transfer from the device is timed.
class Forgetful final : public TapSink {
 public:
  void begin(const RunInfo&) override {}
  void step(int, const StepRow&, std::span<const TensorStats>) override {}
  void eval(int, const EvalRow&) override {}
  void error(int, const SiteError&) override {}
  void sums(int, const SiteSums&) override {}
  void end(RunEnd) override {}
};

struct Step {
  double ms = 0.0;
  int64_t bytes = 0;  ///< on the device
};

Step our_step(const Options& options, const std::string& model, const std::string& plan_name,
              const Backend& backend, int64_t every, const Dataset& data) {
  const std::optional<Plan> preset = preset_plan(plan_name);
  if (!preset) throw Error("unknown plan " + plan_name);
  const Plan& plan = *preset;
  TrainConfig config;
  config.model = model;
  config.batch = options.batch;
  config.steps = options.steps;
  config.every = every;
  config.evaluate = false;
  LaneConfig lane{plan, {}, &backend};
  if (needs_loss_scaling(plan)) lane.scaler = parse_loss_scale("dynamic");
  config.lanes = {lane};
  Trainer trainer(config, data);
  Forgetful sink;
  const std::atomic<bool> stop{false};
  std::vector<double> times;
  auto last = std::chrono::steady_clock::now();
  trainer.run(
      every > 0 ? &sink : nullptr,
      [&](const std::vector<StepRow>&) {
        const auto now = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::milli>(now - last).count());
        last = now;
      },
      stop);
  const size_t warm = times.size() / 5;
  double sum = 0.0;  // a mean, because one step in ten may be different
  for (size_t i = warm; i < times.size(); ++i) sum += times[i];
  return {sum / static_cast<double>(times.size() - warm), trainer.device_bytes(0)};
}

/// PyTorch's steps. After the first failure no further rounds run.
struct TorchSteps {
  std::vector<double> ms{};
  int64_t bytes = 0;
  std::string failure{};
};

void torch_step(const Options& options, const std::string& model, const std::string& plan,
                TorchSteps& steps) {
  if (!steps.failure.empty()) return;
  const OtherOutput output =
      output_of(fmt::format("'{}' '{}' --model {} --precision {} --batch {}", options.python,
                            options.torch_script, model, plan, options.batch));
  const nlohmann::json& json = output.json;
  if (json.is_object() && json.contains("ms") && json.contains("bytes")) {
    steps.ms.push_back(json.at("ms").get<double>());
    steps.bytes = json.at("bytes").get<int64_t>();
    return;
  }
  steps.failure = output.error.empty() ? "it printed no times" : output.error;
  fmt::print("PyTorch failed: {}\n", steps.failure);
  std::fflush(stdout);
}

void row(const std::string& model, const std::string& plan, const std::string& step, double ms,
         double torch, double unrecorded, double fp32, int64_t bytes) {
  const auto ratio = [](double a, double b) {
    return a > 0.0 && b > 0.0 ? fmt::format("{:.2f}", a / b) : std::string("-");
  };
  fmt::print("{:<26} {:<15} {:<24} {:>9.3f} {:>11} {:>11} {:>9} {:>9}\n", model, plan, step, ms,
             ratio(torch, ms), ratio(ms, unrecorded), ratio(fp32, ms),
             bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)) : "-");
  std::fflush(stdout);
}

void run(const Options& options) {
  for (const std::string& name : words(options.backends)) backend_of(name);
  const Dataset data = make_digits();
  fmt::print(
      "batch {}, {} steps, {} rounds; throughput / PyTorch's, time / time without statistics, "
      "speedup over fp32\n",
      options.batch, options.steps, options.rounds);
  fmt::print("{:<26} {:<15} {:<24} {:>9} {:>11} {:>11} {:>9} {:>9}\n", "model", "plan", "step",
             "ms", "to PyTorch", "unrecorded", "speedup", "MiB");
  std::fflush(stdout);
  int compared = 0, failed = 0;  // with PyTorch
  for (const std::string& model : words(options.models)) {
    std::map<std::string, double> fp32;
    for (const std::string& plan : words(options.plans)) {
      TorchSteps torch;
      struct Times {
        std::vector<double> off, tenth, every;
        int64_t bytes = 0;
      };
      std::map<std::string, Times> times;
      for (int round = 0; round < options.rounds; ++round) {
        torch_step(options, model, plan, torch);
        for (const std::string& name : words(options.backends)) {
          const Backend& backend = backend_of(name);
          Times& own = times[name];
          const Step off = our_step(options, model, plan, backend, 0, data);
          own.off.push_back(off.ms);
          own.bytes = off.bytes;
          own.tenth.push_back(our_step(options, model, plan, backend, 10, data).ms);
          own.every.push_back(our_step(options, model, plan, backend, 1, data).ms);
        }
      }
      ++(torch.failure.empty() ? compared : failed);
      const double theirs = median(torch.ms);
      const auto remember = [&](const std::string& who, double ms) {
        if (plan == "float32") fp32[who] = ms;
        return fp32.contains(who) ? fp32[who] : 0.0;
      };
      if (theirs > 0.0) {
        row(model, plan, "PyTorch", theirs, 0.0, 0.0, remember("PyTorch", theirs), torch.bytes);
      }
      for (const auto& [name, own] : times) {
        const double off = median(own.off), base = remember(name, off);
        row(model, plan, name, off, theirs, 0.0, base, own.bytes);
        row(model, plan, name + ", every 10th", median(own.tenth), theirs, off, base, 0);
        row(model, plan, name + ", every step", median(own.every), theirs, off, base, 0);
      }
    }
  }
  if (failed > 0) {
    fmt::print("PyTorch failed for {} of {} models and plans{}\n", failed, compared + failed,
               compared == 0 ? ": nothing to compare with" : "");
  }
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::Options options;
  const auto number = [](const std::string& text, int least) {
    return std::max(least, std::atoi(text.c_str()));
  };
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--backends" && !value.empty()) {
      options.backends = value;
    } else if (flag == "--models" && !value.empty()) {
      options.models = value;
    } else if (flag == "--plans" && !value.empty()) {
      options.plans = value;
    } else if (flag == "--python" && !value.empty()) {
      options.python = value;
    } else if (flag == "--torch-script" && !value.empty()) {
      options.torch_script = value;
    } else if (flag == "--batch" && !value.empty()) {
      options.batch = number(value, 1);
    } else if (flag == "--steps" && !value.empty()) {
      options.steps = number(value, 5);
    } else if (flag == "--rounds" && !value.empty()) {
      options.rounds = number(value, 1);
    } else {
      fmt::print(stderr, "gpu_step_bench: unknown flag '{}', or its value is missing\n", flag);
      return 2;
    }
  }
  try {
    halfscope::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_step_bench: {}\n", error.what());
    return 3;
  }
}
