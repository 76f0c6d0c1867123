// SPDX-License-Identifier: MIT
// The counting executor (bench/count) on bodies whose traffic is known, and the estimate.
#include <gtest/gtest.h>

#include "bench/count/counting_executor.h"
#include "core/host_device.h"
#include "core/numeric/elementary/elementary.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/work.h"

namespace halfscope::count {
namespace {

using gpu::In;
using gpu::Out;
using gpu::Storage;

struct AddBody {
  const float *a, *b;
  float* y;
  HS_HD void operator()(int64_t i) const { y[i] = a[i] + b[i]; }
};

/// Several halves at a time.
struct ScaleBody {
  In<float> x;
  gpu::Destination y;
  int64_t n;
  HS_HD void operator()(int64_t item) const {
    const gpu::Neighbours at = gpu::several_of(item, n);
    float value[gpu::kSeveral];
    gpu::read(x, at, value);
    gpu::write(y, at, value);
  }
};

/// Reads whole rows of n elements, `times` times.
struct RowBody {
  const float* x;
  double* y;
  int64_t n, times;
  HS_HD void operator()(int64_t row) const {
    double sum = 0.0;
    for (int64_t t = 0; t < times; ++t) {
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[row * n + i]);
    }
    y[row] = elementary::exp(sum);
  }
};

/// Every item reads the same small table.
struct TableBody {
  const float* table;
  float* y;
  HS_HD void operator()(int64_t i) const { y[i] = table[i % 1000]; }
};

/// One thread adds what the others have loaded.
struct SumBody {
  static constexpr int kThreads = 64;
  struct Shared {
    float value[kThreads];
  };
  struct State {};
  const float* x;
  float* y;
  int64_t count;
  int64_t blocks() const { return count; }
  HS_HD int64_t steps() const { return 2; }
  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0) {
      shared.value[thread] = x[block * kThreads + thread];
    } else if (thread == 0) {
      float sum = 0.0f;
      for (int t = 0; t < kThreads; ++t) sum += shared.value[t];
      y[block] = sum;
    }
  }
};

class Counted : public testing::Test {
 protected:
  template <class T>
  T* memory(int64_t count) {
    return static_cast<T*>(executor.allocate(static_cast<size_t>(count) * sizeof(T)));
  }
  const Launch& last() { return executor.launches().back(); }

  CountingExecutor executor;
};

TEST_F(Counted, ElementsAreReadAndWrittenOnce) {
  const int64_t n = 10'000'000;
  executor.items(n, AddBody{memory<float>(n), memory<float>(n), memory<float>(n)});
  EXPECT_NEAR(last().memory, 12.0 * static_cast<double>(n), 1e-3 * 12.0 * static_cast<double>(n));
  EXPECT_EQ(last().words, 3.0 * static_cast<double>(n));
  EXPECT_EQ(executor.allocated(), 12 * n);
}

TEST_F(Counted, HalvesTakeTwoBytes) {
  const int64_t n = 1 << 22;
  const auto* const x = memory<uint16_t>(n);
  auto* const y = memory<uint16_t>(n);
  executor.items(gpu::items_of_several(n),
                 ScaleBody{In<float>(x, Storage::fp16), {y, Storage::fp16, kFp16}, n});
  EXPECT_EQ(last().memory, 4.0 * static_cast<double>(n));
}

TEST_F(Counted, RowsThatDoNotFitAreReadAgain) {
  const int64_t rows = 8192, n = 10'000;
  const double bytes = 4.0 * static_cast<double>(rows * n);
  const RowBody once{memory<float>(rows * n), memory<double>(rows), n, 1};
  executor.items(rows, once);
  EXPECT_NEAR(last().memory, bytes, 0.01 * bytes);
  EXPECT_EQ(last().functions, static_cast<double>(rows));
  EXPECT_EQ(last().chain.functions, 1.0);
  // Four loads of a loop are one wait.
  const Launch::Chain& chain = last().chain;
  EXPECT_NEAR(chain.memory + chain.cache + chain.near, n / 4.0, 1.0);
  RowBody twice = once;
  twice.times = 2;
  executor.items(rows, twice);
  EXPECT_NEAR(last().memory, 2.0 * bytes, 0.02 * bytes);
}

TEST_F(Counted, ShortRowsStayInTheCache) {
  const int64_t rows = 8192, n = 16;
  const double bytes = 4.0 * static_cast<double>(rows * n) + 8.0 * static_cast<double>(rows);
  executor.items(rows, RowBody{memory<float>(rows * n), memory<double>(rows), n, 10});
  EXPECT_NEAR(last().memory, bytes, 0.01 * bytes);
}

TEST_F(Counted, ATableIsReadOnce) {
  const int64_t n = 32'000'000;
  executor.items(n, TableBody{memory<float>(1000), memory<float>(n)});
  EXPECT_NEAR(last().memory, 4.0 * static_cast<double>(n) + 4000.0, 1e-3 * static_cast<double>(n));
}

TEST_F(Counted, OneThreadsSharedLoadsAreAChain) {
  const int64_t blocks = 10'000;
  executor.blocks(
      SumBody{memory<float>(blocks * SumBody::kThreads), memory<float>(blocks), blocks});
  const double waves =
      static_cast<double>(blocks) / (kProcessors * (kResident / SumBody::kThreads));
  EXPECT_NEAR(last().chain.shared, waves * (SumBody::kThreads + 1), 1e-6);
  const double bytes = 4.0 * (SumBody::kThreads + 1) * static_cast<double>(blocks);
  EXPECT_NEAR(last().memory, bytes, 0.01 * bytes);
}

TEST_F(Counted, LaunchesOnOtherMemoryAreTheSame) {
  const int64_t n = 1 << 20;
  executor.items(n, AddBody{memory<float>(n), memory<float>(n), memory<float>(n)});
  const Launch first = last();
  executor.items(n, AddBody{memory<float>(n), memory<float>(n), memory<float>(n)});
  EXPECT_EQ(executor.launches().size(), 2u);
  EXPECT_EQ(last().memory, first.memory);
  EXPECT_EQ(last().words, first.words);
}

TEST(Estimate, ALaunchTakesWhatLimitsIt) {
  const Rates rates;
  Launch launch;
  launch.memory = rates.memory * 1e-3;
  EXPECT_NEAR(seconds(launch, rates), 1e-3 + rates.launch, 1e-9);
  launch.chain.memory = 4000.0;  // 2 ms
  EXPECT_NEAR(seconds(launch, rates), 2e-3 + rates.launch, 1e-9);
  Launch product;
  product.kind = Launch::Kind::product;
  product.m = product.n = 128 * 132;
  product.k = 1024;
  product.bits = 16;
  product.flop = 2.0 * 128 * 132 * 128 * 132 * 1024;
  const double best = product.flop / (rates.tensor_16 * rates.matrix_share);
  EXPECT_NEAR(seconds(product, rates), best + rates.launch, 1e-9);
  product.n = 64;  // few tiles, but long sums can be split
  product.flop = 2.0 * 128 * 132 * 64 * 1024;
  EXPECT_LT(seconds(product, rates),
            2.0 * product.flop / (rates.tensor_16 * rates.matrix_share) + rates.launch);
}

}  // namespace
}  // namespace halfscope::count
