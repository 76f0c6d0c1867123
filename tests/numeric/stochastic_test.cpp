// SPDX-License-Identifier: MIT
// Stochastic rounding: its definition against the enumerated formats, exact counts over all random
// words, mean and variance within bounds from their own distribution (fixed seeds), and the random
// words themselves.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "tests/numeric/enumerated_format.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;
using testing::same_value;

Rounding stochastic(uint64_t random, int bits) {
  return {.mode = RoundingMode::stochastic, .random = random, .random_bits = bits};
}

TEST(StochasticTest, FollowsItsDefinition) {
  std::mt19937_64 generator(31);
  for (const char* name : {"fp16", "bf16", "tf32", "fp32", "e4m3fn", "e5m2", "e4m3fnuz", "e2m1",
                           "e3m0", "e5m2:sat", "fp16:ftz-out"}) {
    const FloatFormat format = parse_format(name).value();
    const EnumeratedFormat oracle(format);
    std::uniform_int_distribution<int> exponent(format.min_exponent() - format.mantissa_bits - 34,
                                                format.max_exponent() + 2);
    for (int i = 0; i < 100000; ++i) {
      // 24 + 29 bits fit a double: more fraction bits than are looked at, for all but fp32.
      const int bits = 1 + static_cast<int>(generator() % (format.mantissa_bits > 20 ? 28 : 32));
      const double significand = 1.0 + static_cast<double>(generator() >> 12) * 0x1p-52;
      const double x = std::ldexp(i % 2 == 0 ? significand : -significand, exponent(generator));
      const Rounding rounding = stochastic(generator(), bits);
      const Rounded<double> got = round_to_format(x, format, rounding);
      const Rounded<double> want = oracle.round(x, rounding);
      ASSERT_TRUE(same_value(got.value, want.value) && got.flags == want.flags)
          << name << std::hexfloat << " " << x << " bits " << bits << " gave " << got.value
          << " flags " << int{got.flags} << ", expected " << want.value << " " << int{want.flags};
    }
  }
}

TEST(StochasticTest, OverAllRandomWordsTheShareIsTheFraction) {
  // 1 + 13/64 of a step of e4m3fn, 6 bits: 13 of 64 words round up. With 4 bits, 3 of 16 do: the
  // fraction is cut to the available bits, which changes it by less than 2^-4.
  const double step = 0.125, x = 1.0 + step * 13 / 64;
  for (const auto& [bits, want] : {std::pair{6, 13}, std::pair{4, 3}, std::pair{1, 0}}) {
    int up = 0;
    for (uint64_t random = 0; random < uint64_t{1} << bits; ++random) {
      const double value = round_to_format(x, kE4m3fn, stochastic(random, bits)).value;
      ASSERT_TRUE(value == 1.0 || value == 1.0 + step);
      up += value != 1.0;
    }
    EXPECT_EQ(up, want) << bits;
  }
  // One random bit is enough for the even chance of a midpoint; words of other widths are cut.
  EXPECT_EQ(round_to_format(1.0625, kE4m3fn, stochastic(0, 1)).value, 1.0);
  EXPECT_EQ(round_to_format(1.0625, kE4m3fn, stochastic(1, 1)).value, 1.125);
  EXPECT_EQ(round_to_format(1.0625, kE4m3fn, stochastic(2, 1)).value, 1.0);
  EXPECT_EQ(round_to_format(1.0625, kE4m3fn, stochastic(1, -5)).value, 1.125);
  EXPECT_EQ(round_to_format(1.0625, kE4m3fn, stochastic(~uint64_t{0}, 99)).value, 1.125);
}

