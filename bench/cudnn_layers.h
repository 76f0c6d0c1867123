// SPDX-License-Identifier: MIT
// Convolutions of known networks, and GPUs as cuDNN describes them, to ask cuDNN for its engines
// without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/bodies/products.h"

namespace halfscope {

/// A square convolution; `in` and `out` are channels of the whole tensors.
struct ConvLayer {
  int64_t in, side, out, kernel, stride, pad, groups = 1;

  gpu::ConvGeometry geometry(int64_t batch) const {
    const int64_t made = (side + 2 * pad - kernel) / stride + 1;
    return {.batch = batch,
            .group = groups,
            .in = in / groups,
            .height = side,
            .width = side,
            .out = out / groups,
            .kernel_h = kernel,
            .kernel_w = kernel,
            .stride_h = stride,
            .stride_w = stride,
            .pad_top = pad,
            .pad_left = pad,
            .pad_bottom = pad,
            .pad_right = pad,
            .out_height = made,
            .out_width = made};
  }
};

/// The distinct convolutions of ResNet-50 for images of 224 x 224 pixels (stride in the 3 x 3
/// ones).
inline std::vector<ConvLayer> resnet50_layers() {
  std::vector<ConvLayer> layers{{3, 224, 64, 7, 2, 3}, {64, 56, 64, 1, 1, 0}};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage, made = 4 * width, side = 56 >> stage;
    if (stage == 0) {
      layers.push_back({64, side, made, 1, 1, 0});
    } else {
      layers.push_back({made / 2, 2 * side, width, 1, 1, 0});
      layers.push_back({width, 2 * side, width, 3, 2, 1});
      layers.push_back({width, side, made, 1, 1, 0});
      layers.push_back({made / 2, 2 * side, made, 1, 2, 0});
    }
    layers.push_back({made, side, width, 1, 1, 0});
    layers.push_back({width, side, width, 3, 1, 1});
  }
  return layers;
}

/// The distinct convolutions of ResNet-20 for images of 32 x 32 pixels, with projections.
inline std::vector<ConvLayer> resnet20_layers() {
  return {{3, 32, 16, 3, 1, 1},  {16, 32, 16, 3, 1, 1}, {16, 32, 32, 3, 2, 1},
          {16, 32, 32, 1, 2, 0}, {32, 16, 32, 3, 1, 1}, {32, 16, 64, 3, 2, 1},
          {32, 16, 64, 1, 2, 0}, {64, 8, 64, 3, 1, 1}};
}

/// A GPU as cuDNN 9.19 describes devices.
struct DescribedGpu {
  std::string name, json;
};

/// The values in which the described GPUs differ.
struct GpuValues {
  int capability, processors;
  int64_t shared_memory;  ///< bytes that a block may request
  int64_t clock_khz, memory_clock_khz, cache, memory;
};

inline DescribedGpu described(const std::string& name, const std::string& device,
                              const GpuValues& of) {
  const auto number = [](const char* key, int64_t value) {
    return std::string("\"") + key + "\": " + std::to_string(value) + ", ";
  };
  return {name, "{" + number("deviceVer", of.capability) +
                    number("multiProcessorCount", of.processors) +
                    number("maxSharedMemoryPerBlockOptin", of.shared_memory) +
                    number("smClockRateKHz", of.clock_khz) +
                    number("memClockRateKHz", of.memory_clock_khz) +
                    number("l2CacheSize", of.cache) + number("totalGlobalMem", of.memory) +
                    R"("deviceName": ")" + device + R"(", "driverVer": 13000, "cudaDeviceId": 0,
        "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
        "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
        "supportCoopLaunch": 1})"};
}

// Values: NVIDIA's architecture whitepapers, and the compute capabilities in the CUDA C++
// Programming Guide.
inline DescribedGpu described_h100() {
  return described("H100", "NVIDIA H100 80GB HBM3",
                   {900, 132, 232448, 1980000, 2619000, 52428800, 85000000000});
}
inline DescribedGpu described_h200() {
  return described("H200", "NVIDIA H200",
                   {900, 132, 232448, 1980000, 3201000, 52428800, 150000000000});
}
inline DescribedGpu described_a100() {
  return described("A100", "NVIDIA A100-SXM4-80GB",
                   {800, 108, 166912, 1410000, 1593000, 41943040, 85000000000});
}

}  // namespace halfscope
