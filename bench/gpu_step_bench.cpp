// SPDX-License-Identifier: MIT
// Training steps on a GPU compared with PyTorch on the same device, in one run. For each model
// (bench/networks.h) and plan: the step of every backend without statistics, with statistics every
// tenth step and every step, and PyTorch's step, eager and by torch.compile. Both sides get every
// batch from the host. Prints medians over the rounds, ratios, and the memory of a lane. If PyTorch
// fails, its columns are empty, and a line says why:
//   PyTorch failed: LAST LINE OF ITS ERROR
//   torch.compile failed: LAST LINE OF ITS ERROR
//   gpu_step_bench [--backends cuda,cuda-fast] [--models A,B] [--plans A,B] [--batch N]
//                  [--steps 60] [--rounds 3] [--python PROGRAM] [--torch-script FILE]
// Without --batch, each model has its usual batch size. Large models (resnet50, gpt2) run a sixth
// of the steps and, unless --plans says otherwise, only under mixed_float16. Needs a GPU (exit code
// 3 without one), except for the backend "emulated", which only tests this program.
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
#include "bench/networks.h"
#include "bench/other_program.h"
#include "core/error.h"
#include "core/observe/null_sink.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"

namespace halfscope {
namespace {

struct Options {
  std::string backends = "cuda,cuda-fast";
  std::string models = "mlp:784-4096-4096-4096-10,lenet,resnet20,resnet50,gpt2";
  std::string plans;  ///< empty: kPlans, or kLargePlans of large models
  std::string python = "python3";
  std::string torch_script = HALFSCOPE_SOURCE_DIR "/bench/torch_gpu_step.py";
  int64_t batch = 0, steps = 60;  ///< batch 0: the model's
  int rounds = 3;

  int64_t batch_of(const Workload& work) const { return batch > 0 ? batch : work.batch; }
  int64_t steps_of(const Workload& work) const {
    return work.large ? std::max<int64_t>(steps / kFewer, kLeastSteps) : steps;
  }
  std::string plans_of(const Workload& work) const {
    return !plans.empty() ? plans : work.large ? kLargePlans : kPlans;
  }

  static constexpr const char* kPlans = "float32,mixed_float16,mixed_bfloat16";
  static constexpr const char* kLargePlans = "mixed_float16";
  static constexpr int64_t kFewer = 6, kLeastSteps = 5;
};

struct Step {
  double ms = 0.0;
  int64_t bytes = 0;  ///< on the device
};

Step our_step(const Options& options, const Workload& work, const std::string& plan_name,
              const Backend& backend, int64_t every, const Dataset& data) {
  const std::optional<Plan> preset = preset_plan(plan_name);
  if (!preset) throw Error("unknown plan " + plan_name);
  const Plan& plan = *preset;
  TrainConfig config;
  config.model = work.name;
  config.build = work.build;
  config.optimizer = work.optimizer;
  config.batch = options.batch_of(work);
  config.steps = options.steps_of(work);
  config.every = every;
  config.evaluate = false;
  LaneConfig lane{plan, {}, &backend};
  if (needs_loss_scaling(plan)) lane.scaler = parse_loss_scale("dynamic");
  config.lanes = {lane};
  Trainer trainer(config, data);
  NullSink sink;  // so that only the transfer of the statistics is timed
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

/// PyTorch's steps. After the first failure no further ones run.
struct TorchSteps {
  std::vector<double> ms{};
  int64_t bytes = 0;
  std::string failure{};
};

void torch_step(const Options& options, const Workload& work, const std::string& plan,
                bool compiled, TorchSteps& steps) {
  if (!steps.failure.empty()) return;
  const OtherOutput output = output_of(
      fmt::format("'{}' '{}' --model {} --precision {} --batch {} --steps {} --compile {}",
                  options.python, options.torch_script, work.name, plan, options.batch_of(work),
                  options.steps_of(work), compiled ? 1 : 0));
  const nlohmann::json& json = output.json;
  if (json.is_object() && json.contains("ms") && json.contains("bytes")) {
    steps.ms.push_back(json.at("ms").get<double>());
    steps.bytes = json.at("bytes").get<int64_t>();
    return;
  }
  steps.failure = output.error.empty() ? "it printed no times" : output.error;
  fmt::print("{} failed: {}\n", compiled ? "torch.compile" : "PyTorch", steps.failure);
  std::fflush(stdout);
}

/// Times of a row that the others are divided by; 0 if there is none.
struct Others {
  double torch = 0.0, compiled = 0.0, unrecorded = 0.0, fp32 = 0.0;
};

void row(const std::string& model, const std::string& plan, const std::string& step, double ms,
         const Others& others, int64_t bytes) {
  const auto ratio = [](double a, double b) {
    return a > 0.0 && b > 0.0 ? fmt::format("{:.2f}", a / b) : std::string("-");
  };
  fmt::print("{:<26} {:<15} {:<24} {:>9.3f} {:>11} {:>11} {:>11} {:>9} {:>9}\n", model, plan, step,
             ms, ratio(others.torch, ms), ratio(others.compiled, ms), ratio(ms, others.unrecorded),
             ratio(others.fp32, ms),
             bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)) : "-");
  std::fflush(stdout);
}

/// Our steps of one backend, by how often they are recorded.
struct Times {
  std::vector<double> off, tenth, every;
  int64_t bytes = 0;
};

class Comparison {
 public:
  explicit Comparison(const Options& options) : options_(options) {}