TEST(StochasticTest, MeanAndVarianceAreThoseOfOneTrial) {
  // Rounding up with probability p has mean p and variance p (1 - p) in steps. Over n trials the
  // mean is within 6 sigma = 6 sqrt(p (1 - p) / n) but once in 5e8; the variance is a function of
  // it (values are 0 and 1), |d var| <= |d mean|.
  const int n = 200000;
  for (const char* name : {"fp16", "bf16", "e4m3fn"}) {
    const FloatFormat format = parse_format(name).value();
    const double step = std::ldexp(1.0, -format.mantissa_bits);
    for (const double p : {1.0 / 1024, 0.1, 0.25, 0.5, 0.7, 0.999}) {
      for (const double base : {1.0, -1.0, 3 * format.min_subnormal()}) {
        const double size = std::fabs(base) == 1.0 ? step : format.min_subnormal();
        const double x = base + std::copysign(size * p, base);
        double sum = 0, sum_sq = 0;
        for (uint64_t i = 0; i < n; ++i) {
          const Rounding rounding = stochastic(random_word(9, 3, 7, i), 32);
          const double steps = std::fabs(round_to_format(x, format, rounding).value - base) / size;
          sum += steps;
          sum_sq += steps * steps;
        }
        const double mean = sum / n, variance = sum_sq / n - mean * mean;
        const double bound = 6 * std::sqrt(p * (1 - p) / n) + 0x1p-32;
        EXPECT_NEAR(mean, p, bound) << name << " " << base;
        EXPECT_NEAR(variance, p * (1 - p), bound) << name << " " << base;
      }
    }
  }
}

TEST(StochasticTest, ExactValuesStayAndTinyOnesSurviveAtTheirShare) {
  std::mt19937_64 generator(33);
  for (int i = 0; i < 20000; ++i) {
    const float x =
        round_to_format(std::bit_cast<float>(static_cast<uint32_t>(generator())), kFp16).value;
    if (std::isnan(x)) continue;
    ASSERT_EQ(round_to_format(x, kFp16, stochastic(generator(), 32)).value, x);
  }
  int survived = 0;
  const int n = 1 << 20;
  for (uint64_t i = 0; i < n; ++i) {
    survived += round_to_format(0x1p-30f, kFp16, stochastic(random_word(1, 1, 1, i), 32)).value > 0;
  }
  // p = 1/64: 16384 expected, sigma 127.
  EXPECT_NEAR(survived, n / 64, 6 * 127);
}

TEST(StochasticTest, SumsOfSmallUpdatesDoNotStall) {
  // 1 + 4096 * 2^-12: to nearest every update is lost, stochastically the sum is 2 on average.
  float nearest = 1.0f, random = 1.0f;
  for (uint64_t i = 0; i < 4096; ++i) {
    nearest = add(nearest, 0x1p-12f, kFp16).value;
    random = add(random, 0x1p-12f, kFp16, stochastic(random_word(5, i, 0, 0), 32)).value;
  }
  EXPECT_EQ(nearest, 1.0f);
  // 4096 trials with p = 1/4 and steps of 2^-10: sigma 28 steps.
  EXPECT_NEAR(random, 2.0f, 6 * 28 * 0x1p-10f);
}

TEST(RandomWordTest, DependsOnEachOfTheFourNumbers) {
  std::set<uint64_t> words;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (uint64_t step = 0; step < 8; ++step) {
      for (uint64_t site = 0; site < 8; ++site) {
        for (uint64_t index = 0; index < 64; ++index) {
          words.insert(random_word(seed, step, site, index));
        }
      }
    }
  }
  EXPECT_EQ(words.size(), size_t{8 * 8 * 8 * 64});
  EXPECT_EQ(random_word(1, 2, 3, 4), random_word(random_key(1, 2, 3), 4));
}

TEST(RandomWordTest, EveryBitIsSetHalfTheTime) {
  const int n = 1 << 16;
  int counts[64] = {};
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t word = random_word(7, i / 256, 3, i % 256);
    for (int bit = 0; bit < 64; ++bit) counts[bit] += static_cast<int>(word >> bit & 1);
  }
  for (const int count : counts) EXPECT_NEAR(count, n / 2, 6 * 128);  // sigma = sqrt(n) / 2
}

// Words are part of a run's identity: they must never change.
static_assert(splitmix64(0) == 0xE220A8397B1DCDAFu);  // first output of the published generator
static_assert(random_word(0, 0, 0, 0) == splitmix64(splitmix64(splitmix64(splitmix64(0)))));

}  // namespace
}  // namespace halfscope
