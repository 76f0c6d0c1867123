// SPDX-License-Identifier: MIT
// Every one of the 2^32 floats, rounded to fp16 and bf16, against Eigen's conversions.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>

#include "core/numeric/round.h"

namespace halfscope {
namespace {

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

}  // namespace
}  // namespace halfscope
