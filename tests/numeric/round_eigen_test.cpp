// SPDX-License-Identifier: MIT
// round_to_format compared with independent conversions: Eigen::half, Eigen::bfloat16 and, if
// available, the compiler's half type.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

template <class Other>
float through(float x) {
  return static_cast<float>(static_cast<Other>(x));
}

/// Same bits; of NaNs only that both are, with the same sign, since payloads are kept variously.
template <class Other>
void expect_same(uint32_t bits, const FloatFormat& format) {
  const float x = std::bit_cast<float>(bits);
  const float got = round_to_format(x, format).value;
  const float want = through<Other>(x);
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got) && std::signbit(got) == std::signbit(x)) << std::hex << bits;
  } else {
    ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << std::hex << bits;
  }
}

/// The float bits around every value of a 16-bit type and around the points half way.
template <class Other, class Visit>
void visit_boundaries(const FloatFormat& format, Visit visit) {
  const uint32_t half_step = 1u << (22 - format.mantissa_bits);
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = static_cast<float>(std::bit_cast<Other>(static_cast<uint16_t>(code)));
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    visit(bits);
    if (std::isnan(value)) continue;
    // Half a step up and down: half a step of the own binade, and for subnormal values of the
    // type by arithmetic, where steps are not a fixed number of float bits.
    const float step = std::ldexp(1.0f, format.min_exponent() - format.mantissa_bits - 1);
    for (const uint32_t centre :
         {bits, bits + half_step, bits - half_step / 2, std::bit_cast<uint32_t>(value + step),
          std::bit_cast<uint32_t>(value - step)}) {
      for (const uint32_t near : {centre - 1, centre, centre + 1}) visit(near);
    }
  }
}

TEST(RoundEigenTest, HalfAtEveryBoundary) {
  visit_boundaries<Eigen::half>(kFp16,
                                [](uint32_t bits) { expect_same<Eigen::half>(bits, kFp16); });
}

TEST(RoundEigenTest, Bfloat16AtEveryBoundary) {
  visit_boundaries<Eigen::bfloat16>(
      kBf16, [](uint32_t bits) { expect_same<Eigen::bfloat16>(bits, kBf16); });
}

TEST(RoundEigenTest, RandomAndStridePatterns) {
  std::mt19937 generator(3);
  for (int i = 0; i < 4000000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(generator());
    ASSERT_NO_FATAL_FAILURE(expect_same<Eigen::half>(bits, kFp16));
    ASSERT_NO_FATAL_FAILURE(expect_same<Eigen::bfloat16>(bits, kBf16));
  }
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1021) {
    ASSERT_NO_FATAL_FAILURE(expect_same<Eigen::half>(static_cast<uint32_t>(bits), kFp16));
    ASSERT_NO_FATAL_FAILURE(expect_same<Eigen::bfloat16>(static_cast<uint32_t>(bits), kBf16));
  }
}

TEST(RoundEigenTest, EveryHalfCodeIsAFixedPoint) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = static_cast<float>(std::bit_cast<Eigen::half>(static_cast<uint16_t>(code)));
    const Rounded<float> got = round_to_format(value, kFp16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(got.value));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(got.value), std::bit_cast<uint32_t>(value)) << code;
    const bool subnormal = (code & 0x7c00) == 0 && (code & 0x03ff) != 0;
    ASSERT_EQ(got.flags, subnormal ? kSubnormal : kExact) << code;
  }
}

#if defined(__FLT16_MANT_DIG__)
TEST(RoundEigenTest, CompilersHalfTypeAgrees) {
  visit_boundaries<Eigen::half>(kFp16, [](uint32_t bits) { expect_same<_Float16>(bits, kFp16); });
  std::mt19937_64 generator(4);
  for (int i = 0; i < 1000000; ++i) {
    // Doubles, too: the compiler's conversion rounds once.
    const double x = std::ldexp(static_cast<double>(generator() >> 11) * 0x1p-53,
                                static_cast<int>(generator() % 48) - 30);
    const float want = static_cast<float>(static_cast<_Float16>(x));
    ASSERT_EQ(round_to_format(x, kFp16).value, static_cast<double>(want)) << std::hexfloat << x;
  }
}
#endif

}  // namespace
}  // namespace halfscope
