// SPDX-License-Identifier: MIT
// Every one of the 2^32 floats through the kernels, compared with round_to_format. One pass also
// measures, so that all counters are compared: to nearest even with every instruction set. To save
// time, the other modes run without counters and with the active instruction set only, which is the
// strongest unless HALFSCOPE_ISA says otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <vector>

#include "core/numeric/formats/round.h"
#include "emulation/measure/measure.h"
#include "tests/measure/measure_data.h"

namespace halfscope {
namespace {

constexpr int64_t kBatch = int64_t{1} << 20;

/// The reference, chunk by chunk so that threads can share the work; same sums as in one go.
TensorStats measure_in_parallel(const std::vector<float>& exact, std::vector<float>& rounded,
                                const FloatFormat& format) {
  std::vector<TensorStats> parts(static_cast<size_t>(kBatch / kSumChunk));
#pragma omp parallel for schedule(static)
  for (size_t c = 0; c < parts.size(); ++c) {
    const size_t size = static_cast<size_t>(kSumChunk);
    parts[c] = measure(std::span(exact).subspan(c * size, size),
                       std::span(rounded).subspan(c * size, size), format);
  }
  TensorStats total;
  for (const TensorStats& part : parts) total.merge(part);
  return total;
}

/// Number of batches in which any instruction set differs from the reference.
int64_t differences(const FloatFormat& format) {
  const testing::IsaGuard guard;
  int64_t count = 0;
  std::vector<float> exact(static_cast<size_t>(kBatch));
  std::vector<float> want(exact.size()), got(exact.size());
  for (int64_t first = 0; first < int64_t{1} << 32; first += kBatch) {
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] = std::bit_cast<float>(static_cast<uint32_t>(first) + static_cast<uint32_t>(i));
    }
    const TensorStats want_stats = measure_in_parallel(exact, want, format);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      const TensorStats got_stats = measure_tensor(exact.data(), got.data(), kBatch, format);
      count += testing::first_difference(got, want) != -1 || got_stats != want_stats;
    }
  }
  return count;
}

TEST(MeasureSweepTest, Half) { EXPECT_EQ(differences(kFp16), 0); }
TEST(MeasureSweepTest, Bfloat16) { EXPECT_EQ(differences(kBf16), 0); }
TEST(MeasureSweepTest, E4m3fn) { EXPECT_EQ(differences(kE4m3fn), 0); }
TEST(MeasureSweepTest, E5m2) { EXPECT_EQ(differences(kE5m2), 0); }

class ModeSweepTest : public ::testing::TestWithParam<RoundingMode> {};

TEST_P(ModeSweepTest, Half) {
  const TensorRounding rounding{.mode = GetParam(), .key = 7};
  std::vector<float> exact(static_cast<size_t>(kBatch)), got(exact.size());
  int64_t count = 0;
  for (int64_t first = 0; first < int64_t{1} << 32; first += kBatch) {
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] = std::bit_cast<float>(static_cast<uint32_t>(first) + static_cast<uint32_t>(i));
    }
    round_tensor(exact.data(), got.data(), kBatch, kFp16, rounding.from(first));
#pragma omp parallel for schedule(static) reduction(+ : count)
    for (int64_t i = 0; i < kBatch; ++i) {
      const float x = exact[static_cast<size_t>(i)];
      const float want = round_to_format(x, kFp16, rounding.element(first + i)).value;
      count +=
          std::bit_cast<uint32_t>(got[static_cast<size_t>(i)]) != std::bit_cast<uint32_t>(want);
    }
  }
  EXPECT_EQ(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, ModeSweepTest,
                         ::testing::Values(RoundingMode::nearest_away, RoundingMode::toward_zero,
                                           RoundingMode::up, RoundingMode::odd),
                         [](const auto& info) {
                           std::string name(rounding_mode_name(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace halfscope
