// SPDX-License-Identifier: MIT
// Promises and requirements of executors, on the host and on the simulated device: memory that
// starts with any bytes, aligned accesses, limits of launches, and inputs that arrive while earlier
// launches run.
#include "gpu/engine/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/bodies/indexing.h"
#include "gpu/bodies/several.h"
#include "gpu/engine/cuda_executor.cuh"
#include "gpu/engine/input_feed.h"
#include "gpu/engine/pinned_staging.cuh"

namespace halfscope::gpu {
namespace {

class Shuffled : public HostExecutor {
 public:
  Shuffled() : HostExecutor(HostOrder::shuffled) {}
};

template <class X>
class Executors : public testing::Test {
 protected:
  float* floats(int64_t count) {
    return static_cast<float*>(executor.allocate(static_cast<size_t>(count) * sizeof(float)));
  }
  std::vector<float> read(const float* from, size_t count) {
    std::vector<float> values(count);
    executor.download(values.data(), from, count * sizeof(float));
    return values;
  }

  X executor;
};
template <class X>
class ExecutorsDeathTest : public Executors<X> {};

using Both = testing::Types<Shuffled, CudaExecutor>;
class Names {
 public:
  template <class X>
  static std::string GetName(int) {  // NOLINT: googletest's name
    return std::is_same_v<X, CudaExecutor> ? "Simulated" : "Host";
  }
};
TYPED_TEST_SUITE(Executors, Both, Names);
TYPED_TEST_SUITE(ExecutorsDeathTest, Both, Names);

/// Reads what it shares and keeps before it writes there.
struct ReadsFirst {
  static constexpr int kThreads = 3;
  struct Shared {
    float value[kThreads];
  };
  struct State {
    float value;
  };
  float* seen;

  int64_t blocks() const { return 4; }
  HS_HD int64_t steps() const { return 2; }
  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    float* const at = seen + 2 * (block * kThreads + thread);
    if (s == 0) {
      at[0] = shared.value[thread];
      at[1] = state.value;
    } else {
      shared.value[thread] = 1.0f;
      state.value = 1.0f;
    }
  }
};

TYPED_TEST(Executors, MemoryOfBlocksStartsAsNan) {
  constexpr int64_t kCount = 4 * 3 * 2;
  float* const seen = this->floats(kCount);
  for (int launch = 0; launch < 2; ++launch) {
    this->executor.blocks(ReadsFirst{seen});
    for (const float each : this->read(seen, kCount)) EXPECT_TRUE(std::isnan(each));
  }
}

/// Copies several elements at once, from and to elements that may not be multiples of kSeveral.
struct CopySeveral {
  StoredInput from;
  float* to;
  int64_t first;
  bool reads_there;

  HS_HD void operator()(int64_t) const {
    float x[kSeveral];
    gpu::read(from, Neighbours{reads_there ? first : 0, kSeveral}, x);
    gpu::write(StoredOutput(to), Neighbours{reads_there ? 0 : first, kSeveral}, x);
  }
};

TYPED_TEST(ExecutorsDeathTest, AccessesAreAligned) {
  const float* const from = this->floats(32);
  float* const to = this->floats(32);
  for (const bool reads_there : {true, false}) {
    for (const int64_t first : {8, 4}) {
      this->executor.items(1, CopySeveral{from, to, first, reads_there});
    }
    EXPECT_DEATH(
        {
          this->executor.items(1, CopySeveral{from, to, 3, reads_there});
          static_cast<void>(this->read(to, 1));
        },
        "misaligned access: 16 bytes at an address that is 12 bytes after");
  }
  for (const Storage storage : {Storage::fp16, Storage::bf16}) {
    EXPECT_DEATH(
        {
          this->executor.items(1, CopySeveral{{from, storage}, to, 4, true});
          static_cast<void>(this->read(to, 1));
        },
        "misaligned access");
  }
}

struct TooMany {
  static constexpr int kThreads = 1;
  struct Shared {};
  struct State {};
  int64_t count;
  int64_t blocks() const { return count; }
  HS_HD int64_t steps() const { return 0; }
  HS_HD void step(int64_t, int64_t, int, Shared&, State&) const {}
};

TYPED_TEST(Executors, LaunchesHaveLimits) {
  EXPECT_THROW(this->executor.blocks(TooMany{int64_t{1} << 31}), Error);
  EXPECT_THROW(this->executor.blocks(TooMany{(int64_t{1} << 32) + 1}), Error);
  this->executor.blocks(TooMany{3});
}

/// Numbers that are different in every batch.
std::vector<float> batch(size_t count, int number) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(number * 1000) + i % 997;
  return values;
}

