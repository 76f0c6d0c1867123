// SPDX-License-Identifier: MIT
// Runs an ONNX network on random samples under two plans, and prints how much its outputs differ.
// Without an argument, it first writes example.onnx and runs that.
//   06_onnx_network [FILE.onnx]
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "halfscope/core/error.h"
#include "halfscope/core/models/models.h"
#include "halfscope/core/numeric/formats/rng.h"
#include "halfscope/core/onnx/export.h"
#include "halfscope/core/onnx/import.h"
#include "halfscope/core/policy/policy.h"
#include "halfscope/core/train/lane_setup.h"
#include "halfscope/core/train/runner.h"
#include "halfscope/emulation/backends.h"

namespace {

using namespace halfscope;

/// Returns samples that are uniform in [-1, 1); inputs of positions or labels get 0 and 1.
Dataset random_samples(const Graph& graph, int64_t samples) {
  Dataset data;
  data.name = "random";
  uint64_t draw = 0;
  for (const Input& input : graph.inputs()) {
    const Value& value = graph.value(input.value);
    SampleArray array{.name = input.name, .sample_shape = value.shape, .samples = samples};
    if (!value.shape.empty()) array.sample_shape.erase(array.sample_shape.begin());
    for (int64_t i = 0; i < samples * element_count(array.sample_shape); ++i) {
      const uint64_t bits = splitmix64(++draw);
      if (value.type == ElementType::index) {
        array.integers.push_back(static_cast<int32_t>(bits & 1));
      } else {
        array.reals.push_back(static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f);
      }
    }
    data.test.arrays.push_back(std::move(array));
  }
  return data;
}

void compare(const std::string& file) {
  const int64_t samples = 16;
  const OnnxImport network = read_onnx(file, {.batch = samples});
  const Dataset data = random_samples(network.model.graph, samples);
  RunnerConfig config;
  for (const char* plan : {"float32", "mixed_float16"})
    config.lanes.push_back({*preset_plan(plan), {}, &emulation_backend()});
  Runner runner(network.model, config, data);
  const std::atomic<bool> stop{false};
  runner.run(nullptr, nullptr, stop);
  for (const auto& [name, exact] : runner.result(0).outputs) {
    const Tensor& rounded = runner.result(1).outputs.at(name);
    double squared_error = 0.0, norm = 0.0;
    for (size_t i = 0; i < exact.data.size(); ++i) {
      squared_error +=
          std::pow(static_cast<double>(rounded.data[i]) - static_cast<double>(exact.data[i]), 2);
      norm += std::pow(static_cast<double>(exact.data[i]), 2);
    }
    std::printf("%s %s: mixed_float16 is off by %.2e of float32's size\n", name.c_str(),
                to_string(exact.shape).c_str(), std::sqrt(squared_error / norm));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) return compare(argv[1]), 0;
  const Model mlp = build_mlp({20, 64, 10}, 16, {20});
  std::ofstream("example.onnx", std::ios::binary) << onnx_bytes(mlp, starting_weights(mlp, 1, {}));
  compare("example.onnx");
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
