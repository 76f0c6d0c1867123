// SPDX-License-Identifier: MIT
// Forward passes compared with other runtimes' plain fp32 ones, in one run: rounds of ONNX Runtime
// and PyTorch, our fp32 lane, emulated lanes, and the fp32 lane with every site recorded. Prints
// medians and the ratios to each runtime in the same round. Without a file, ResNet-20 is exported
// for the comparison.
//   inference_bench [FILE.onnx] [--batch N] [--threads N] [--rounds R] [--python PROGRAM]
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/other_program.h"
#include "core/memory.h"
#include "core/models/models.h"
#include "core/numeric/formats/rng.h"
#include "core/onnx/export.h"
#include "core/onnx/import.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "emulation/threads.h"

namespace halfscope {
namespace {

/// Returns milliseconds per batch.
double our_pass(const Model& model, const Plan& plan, bool record) {
  const Executable executable = lower_inference(model, plan);
  const auto program = emulation_backend().compile(executable);
  write_weights(*program, executable.graph, starting_weights(model, 1, {}));
  for (const Input& input : executable.graph.inputs()) {
    const Value& value = executable.graph.value(input.value);
    const auto count = static_cast<size_t>(element_count(value.shape));
    if (value.type == ElementType::index) {
      program->write(input.value, std::span<const int32_t>(std::vector<int32_t>(count, 0)));
      continue;
    }
    std::vector<float> data(count);
    for (size_t i = 0; i < count; ++i)
      data[i] = static_cast<float>(splitmix64(i) >> 40) * 0x1p-23f - 1.0f;
    program->write(input.value, std::span<const float>(data));
  }
  std::vector<TensorStats> stats(record ? executable.taps.size() : 0);
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    const auto start = std::chrono::steady_clock::now();
    program->run(Entry::eval, stats);
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    if (i >= 2) times.push_back(spent.count());  // after the warm-up
  }
  return median(times);
}

nlohmann::json others(const std::string& python, const std::string& file, int64_t batch,
                      int threads) {
  const std::string command =
      fmt::format("{} {}/bench/runtime_infer.py {} --batch {} --threads {} 2>/dev/null", python,
                  HALFSCOPE_SOURCE_DIR, file, batch, threads);
  return json_of(command);
}

struct Settings {
  std::string file, python = "python3";
  int64_t batch = 128;
  int threads = 2, rounds = 5;
};

void run(const Settings& settings) {
  omp_set_num_threads(settings.threads);
  const bool given = !settings.file.empty();
  const Model model = given ? read_onnx(settings.file, {.batch = settings.batch}).model
                            : build_network("resnet20", settings.batch, {3, 32, 32}, 10);
  // The other runtimes get the network as it is here, with this batch size.
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "halfscope_inference_bench.onnx";
  const std::string bytes = onnx_bytes(model, starting_weights(model, 1, {}));
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));

  const std::vector<std::string> plans{"float32", "bfloat16", "mixed_float16"};
  std::vector<double> runtime, torch, recorded;
  std::vector<std::vector<double>> ours(plans.size());
  std::string versions;
  for (int round = 0; round < settings.rounds; ++round) {
    const nlohmann::json found =
        others(settings.python, file.string(), settings.batch, settings.threads);
    if (found.is_object()) {
      versions = fmt::format("ONNX Runtime {}, PyTorch {}", found.value("onnxruntime", "not found"),
                             found.value("torch", "not found"));
      if (found.contains("onnxruntime_ms")) runtime.push_back(found["onnxruntime_ms"]);
      if (!given && found.contains("torch_resnet20_ms"))
        torch.push_back(found["torch_resnet20_ms"]);
    }
    for (size_t i = 0; i < plans.size(); ++i)
      ours[i].push_back(our_pass(model, *preset_plan(plans[i]), false));
    recorded.push_back(our_pass(model, *preset_plan("float32"), true));
  }
  std::filesystem::remove(file);

  fmt::print("{}, batch {}, {} threads, {} rounds, kernels {}, {}\n", model.name, settings.batch,
             settings.threads, settings.rounds, isa_name(active_isa()), versions);
  fmt::print("{:<24} {:>10} {:>10} {:>17} {:>12}\n", "forward pass", "ms", "samples/s",
             "to ONNX Runtime", "to PyTorch");
  const auto row = [&](const std::string& name, const std::vector<double>& times) {
    if (times.empty()) return;
    const auto ratio = [&](const std::vector<double>& other) {
      std::vector<double> ratios;
      for (size_t i = 0; i < std::min(other.size(), times.size()); ++i)
        ratios.push_back(times[i] / other[i]);
      return ratios.empty() ? std::string("-") : fmt::format("{:.2f}", median(ratios));
    };
    fmt::print("{:<24} {:>10.2f} {:>10.0f} {:>17} {:>12}\n", name, median(times),
               1000.0 * static_cast<double>(settings.batch) / median(times), ratio(runtime),
               ratio(torch));
  };
  row("ONNX Runtime", runtime);
  row("PyTorch", torch);
  for (size_t i = 0; i < plans.size(); ++i) row(plans[i], ours[i]);
  row("float32, all measured", recorded);
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  halfscope::limit_spinning(argv);
  halfscope::keep_freed_memory();
  halfscope::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::max(1, std::atoi(argv[++i])) : 1; };
    if (flag == "--threads") {
      settings.threads = number();
    } else if (flag == "--rounds") {
      settings.rounds = number();
    } else if (flag == "--batch") {
      settings.batch = number();
    } else if (flag == "--python" && i + 1 < argc) {
      settings.python = argv[++i];
    } else {
      settings.file = flag;
    }
  }
  halfscope::run(settings);
}