TYPED_TEST(Executors, InputsArriveInOrder) {
  constexpr size_t kCount = 5000, kBytes = kCount * sizeof(float);
  float* const place = this->floats(kCount);
  float* const seen = this->floats(6 * kCount);
  InputFeed<TypeParam> feed(this->executor, kBytes);
  for (size_t step = 0; step < 6; ++step) {
    std::vector<float> data = batch(kCount, static_cast<int>(step));
    feed.send(data.data(), kBytes,
              [&](const void* sent) { this->executor.copy(place, sent, kBytes); });
    data.assign(kCount, -1.0f);
    this->executor.items(kCount, Convert<float, float>{place, seen + step * kCount});
  }
  for (size_t step = 0; step < 6; ++step) {
    EXPECT_EQ(this->read(seen + step * kCount, kCount), batch(kCount, static_cast<int>(step)));
  }
}

// A step that uses a buffer later than it said reads what it must not.
TEST(OnSimulatedDevice, TheHostSpoilsBuffersThatWereRead) {
  HostExecutor executor(HostOrder::serial);
  InputFeed<HostExecutor> feed(executor, sizeof(float));
  const float* kept = nullptr;
  const float number = 3.0f;
  feed.send(&number, sizeof number, [&](const void* sent) {
    kept = static_cast<const float*>(sent);
    EXPECT_EQ(*kept, 3.0f);
  });
  EXPECT_TRUE(std::isnan(*kept));
}

/// Sends an input of so many bytes while a launch has not run yet.
void overtake(size_t bytes) {
  CudaExecutor executor;
  CudaExecutor::Buffer buffer;
  buffer.memory = executor.allocate(bytes);
  auto* const place = static_cast<float*>(executor.allocate(bytes));
  const std::vector<float> data = batch(bytes / sizeof(float), 1);
  executor.feed(buffer, data.data(), bytes);
  executor.copy(place, buffer.memory, bytes);
  executor.was_read(buffer);
  executor.items(16, Fill<float>{place, 1.0f});
  cudaEvent_t launched = nullptr;
  ASSERT_EQ(cudaEventCreate(&launched), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(launched, executor.stream()), cudaSuccess);
  executor.feed(buffer, data.data(), bytes);
  ASSERT_EQ(cudaEventSynchronize(buffer.filled), cudaSuccess);
  float ms = 0.0f;
  EXPECT_EQ(cudaEventElapsedTime(&ms, buffer.filled, buffer.filled), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, launched, launched), cudaErrorNotReady);
  executor.copy(place, buffer.memory, bytes);
  std::vector<float> seen(data.size());
  executor.download(seen.data(), place, bytes);
  EXPECT_EQ(seen, data);
  EXPECT_EQ(cudaEventDestroy(launched), cudaSuccess);
}

TEST(OnSimulatedDevice, InputsOvertakeLaunches) { overtake(64); }
// Nor does the host wait for launches where it reuses pinned memory.
TEST(PinnedMemory, InputsLargerThanItOvertakeLaunches) {
  overtake(3 * PinnedStaging::kHalfBytes + 64);
}

TEST(ExecutorsOrderDeathTest, BuffersAreFilledAfterTheirLastUse) {
  constexpr size_t kBytes = 64;
  CudaExecutor executor;
  CudaExecutor::Buffer buffer;
  buffer.memory = executor.allocate(kBytes);
  void* const place = executor.allocate(kBytes);
  const std::vector<float> data = batch(kBytes / sizeof(float), 1);
  executor.feed(buffer, data.data(), kBytes);
  executor.copy(place, buffer.memory, kBytes);
  EXPECT_DEATH(executor.feed(buffer, data.data(), kBytes), "neither waits for the other");
  executor.was_read(buffer);
  executor.feed(buffer, data.data(), kBytes);
}

}  // namespace
}  // namespace halfscope::gpu
