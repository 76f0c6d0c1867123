// SPDX-License-Identifier: MIT
// round_to_format in every deterministic mode and both readings of tininess, from float and from
// double, for every named format, odd ones and all options, against the definition of the formats
// (enumerated_format.h): at every value of fp16, bf16 and formats of up to 12 bits (of others
// 4096), the points half way and their neighbours. Then properties that need no oracle.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/numeric/formats/round.h"
#include "tests/numeric/enumerated_format.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;
using testing::kDeterministicModes;
using testing::same_value;

constexpr Tininess kBothTininesses[] = {Tininess::after_rounding, Tininess::before_rounding};

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& each : name) {
    if (each == ':' || each == '-') each = '_';
  }
  return name;
}

class RoundModesTest : public ::testing::TestWithParam<const char*> {
 protected:
  FloatFormat format_ = parse_format(GetParam()).value();
  EnumeratedFormat oracle_{format_};

  template <class T>
  void check_one(T x) {
    for (const RoundingMode mode : kDeterministicModes) {
      for (const Tininess tininess : kBothTininesses) {
        const Rounding rounding{.mode = mode, .tininess = tininess};
        const Rounded<T> got = round_to_format(x, format_, rounding);
        const Rounded<double> want = oracle_.round(static_cast<double>(x), rounding);
        ASSERT_TRUE(same_value(got.value, want.value) && got.flags == want.flags)
            << std::hexfloat << x << " " << rounding_mode_name(mode) << " gave " << got.value
            << " flags " << int{got.flags} << ", expected " << want.value << " flags "
            << int{want.flags};
      }
    }
  }
  template <class T>
  void check(T x) {
    check_one(x);
    check_one(-x);
  }
};

TEST_P(RoundModesTest, EveryValueMidpointAndTheirNeighbours) {
  const bool all = format_ == kFp16 || format_ == kBf16;
  const int64_t most = all ? 1 << 16 : 1 << 12;
  for (const int64_t code : oracle_.sample_codes(most)) {
    for (const double point : {oracle_.decode(code), oracle_.midpoint(code)}) {
      const float nearest = static_cast<float>(point);  // exact, but for midpoints of fp32
      for (const float x :
           {std::nextafter(nearest, 0.0f), nearest, std::nextafter(nearest, kInf)}) {
        ASSERT_NO_FATAL_FAILURE(check(x));
      }
      for (const double x : {std::nextafter(point, 0.0), std::nextafter(point, HUGE_VAL)}) {
        ASSERT_NO_FATAL_FAILURE(check(x));
      }
    }
  }
}

TEST_P(RoundModesTest, QuarterPointsJustBelowTheSmallestNormal) {
  // Values for which the two definitions of tininess differ.
  const double step = format_.min_subnormal();
  for (int eighths = 0; eighths <= 16; ++eighths) {
    const double x = format_.min_normal() - step * eighths / 8;
    for (const double near : {std::nextafter(x, 0.0), x, std::nextafter(x, HUGE_VAL)}) {
      ASSERT_NO_FATAL_FAILURE(check(near));
    }
  }
}

TEST_P(RoundModesTest, RandomAndSpecialValues) {
  std::mt19937_64 generator(5);
  std::uniform_int_distribution<int> exponent(format_.min_exponent() - format_.mantissa_bits - 70,
                                              format_.max_exponent() + 3);
  for (int i = 0; i < 3000; ++i) {
    const double significand = 1.0 + static_cast<double>(generator() >> 12) * 0x1p-52;
    ASSERT_NO_FATAL_FAILURE(check(std::ldexp(significand, exponent(generator))));
  }
  using Float = std::numeric_limits<float>;
  for (const float x :
       {0.0f, kInf, Float::max(), Float::min(), Float::denorm_min(), Float::quiet_NaN()}) {
    ASSERT_NO_FATAL_FAILURE(check(x));
    ASSERT_NO_FATAL_FAILURE(check(static_cast<double>(x)));
  }
  using Double = std::numeric_limits<double>;
  for (const double x : {Double::max(), Double::min(), Double::denorm_min()}) {
    ASSERT_NO_FATAL_FAILURE(check(x));
  }
}

TEST_P(RoundModesTest, IsMonotoneIdempotentAndSymmetric) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::mt19937 generator(6);
  const double low = std::log2(format_.min_subnormal()) - 2;
  const double high = static_cast<double>(format_.max_exponent()) + 0.9;
  std::uniform_real_distribution<double> exponent(low, high);
  for (int i = 0; i < 5000; ++i) {
    const float x = static_cast<float>(std::exp2(exponent(generator)));
    const float y = std::nextafter(x, generator() % 2 != 0 ? infinity : 1.5f * x);
    for (const RoundingMode mode : kDeterministicModes) {
      const Rounding rounding{.mode = mode};
      const float at_x = round_to_format(x, format_, rounding).value;
      const float at_y = round_to_format(y, format_, rounding).value;
      ASSERT_TRUE(std::isnan(at_y) || at_x <= at_y) << std::hexfloat << x;
      if (std::isnan(at_x)) continue;
      const Rounded<float> again = round_to_format(at_x, format_, rounding);
      ASSERT_EQ(again.value, at_x) << std::hexfloat << x;
      ASSERT_EQ(again.flags & ~kSubnormal, kExact) << std::hexfloat << x;
      const RoundingMode mirrored = mode == RoundingMode::up     ? RoundingMode::down
                                    : mode == RoundingMode::down ? RoundingMode::up
                                                                 : mode;
      ASSERT_EQ(round_to_format(-x, format_, {.mode = mirrored}).value, -at_x);
      const bool reached = !format_.saturates() && !format_.flush_out;
      ASSERT_TRUE(mode != RoundingMode::up || !reached || at_x >= x) << std::hexfloat << x;
      ASSERT_TRUE(mode != RoundingMode::toward_zero || at_x <= x) << std::hexfloat << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, RoundModesTest,
    ::testing::Values("fp16", "bf16", "tf32", "fp32", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz",
                      "e3m2", "e2m3", "e2m1", "int8", "int4", "e4m3", "e3m4", "e6m9", "e7m1",
                      "e8m1", "e5m23", "e8m22", "e2m0", "e3m0", "e8m0", "e5m0fn", "e8m0fn",
                      "e5m0fnuz", "e4m0finite", "e2m1fnuz", "e2m1fn", "e6m9fn", "e5m10fnuz",
                      "e5m10finite", "e4m3b100", "e4m8b-100", "e8m7fnb128", "e8m3b147", "e2m23b127",
                      "e8m22fnuz", "e8m0b150", "fp16:sat", "fp16:ftz", "e4m3fn:sat",
                      "e5m2:sat:ftz-out", "e4m3fnuz:sat", "e4m3fnuz:ftz-out", "bf16:ftz-out",
                      "e2m1:ftz-out", "fp32:sat", "fp32:ftz-out", "e5m0:sat", "e5m0:ftz-out"),
    test_name);

}  // namespace
}  // namespace halfscope
