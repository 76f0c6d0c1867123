// SPDX-License-Identifier: MIT
// The simulated device is as strict as it says: every mistake that it is there to find is made
// here.
#include "tests/gpu/simulated/device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#include "core/bodies/elements.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/device_info.h"
#include "tests/gpu/simulated/on_device.h"

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
  Pointers seen;
  clear_padding(body);
  check_argument(Argument(body), seen);
  EXPECT_EQ(seen, Pointers({memory, memory, memory, memory}));
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

TEST_F(SimulatedDevice, LaunchesHaveLimits) {
  clear();
  const auto refuses = [&](const auto& change) {
    cudaLaunchConfig_t grid{};
    grid.gridDim = dim3(1);
    grid.blockDim = dim3(1);
    grid.stream = stream;
    change(grid);
    return cudaLaunchKernelEx(&grid, count, memory) == cudaErrorInvalidConfiguration;
  };
  EXPECT_FALSE(refuses([](cudaLaunchConfig_t& grid) { grid.blockDim.x = 1024; }));
  EXPECT_TRUE(refuses([](cudaLaunchConfig_t& grid) { grid.blockDim.x = 1025; }));
  EXPECT_TRUE(refuses([](cudaLaunchConfig_t& grid) { grid.blockDim.x = 0; }));
  EXPECT_TRUE(refuses([](cudaLaunchConfig_t& grid) { grid.gridDim.x = 0; }));
  EXPECT_TRUE(refuses([](cudaLaunchConfig_t& grid) { grid.gridDim.x = 1u << 31; }));
  EXPECT_TRUE(refuses([](cudaLaunchConfig_t& grid) { grid.dynamicSmemBytes = 1; }));
  EXPECT_EQ(values()[1023], 1);
}

TEST_F(SimulatedDeviceDeathTest, SharedMemoryHasALimit) {
  char shared = 0, own = 0;
  EXPECT_DEATH(leave_unset(&shared, (size_t{48} << 10) + 1, &own, 1), "more memory than it can");
}

// Programs that pin memory in every step are slow, so this shows in the times of steps.
TEST_F(SimulatedDevice, PinningTakesTime) {
  constexpr size_t kBytes = size_t{3} << 20;
  cudaEvent_t before = nullptr, after = nullptr;
  ASSERT_EQ(cudaEventCreate(&before), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&after), cudaSuccess);
  const int64_t pinned = transfers().pinned;
  std::vector<char> own(kBytes);
  void* taken = nullptr;
  for (const bool registers : {false, true}) {
    ASSERT_EQ(cudaEventRecord(before, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(registers ? cudaHostRegister(own.data(), kBytes, cudaHostRegisterDefault)
                        : cudaMallocHost(&taken, kBytes),
              cudaSuccess);
    ASSERT_EQ(cudaEventRecord(after, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    float ms = 0.0f;
    ASSERT_EQ(cudaEventElapsedTime(&ms, before, after), cudaSuccess);
    EXPECT_EQ(ms, 4.0f);
  }
  EXPECT_EQ(transfers().pinned - pinned, 2);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(taken), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(before), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(after), cudaSuccess);
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
