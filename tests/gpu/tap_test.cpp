// SPDX-License-Identifier: MIT
// Assumptions of the tap and of the gradient norm: the effect of rounding on each magnitude, and
// sums of sums.
#include "gpu/bodies/tap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/lower/lower.h"
#include "core/numeric/formats/rng.h"
#include "emulation/backends.h"
#include "gpu/backends.h"
#include "gpu/engine/executor.h"

namespace halfscope {
namespace {

TEST(Tap, KnowsWhatRoundingDoesToMagnitudes) {
  EXPECT_FALSE(gpu::losses_of(kE5m2).known);
  EXPECT_FALSE(gpu::losses_of(parse_format("fp16:sat").value()).known);
  for (const FloatFormat& format : {kFp16, kBf16, kFp32}) {
    const gpu::Losses losses = gpu::losses_of(format);
    ASSERT_TRUE(losses.known);
    std::vector<uint32_t> magnitudes;
    for (uint32_t upper = 0; upper < 0x7f80; ++upper) {
      for (const uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u,
                                   0x8001u, 0xe000u, 0xefffu, 0xf000u, 0xffffu}) {
        magnitudes.push_back(upper << 16 | lower);
      }
    }
    for (const uint32_t bits : magnitudes) {
      if (bits == 0) continue;
      const uint8_t flags = round_to_format(std::bit_cast<float>(bits), format).flags;
      ASSERT_EQ(losses.overflows(bits), (flags & kOverflow) != 0) << format_name(format) << bits;
      ASSERT_EQ(losses.flushes(bits), (flags & kFlushed) != 0) << format_name(format) << bits;
      ASSERT_EQ(losses.makes_subnormal(bits), (flags & kSubnormal) != 0)
          << format_name(format) << bits;
    }
  }
}

// Taps of one chunk, of several pieces and of none, in one launch.
TEST(Tap, AddsTheChunksOfAllTapsInOrder) {
  const std::vector<int64_t> counts{1, 1024, 0, 1025, 3000, 7};
  std::vector<gpu::TapSlot> slots(counts.size());
  std::vector<std::vector<double>> sums, squares;
  std::vector<gpu::ChunkSums> taps;
  uint64_t state = 1;
  const auto random = [&](int64_t count) {
    std::vector<double> list;
    for (int64_t i = 0; i < count; ++i) {
      list.push_back(static_cast<double>(splitmix64(state++) >> 11) * 0x1p-30);
    }
    return list;
  };
  for (const int64_t count : counts) {
    sums.push_back(random(count));
    squares.push_back(random(count));
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    taps.push_back({&slots[i], sums[i].data(), squares[i].data(), counts[i]});
  }
  gpu::HostExecutor executor(gpu::HostOrder::shuffled);
  executor.blocks(gpu::TapTotals{taps.data(), static_cast<int64_t>(taps.size()), 3000});
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(slots[i].sum, std::accumulate(sums[i].begin(), sums[i].end(), 0.0)) << counts[i];
    EXPECT_EQ(slots[i].sum_sq, std::accumulate(squares[i].begin(), squares[i].end(), 0.0));
  }
}

/// The sums of all chunks of 4096.
std::vector<double> chunk_sums(const std::vector<double>& terms) {
  std::vector<double> sums;
  for (size_t begin = 0; begin < terms.size(); begin += 4096) {
    double partial[16] = {};
    for (size_t i = begin; i < std::min(begin + 4096, terms.size()); ++i)
      partial[i % 16] += terms[i];
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
    }
    sums.push_back(partial[0]);
  }
  return sums;
}

// Enough elements for the chunk sums to fill more than one chunk themselves.
TEST(GradientNorm, IsASumOfSumsOnEveryBackend) {
  const std::vector<int64_t> sizes{4096 * 4096 + 5000, 1, 4097};
  Executable exe;
  std::vector<ValueId> gradients;
  std::vector<std::vector<float>> data;
  std::vector<double> sums;
  uint64_t state = 5;
  for (const int64_t size : sizes) {
    gradients.push_back(exe.graph.add_variable("g" + std::to_string(gradients.size()), {size}, {}));
    data.emplace_back();
    std::vector<double> squares;
    for (int64_t i = 0; i < size; ++i) {
      const auto value = static_cast<float>(splitmix64(state++) >> 40) * 0x1p-20f;
      data.back().push_back(value);
      squares.push_back(static_cast<double>(value) * static_cast<double>(value));
    }
    for (const double sum : chunk_sums(squares)) sums.push_back(sum);
  }
  const size_t of_chunks = sums.size();
  while (sums.size() > 1) sums = chunk_sums(sums);
  EXPECT_GT(of_chunks, 4096u);

  exe.gradient_norm = exe.graph.add1("GradientNorm", "norm", gradients);
  exe.entries[static_cast<size_t>(Entry::norm)].push_back(
      exe.graph.value(exe.gradient_norm).producer);
  for (const Backend* backend : {&emulation_backend(), &host_executor_backend()}) {
    const std::unique_ptr<Program> program = backend->compile(exe);
    for (size_t i = 0; i < data.size(); ++i) {
      program->write(gradients[i], std::span<const float>(data[i]));
    }
    program->run(Entry::norm, {});
    EXPECT_EQ(program->read_scalar(exe.gradient_norm), sums[0]) << backend->name();
  }
}

}  // namespace
}  // namespace halfscope
