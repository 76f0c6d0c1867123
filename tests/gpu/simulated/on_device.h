// SPDX-License-Identifier: MIT
// A fixture for tests of the simulated device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/gpu/simulated/cuda_runtime.h"

namespace halfscope::simulated {

/// A stream, and memory for this many ints that is freed with it.
class OnDevice : public testing::Test {
 protected:
  OnDevice() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory, kCount * sizeof(int)), cudaSuccess);
  }
  ~OnDevice() override {
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  template <class... Parameters, class... Arguments>
  cudaError_t launch(unsigned blocks, unsigned threads, void (*kernel)(Parameters...),
                     Arguments... arguments) {
    cudaLaunchConfig_t grid{};
    grid.gridDim = dim3(blocks);
    grid.blockDim = dim3(threads);
    grid.stream = stream;
    return cudaLaunchKernelEx(&grid, kernel, arguments...);
  }
  std::vector<int> values() {
    std::vector<int> all(kCount);
    EXPECT_EQ(
        cudaMemcpyAsync(all.data(), memory, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return all;
  }
  void clear() { EXPECT_EQ(cudaMemsetAsync(memory, 0, kCount * sizeof(int), stream), cudaSuccess); }

  static constexpr int64_t kCount = 1024;  // a page, so that the next one is somebody else's
  cudaStream_t stream = nullptr;
  int* memory = nullptr;
};

}  // namespace halfscope::simulated
