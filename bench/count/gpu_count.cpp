// SPDX-License-Identifier: MIT
// Counts what one training step does on a GPU, without a GPU: launches, bytes, operations, and from
// these an estimate of its time on an H200, beside PyTorch's step counted in the same way
// (bench/torch_count.py). Nothing is measured: see docs/benchmarks.md for what the numbers mean.
//   gpu_count [--models A,B] [--plans A,B] [--backends cuda,cuda-fast] [--batch N] [--recorded 1]
//             [--top N] [--torch FILE]
// --top prints the N kernels that take most of the time; --recorded counts a step with statistics.
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/count/counted_program.h"
#include "bench/gpu_options.h"
#include "bench/networks.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope::count {
namespace {

struct Options {
  std::string models = "mlp:784-4096-4096-4096-10,resnet20,resnet50,gpt2";
  std::string plans = "mixed_float16";
  std::string backends = "cuda,cuda-fast";
  std::string torch = HALFSCOPE_SOURCE_DIR "/bench/torch_counts.json";
  int64_t batch = 0;
  int top = 0;
  bool recorded = false;
};

/// Sums over a step.
struct Total {
  int64_t launches = 0;
  double memory = 0.0, flop = 0.0;
  double launched = 0.0, fed = 0.0;  ///< seconds of launches, and of what overlaps them

  double seconds() const { return std::max(launched, fed); }

  void add(const Launch& launch, const Rates& rates) {
    ++launches;
    const bool feeds = launch.kind == Launch::Kind::feed;
    if (!feeds && launch.kind != Launch::Kind::upload) memory += launch.memory;
    flop += launch.flop;
    (feeds ? fed : launched) += count::seconds(launch, rates);
  }
};

/// Returns "PlaneMoment<float>" for a mangled "N9halfscope3gpu11PlaneMomentIfEE".
std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  std::string result = status == 0 ? text.get() : name;
  for (const std::string space : {"halfscope::gpu::", "halfscope::count::", "halfscope::"}) {
    for (size_t at; (at = result.find(space)) != std::string::npos;) result.erase(at, space.size());
  }
  return result;
}

void print_top(const std::vector<Launch>& launches, int top, const Rates& rates) {
  struct Group {
    Total total;
    Launch slowest;
    double most = 0.0;
  };
  std::map<std::string, Group> groups;
  for (const Launch& launch : launches) {
    Group& group = groups[launch.name];
    group.total.add(launch, rates);
    const double time = seconds(launch, rates);
    if (time > group.most) {
      group.most = time;
      group.slowest = launch;
    }
  }
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.total.seconds() > b.second.total.seconds();
  });
  fmt::print("  {:>9} {:>8} {:>9} {:>9}  {:>10} {:>8} {:>8} {:>8}  {}\n", "ms", "launches", "GB",
             "slowest", "threads", "loads", "shared", "calls", "kernel");
  for (size_t i = 0; i < std::min(sorted.size(), static_cast<size_t>(top)); ++i) {
    const auto& [name, group] = sorted[i];
    const Launch::Chain& chain = group.slowest.chain;
    fmt::print("  {:>9.3f} {:>8} {:>9.3f} {:>9.3f}  {:>10.0f} {:>8.0f} {:>8.0f} {:>8.0f}  {}\n",
               group.total.seconds() * 1e3, group.total.launches, group.total.memory * 1e-9,
               group.most * 1e3, group.slowest.threads, chain.memory + chain.cache + chain.near,
               chain.shared, chain.functions, readable(name));
  }
}

