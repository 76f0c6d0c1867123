// SPDX-License-Identifier: MIT
// The simulated device is as strict as it says: every mistake that it is there to find is made
// here.
#include "tests/gpu/simulated/device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include "core/bodies/elements.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/device_info.h"
#include "tests/gpu/simulated/cuda_runtime.h"

namespace halfscope::simulated {
namespace {

__global__ void count(int* counts) { ++counts[blockIdx.x * blockDim.x + threadIdx.x]; }
__global__ void write_at(int* place, int64_t at) { place[at] = 1; }
/// Every thread reads what its neighbour wrote before the barrier.
__global__ void rotate(int* values) {
  __shared__ std::array<int, 64> shared;
  shared[threadIdx.x] = values[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  values[blockIdx.x * 64 + threadIdx.x] = shared[(threadIdx.x + 1) % 64];
}
__global__ void some_leave(int leaving) {
  if (static_cast<int>(threadIdx.x) >= leaving) __syncthreads();
}

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
using SimulatedDevice = OnDevice;
using SimulatedDeviceDeathTest = OnDevice;

TEST_F(SimulatedDevice, IsWhatTheBackendSees) {
  const GpuReport report = query_gpus();
  ASSERT_EQ(report.devices.size(), 1u);
  EXPECT_EQ(report.devices[0].name, "simulated device");
}

TEST_F(SimulatedDevice, RunsEveryThreadOnce) {
  clear();
  ASSERT_EQ(launch(8, 128, count, memory), cudaSuccess);
  EXPECT_EQ(values(), std::vector<int>(kCount, 1));
}

TEST_F(SimulatedDevice, ThreadsMeetAtBarriers) {
  std::vector<int> before(kCount), after(kCount);
  for (int i = 0; i < kCount; ++i) {
    before[static_cast<size_t>(i)] = i;
    after[static_cast<size_t>(i)] = i / 64 * 64 + (i + 1) % 64;
  }
  ASSERT_EQ(
      cudaMemcpyAsync(memory, before.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream),
      cudaSuccess);
  before.assign(kCount, -1);  // it was read already
  ASSERT_EQ(launch(kCount / 64, 64, rotate, memory), cudaSuccess);
  EXPECT_EQ(values(), after);
}

TEST_F(SimulatedDevice, NothingRunsBeforeSomebodyWaits) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)), cudaSuccess);
  *pinned = 1;
  ASSERT_EQ(cudaMemcpyAsync(memory, pinned, sizeof(int), cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  *pinned = 2;
  EXPECT_EQ(values()[0], 2) << "a copy from pinned memory reads it when the stream gets there";
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// Work that another stream waits for runs, and nothing after it.
TEST_F(SimulatedDevice, StreamsWaitForEvents) {
  cudaStream_t other = nullptr;
  cudaEvent_t here = nullptr, there = nullptr;
  int* copied = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&here), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&there), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&copied), sizeof(int)), cudaSuccess);
  *copied = 7;
  EXPECT_EQ(cudaEventSynchronize(there), cudaSuccess) << "nobody recorded it";
  clear();
  ASSERT_EQ(launch(8, 128, count, memory), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(here, stream), cudaSuccess);
  ASSERT_EQ(launch(8, 128, count, memory), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, here, 0), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(copied, memory, sizeof(int), cudaMemcpyDeviceToHost, other),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(there, other), cudaSuccess);
  float ms = 0.0f;
  EXPECT_EQ(cudaEventElapsedTime(&ms, here, there), cudaErrorNotReady);
  EXPECT_EQ(*copied, 7);
  ASSERT_EQ(cudaEventSynchronize(there), cudaSuccess);
  EXPECT_EQ(*copied, 1);
  EXPECT_EQ(cudaEventElapsedTime(&ms, here, there), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory + 1, memory, sizeof(int), cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(values()[1], 2);
  EXPECT_EQ(cudaFreeHost(copied), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(here), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(there), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(SimulatedDevice, MemoryBeginsAsNoNumber) { EXPECT_EQ(values()[5], -1); }

TEST_F(SimulatedDevice, CapturesLaunchesAndNothingElse) {
  clear();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(launch(8, 128, count, memory), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(values()[0], 0) << "nothing runs while it is captured";
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
  EXPECT_EQ(values(), std::vector<int>(kCount, 2));

  void* more = nullptr;
  for (const bool waits : {true, false}) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(waits ? cudaStreamSynchronize(stream) : cudaMalloc(&more, 1),
              cudaErrorStreamCaptureUnsupported);
    cudaGraph_t none = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &none), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(none, nullptr);
  }
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
}

TEST_F(SimulatedDevice, RunsOutOfMemory) {
  limit_memory(int64_t{1} << 20);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, size_t{1} << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&more, size_t{1} << 19), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  limit_memory(int64_t{80} << 30);
}

TEST_F(SimulatedDeviceDeathTest, HostAndDeviceKeepTheirMemoryApart) {
  int here = 0;
  EXPECT_DEATH(launch(1, 1, count, &here), "handed a pointer to the host");
  EXPECT_DEATH(*memory = 1, "");
  EXPECT_DEATH(cudaMemcpyAsync(memory, memory, sizeof(int), cudaMemcpyHostToDevice, stream),
               "takes the device's memory for the host's");
  int* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_DEATH(launch(1, 1, count, freed), "handed memory that is free");
}

// Structures on the stack keep old pointers between their members.
TEST_F(SimulatedDevice, BytesBetweenMembersAreNoPointers) {
  using Body = gpu::RoundedElements<3, Exactly<MulOp>>;
  const int here = 0;
  const int* const old = &here;
  alignas(Body) std::array<std::byte, sizeof(Body)> bytes;
  for (size_t at = 0; at + sizeof old <= sizeof bytes; at += sizeof old) {
    std::memcpy(bytes.data() + at, &old, sizeof old);
  }
  Body& body = *new (bytes.data()) Body;
  float* const on_device = reinterpret_cast<float*>(memory);
  body.y = on_device;
  for (auto& x : body.x) x = on_device;
  body.write = kFp16;
  check_argument(body);
}

TEST_F(SimulatedDeviceDeathTest, WritesBehindMemoryAreSeen) {
  EXPECT_DEATH(
      {
        int* little = nullptr;
        static_cast<void>(cudaMalloc(&little, sizeof(int)));
        static_cast<void>(launch(1, 1, write_at, little, int64_t{64}));
        static_cast<void>(cudaFree(little));
      },
      "wrote behind its memory");
}

TEST_F(SimulatedDeviceDeathTest, BarriersAreForAllThreads) {
  for (const int leaving : {1, 63}) {
    EXPECT_DEATH(
        {
          static_cast<void>(launch(1, 64, some_leave, leaving));
          static_cast<void>(cudaStreamSynchronize(stream));
        },
        "a thread leaves others waiting|does not come to");
  }
}

TEST_F(SimulatedDeviceDeathTest, ItIsLostForGood) {
  EXPECT_EXIT(
      {
        lose_after(1);
        const bool first = launch(1, 1, count, memory) == cudaSuccess;
        const bool second = launch(1, 1, count, memory) == cudaErrorLaunchFailure;
        const bool later = cudaStreamSynchronize(stream) == cudaErrorLaunchFailure;
        std::exit(first && second && later ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace halfscope::simulated
