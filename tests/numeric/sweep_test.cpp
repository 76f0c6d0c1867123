// SPDX-License-Identifier: MIT
// Every one of the 2^32 floats. To nearest even, fp16 and bf16 are compared with Eigen's
// conversions. Every deterministic mode is compared with the enumerated format, whose results
// change only at values and at points half way: round_to_format must agree there and be constant in
// between. So every float is rounded to fp16, and every 13th (a stride prime to 2) to bf16, tf32
// and the 8-bit formats; round_modes_test.cpp covers all points of change.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/numeric/formats/round.h"
#include "tests/numeric/enumerated_format.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;
using testing::kDeterministicModes;

template <class Other>
int64_t differences(const FloatFormat& format) {
  int64_t count = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : count)
  for (int64_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower = 0; lower < 0x10000; ++lower) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(upper) << 16 | lower);
      const float got = round_to_format(x, format).value;
      const float want = static_cast<float>(static_cast<Other>(x));
      const bool same = std::isnan(want)
                            ? std::isnan(got) && std::signbit(got) == std::signbit(x)
                            : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want);
      count += !same;
    }
  }
  return count;
}

TEST(RoundSweepTest, Half) { EXPECT_EQ(differences<Eigen::half>(kFp16), 0); }
TEST(RoundSweepTest, Bfloat16) { EXPECT_EQ(differences<Eigen::bfloat16>(kBf16), 0); }

/// From `first` (bits of a magnitude) to the next one's, rounding gives `result`.
struct Interval {
  uint32_t first, result;
};

uint32_t result_bits(double value) {
  return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(static_cast<float>(value));
}

std::vector<Interval> intervals(const EnumeratedFormat& oracle, bool negative, RoundingMode mode) {
  std::vector<Interval> result;
  const auto add = [&](uint32_t bits) {
    const double x = static_cast<double>(std::bit_cast<float>(bits));
    const double value = oracle.round(negative ? -x : x, {.mode = mode}).value;
    if (!result.empty() && result.back().result == result_bits(value)) return;
    result.push_back({bits, result_bits(value)});
  };
  for (int64_t code = 0; code < oracle.finite_codes(); ++code) {
    for (const double point : {oracle.decode(code), oracle.midpoint(code)}) {
      const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(point));
      add(bits);
      add(bits + 1);
    }
  }
  const double beyond = oracle.decode(oracle.finite_codes());
  if (beyond <= static_cast<double>(std::numeric_limits<float>::max())) {
    add(std::bit_cast<uint32_t>(static_cast<float>(beyond)));
  }
  add(0x7f800000u);
  return result;
}

/// Floats up to infinity, every `stride`th, that do not give what their interval says.
int64_t outside_intervals(const FloatFormat& format, const std::vector<Interval>& table,
                          bool negative, RoundingMode mode, uint32_t stride) {
  constexpr int64_t kBlock = 1 << 20, kEnd = 0x7f800001;
  int64_t count = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : count)
  for (int64_t block = 0; block < kEnd; block += kBlock) {
    uint32_t bits = static_cast<uint32_t>((block + stride - 1) / stride * stride);
    const uint32_t end = static_cast<uint32_t>(std::min(block + kBlock, kEnd));
    auto next =
        std::upper_bound(table.begin(), table.end(), bits,
                         [](uint32_t value, const Interval& each) { return value < each.first; });
    const Rounding rounding{.mode = mode};
    for (; bits < end; bits += stride) {
      while (next != table.end() && bits >= next->first) ++next;
      const float x = std::bit_cast<float>(negative ? bits | 0x80000000u : bits);
      const float got = round_to_format(x, format, rounding).value;
      const uint32_t want = (next - 1)->result;
      const uint32_t got_bits = std::isnan(got) ? 0x7fc00000u : std::bit_cast<uint32_t>(got);
      count += got_bits != want;
    }
  }
  return count;
}

void sweep(const FloatFormat& format, uint32_t stride) {
  const EnumeratedFormat oracle(format);
  for (const RoundingMode mode : kDeterministicModes) {
    for (const bool negative : {false, true}) {
      const std::vector<Interval> table = intervals(oracle, negative, mode);
      EXPECT_EQ(outside_intervals(format, table, negative, mode, stride), 0)
          << format_name(format) << " " << rounding_mode_name(mode) << " negative " << negative;
    }
  }
}

TEST(RoundSweepTest, EveryFloatInEveryModeToHalf) { sweep(kFp16, 1); }

TEST(RoundSweepTest, EveryThirteenthFloatInEveryModeToOtherFormats) {
  for (const FloatFormat& format : {kBf16, kTf32, kE4m3fn, kE5m2, kE4m3fnuz, kE5m2fnuz,
                                    *parse_format("e4m3"), *parse_format("e4m3fn:sat")}) {
    sweep(format, 13);
  }
}

}  // namespace
}  // namespace halfscope
