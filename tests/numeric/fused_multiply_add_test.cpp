// SPDX-License-Identifier: MIT
// fused_multiply_add() against the C library's std::fma.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/numeric/formats/fused.h"
#include "core/numeric/formats/rng.h"

namespace halfscope {
namespace {

bool same(float x, float y) {
  return (std::isnan(x) && std::isnan(y)) ||
         std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
}

/// Returns a float with random bits, an exponent field in [first, first + count), and zeros in the
/// last `zeros` bits.
float draw(uint64_t& state, uint32_t first, uint32_t count, int zeros) {
  const uint64_t word = splitmix64(state++);
  const uint32_t field = first + static_cast<uint32_t>(word >> 32) % count;
  const uint32_t fraction = static_cast<uint32_t>(word) & 0x7fffffu & (~0u << zeros);
  return std::bit_cast<float>((static_cast<uint32_t>(word >> 63) << 31) | field << 23 | fraction);
}

TEST(FusedMultiplyAdd, EqualsTheLibrary) {
  struct Range {
    uint32_t a, a_count, b, b_count, c, c_count;
  };
  // Any floats; sums that cancel or cover each other in part; subnormal results.
  const Range ranges[] = {{0, 256, 0, 256, 0, 256},
                          {120, 14, 120, 14, 100, 50},
                          {40, 50, 20, 40, 0, 4},
                          {60, 8, 55, 8, 0, 2}};
  uint64_t state = 1;
  for (const Range& range : ranges) {
    for (const int zeros : {0, 8, 12, 13, 16, 20}) {
      for (int i = 0; i < 50000; ++i) {
        const float a = draw(state, range.a, range.a_count, zeros);
        const float b = draw(state, range.b, range.b_count, zeros);
        const float c = draw(state, range.c, range.c_count, zeros / 2);
        ASSERT_TRUE(same(fused_multiply_add(a, b, c), std::fma(a, b, c)))
            << std::hexfloat << a << " * " << b << " + " << c;
      }
    }
  }
}

TEST(FusedMultiplyAdd, RoundsOnceWhereTwoRoundingsDiffer) {
  // 2^-24 is half an ulp of 1. Whether the product is above or below it is decided by bits that a
  // double near 1 does not have.
  const float above = 0x1.000002p-12f, below = 0x1.fffffep-13f, half = 0x1p-12f;
  for (const float c : {1.0f, 1.0f + 0x1p-23f, -1.0f, -1.0f - 0x1p-23f}) {
    for (const float a : {above, below, half, -above, -below, -half}) {
      for (const float b : {above, below, half}) {
        EXPECT_TRUE(same(fused_multiply_add(a, b, c), std::fma(a, b, c)))
            << std::hexfloat << a << " * " << b << " + " << c;
      }
    }
  }
  EXPECT_EQ(fused_multiply_add(0x1p-12f + 0x1p-35f, 0x1p-12f, 1.0f), 1.0f + 0x1p-23f);
  EXPECT_EQ(fused_multiply_add(0x1p-30f, 0x1p-30f, 1.0f), 1.0f);
}

TEST(FusedMultiplyAdd, KeepsSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float a : {0.0f, -0.0f, 1.0f, -1.0f, infinity, -infinity, 0x1.fffffep127f}) {
    for (const float b : {0.0f, -0.0f, 2.0f, infinity}) {
      for (const float c : {0.0f, -0.0f, -2.0f, infinity, -infinity, -0x1.fffffep127f}) {
        EXPECT_TRUE(same(fused_multiply_add(a, b, c), std::fma(a, b, c))) << a << b << c;
      }
    }
  }
}

}  // namespace
}  // namespace halfscope