/// Returns PyTorch's step: its kernels, one after another, or its processor if that takes longer.
Total torch_total(const nlohmann::json& step, const Rates& rates) {
  Total total;
  for (const nlohmann::json& op : step.at("ops")) {
    Launch launch;
    launch.name = op.at("op").get<std::string>();
    launch.memory = op.at("bytes").get<double>();
    if (launch.name == "upload") launch.kind = Launch::Kind::upload;
    if (op.contains("m")) {
      launch.kind = Launch::Kind::product;
      launch.m = op.at("m").get<int64_t>();
      launch.n = op.at("n").get<int64_t>();
      launch.k = op.at("k").get<int64_t>();
      launch.count = op.at("products").get<int64_t>();
      launch.bits = op.at("bits").get<int>();
      launch.convolution = op.at("convolution").get<bool>();
      launch.flop = op.at("flop").get<double>();
    }
    const int64_t times = op.at("times").get<int64_t>();
    const int64_t launches = op.at("launches").get<int64_t>();
    // An operator's bytes and operations cover all its launches.
    const double once = seconds(launch, rates) + static_cast<double>(launches - 1) * rates.launch;
    total.launches += times * launches;
    if (launch.kind != Launch::Kind::upload) {
      total.memory += static_cast<double>(times) * launch.memory;
    }
    total.flop += static_cast<double>(times) * launch.flop;
    total.launched += static_cast<double>(times) * once;
  }
  total.launched = std::max(total.launched, step.at("calls").get<double>() * rates.operator_cpu);
  return total;
}

GpuProducts products_of(const std::string& backend) {
  for (const GpuProducts each : {GpuProducts::library, GpuProducts::own, GpuProducts::fast}) {
    if (backend == gpu_backend_name(each)) return each;
  }
  throw Error("unknown backend " + backend);
}

void row(const std::string& model, const std::string& plan, const std::string& step,
         const Total& total, double torch, int64_t bytes) {
  fmt::print("{:<26} {:<15} {:<14} {:>8} {:>8.1f} {:>7.2f} {:>9.2f} {:>8} {:>8}\n", model, plan,
             step, total.launches, total.memory * 1e-9, total.flop * 1e-12, total.seconds() * 1e3,
             bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) * 0x1p-30) : "-",
             torch > 0.0 ? fmt::format("{:.2f}", torch / total.seconds()) : "-");
  std::fflush(stdout);
}

void run(const Options& options) {
  const Rates rates;
  nlohmann::json torch;
  if (std::ifstream file(options.torch); file) torch = nlohmann::json::parse(file);
  fmt::print("{:<26} {:<15} {:<14} {:>8} {:>8} {:>7} {:>9} {:>8} {:>8}\n", "model", "plan", "step",
             "launches", "GB", "TFLOP", "ms", "GiB", "ratio");
  for (const std::string& name : words(options.models)) {
    const Workload work = workload(name);
    const int64_t batch = options.batch > 0 ? options.batch : work.batch;
    const Model model = work.build(batch);
    const Dataset data = work.data(batch);
    for (const std::string& plan_name : words(options.plans)) {
      const std::optional<Plan> plan = preset_plan(plan_name);
      if (!plan) throw Error("unknown plan " + plan_name);
      double theirs = 0.0;
      for (const nlohmann::json& step : torch) {
        if (step.at("model") != name || step.at("precision") != plan_name) continue;
        if (step.at("batch").get<int64_t>() != batch) continue;
        const Total total = torch_total(step, rates);
        theirs = total.seconds();
        row(name, plan_name, "PyTorch eager", total, 0.0, 0);
      }
      TrainingSpec spec;
      spec.optimizer = work.optimizer;
      const Executable executable = lower(model, *plan, spec);
      for (const std::string& backend : words(options.backends)) {
        const CountedStep step =
            count_step(executable, data, products_of(backend), options.recorded);
        Total total;
        for (const Launch& launch : step.launches) total.add(launch, rates);
        row(name, plan_name, backend, total, theirs, step.bytes);
        if (options.top > 0) print_top(step.launches, options.top, rates);
      }
    }
  }
}

}  // namespace
}  // namespace halfscope::count

int main(int argc, char** argv) {
  halfscope::count::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--models" && !value.empty()) {
      options.models = value;
    } else if (flag == "--plans" && !value.empty()) {
      options.plans = value;
    } else if (flag == "--backends" && !value.empty()) {
      options.backends = value;
    } else if (flag == "--torch" && !value.empty()) {
      options.torch = value;
    } else if (flag == "--batch" && !value.empty()) {
      options.batch = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--top" && !value.empty()) {
      options.top = std::atoi(value.c_str());
    } else if (flag == "--recorded" && !value.empty()) {
      options.recorded = value != "0";
    } else {
      fmt::print(stderr, "gpu_count: unknown flag '{}', or its value is missing\n", flag);
      return 2;
    }
  }
  try {
    halfscope::count::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_count: {}\n", error.what());
    return 3;
  }
}
