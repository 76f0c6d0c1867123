// SPDX-License-Identifier: MIT
// The simulated device runs work late, in the order of its streams and events, and ends programs
// that rely on any other order.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/gpu/simulated/on_device.h"

namespace halfscope::simulated {
namespace {

__global__ void count(int* counts) { ++counts[blockIdx.x * blockDim.x + threadIdx.x]; }

/// Has a second stream, two events, and pinned memory for one int.
class Streams : public OnDevice {
 protected:
  Streams() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&here), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&there), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)), cudaSuccess);
    *pinned = 7;
  }
  ~Streams() override {
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(here), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(there), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  }
  void run_count() { EXPECT_EQ(launch(8, 128, count, memory), cudaSuccess); }
  void fetch_on_other() {
    EXPECT_EQ(cudaMemcpyAsync(pinned, memory, sizeof(int), cudaMemcpyDeviceToHost, other),
              cudaSuccess);
  }
  void send_on_other() {
    EXPECT_EQ(cudaMemcpyAsync(memory, pinned, sizeof(int), cudaMemcpyHostToDevice, other),
              cudaSuccess);
  }
  void other_waits() {
    EXPECT_EQ(cudaEventRecord(here, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(other, here, 0), cudaSuccess);
  }
  void waits_for_other() {
    EXPECT_EQ(cudaEventRecord(there, other), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream, there, 0), cudaSuccess);
  }

  cudaStream_t other = nullptr;
  cudaEvent_t here = nullptr, there = nullptr;
  int* pinned = nullptr;
};
using StreamsDeathTest = Streams;

// Work that another stream waits for runs, and nothing after it.
TEST_F(Streams, WaitForEvents) {
  EXPECT_EQ(cudaEventSynchronize(there), cudaSuccess) << "nobody recorded it";
  clear();
  run_count();
  other_waits();
  fetch_on_other();
  ASSERT_EQ(cudaEventRecord(there, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream, there, 0), cudaSuccess);
  run_count();
  float ms = 0.0f;
  EXPECT_EQ(cudaEventElapsedTime(&ms, here, there), cudaErrorNotReady);
  EXPECT_EQ(*pinned, 7);
  ASSERT_EQ(cudaEventSynchronize(there), cudaSuccess);
  EXPECT_EQ(*pinned, 1);
  EXPECT_EQ(cudaEventElapsedTime(&ms, here, there), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(memory + 1, memory, sizeof(int), cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  EXPECT_EQ(values()[1], 2);
}

TEST_F(StreamsDeathTest, OneReadsWhatTheOtherWrites) {
  clear();
  run_count();
  EXPECT_DEATH(fetch_on_other(), "neither waits for the other");
  other_waits();
  fetch_on_other();
  EXPECT_DEATH(run_count(), "neither waits for the other") << "it writes what is being read";
  EXPECT_DEATH(static_cast<void>(enqueue(stream, [] {}, {memory})), "neither waits for the other");
  waits_for_other();
  run_count();
  EXPECT_DEATH(send_on_other(), "neither waits for the other") << "that event was earlier";
}

TEST_F(StreamsDeathTest, OneWritesWhatTheOtherReads) {
  send_on_other();
  EXPECT_DEATH(static_cast<void>(values()), "neither waits for the other");
  waits_for_other();
  EXPECT_EQ(values()[0], 7);
}

TEST_F(Streams, BothMayRead) {
  clear();
  other_waits();
  fetch_on_other();
  EXPECT_EQ(values()[0], 0);
}

TEST_F(Streams, TheHostOrdersThem) {
  clear();
  run_count();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  fetch_on_other();
  EXPECT_EQ(cudaEventRecord(there, other), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(there), cudaSuccess);
  run_count();
  EXPECT_EQ(values()[0], 2);
  EXPECT_EQ(*pinned, 1);
}

// An event covers what it was recorded after, and what that had waited for.
TEST_F(Streams, OrderIsHandedOn) {
  cudaStream_t third = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking), cudaSuccess);
  clear();
  run_count();
  other_waits();
  ASSERT_EQ(cudaEventRecord(there, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(third, there, 0), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, memory, sizeof(int), cudaMemcpyDeviceToHost, third),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(third), cudaSuccess);
  EXPECT_EQ(*pinned, 1);
  EXPECT_EQ(cudaStreamDestroy(third), cudaSuccess);
  clear();  // the stream is gone, and is not waited for
}

TEST_F(StreamsDeathTest, PinnedMemoryStaysUntilItIsCopied) {
  send_on_other();
  *pinned = 8;
  EXPECT_DEATH(static_cast<void>(cudaStreamSynchronize(other)), "pinned memory was changed");
  *pinned = 7;
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  *pinned = 8;
}

// A graph keeps its arguments, so it must not outlive their memory.
TEST_F(StreamsDeathTest, GraphsUseNoFreedMemory) {
  int* own = nullptr;
  ASSERT_EQ(cudaMalloc(&own, sizeof(int)), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(launch(1, 1, count, own), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
  EXPECT_DEATH(
      {
        run_count();
        other_waits();
        static_cast<void>(cudaGraphLaunch(ready, other));
        static_cast<void>(cudaGraphLaunch(ready, stream));
      },
      "neither waits for the other");
  ASSERT_EQ(cudaFree(own), cudaSuccess);
  int* next = nullptr;
  ASSERT_EQ(cudaMalloc(&next, sizeof(int)), cudaSuccess);
  EXPECT_EQ(next, own) << "at the same address";
  EXPECT_DEATH(static_cast<void>(cudaGraphLaunch(ready, stream)), "memory that was freed");
  EXPECT_EQ(cudaFree(next), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
}

}  // namespace
}  // namespace halfscope::simulated