  void run() {
    for (const std::string& name : words(options_.backends)) backend_of(name);
    fmt::print(
        "{} steps, {} rounds; throughput / PyTorch's eager and compiled, time / time without "
        "statistics, speedup over fp32\n",
        options_.steps, options_.rounds);
    fmt::print("{:<26} {:<15} {:<24} {:>9} {:>11} {:>11} {:>11} {:>9} {:>9}\n", "model", "plan",
               "step", "ms", "to PyTorch", "to compiled", "unrecorded", "speedup", "MiB");
    std::fflush(stdout);
    for (const std::string& name : words(options_.models)) {
      const Workload work = workload(name);
      const Dataset data = work.data(2 * options_.batch_of(work));
      fp32_.clear();
      for (const std::string& plan : words(options_.plans_of(work))) compare(work, plan, data);
    }
    if (failed_ > 0) {
      fmt::print("PyTorch failed for {} of {} models and plans{}\n", failed_, compared_ + failed_,
                 compared_ == 0 ? ": nothing to compare with" : "");
    }
  }

 private:
  void compare(const Workload& work, const std::string& plan, const Dataset& data) {
    TorchSteps torch, compiled;
    std::map<std::string, Times> times;
    for (int round = 0; round < options_.rounds; ++round) {
      torch_step(options_, work, plan, false, torch);
      // Once, because compiling takes longer than all steps.
      if (round == 0 && torch.failure.empty()) torch_step(options_, work, plan, true, compiled);
      for (const std::string& name : words(options_.backends)) {
        const Backend& backend = backend_of(name);
        Times& own = times[name];
        const Step off = our_step(options_, work, plan, backend, 0, data);
        own.off.push_back(off.ms);
        own.bytes = off.bytes;
        own.tenth.push_back(our_step(options_, work, plan, backend, 10, data).ms);
        own.every.push_back(our_step(options_, work, plan, backend, 1, data).ms);
      }
    }
    ++(torch.failure.empty() ? compared_ : failed_);
    const double theirs = median(torch.ms), best = median(compiled.ms);
    if (theirs > 0.0) {
      row(work.name, plan, "PyTorch", theirs, {.fp32 = remember(plan, "PyTorch", theirs)},
          torch.bytes);
    }
    if (best > 0.0) {
      row(work.name, plan, "PyTorch compiled", best,
          {.torch = theirs, .fp32 = remember(plan, "compiled", best)}, compiled.bytes);
    }
    for (const auto& [name, own] : times) {
      const double off = median(own.off), base = remember(plan, name, off);
      row(work.name, plan, name, off, {theirs, best, 0.0, base}, own.bytes);
      row(work.name, plan, name + ", every 10th", median(own.tenth), {theirs, best, off, base}, 0);
      row(work.name, plan, name + ", every step", median(own.every), {theirs, best, off, base}, 0);
    }
  }

  /// Returns the time under float32, if that has run before.
  double remember(const std::string& plan, const std::string& who, double ms) {
    if (plan == "float32") fp32_[who] = ms;
    return fp32_.contains(who) ? fp32_[who] : 0.0;
  }

  const Options& options_;
  std::map<std::string, double> fp32_{};
  int compared_ = 0, failed_ = 0;  ///< with PyTorch
};

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
    halfscope::Comparison(options).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_step_bench: {}\n", error.what());
    return 3;
  }
}
