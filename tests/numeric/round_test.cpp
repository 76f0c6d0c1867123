// SPDX-License-Identifier: MIT
// round_to_format against the definition of the formats (enumerated_format.h), value and flags,
// at every neighbour and midpoint, on random bit patterns, from float and from double.
#include "core/numeric/formats/round.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "tests/numeric/enumerated_format.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;
using testing::same_value;

constexpr double kInfDouble = std::numeric_limits<double>::infinity();

class RoundTest : public ::testing::TestWithParam<const char*> {
 protected:
  FloatFormat format_ = parse_format(GetParam()).value();
  EnumeratedFormat oracle_{format_};

  void expect_float(float x) {
    for (const float each : {x, -x}) {
      const Rounded<float> got = round_to_format(each, format_);
      Rounded<double> want = oracle_.round(static_cast<double>(each));
      const bool quiet = (std::bit_cast<uint32_t>(each) & 0x00400000u) != 0;
      if (std::isnan(each) && !quiet) want.flags |= kInvalid;
      ASSERT_TRUE(same_value(got.value, want.value) && got.flags == want.flags)
          << std::hexfloat << "float " << each << " gave " << got.value << " flags "
          << int{got.flags} << ", expected " << want.value << " flags " << int{want.flags};
    }
  }
  void expect_double(double x) {
    for (const double each : {x, -x}) {
      const Rounded<double> got = round_to_format(each, format_);
      Rounded<double> want = oracle_.round(each);
      const bool quiet = (std::bit_cast<uint64_t>(each) >> 51 & 1) != 0;
      if (std::isnan(each) && !quiet) want.flags |= kInvalid;
      ASSERT_TRUE(same_value(got.value, want.value) && got.flags == want.flags)
          << std::hexfloat << "double " << each << " gave " << got.value << " flags "
          << int{got.flags} << ", expected " << want.value << " flags " << int{want.flags};
    }
  }
};

TEST_P(RoundTest, EveryValueMidpointAndTheirNeighbours) {
  int64_t through_float_differs = 0;
  for (const int64_t code : oracle_.sample_codes(1 << 16)) {
    for (const double point : {oracle_.decode(code), oracle_.midpoint(code)}) {
      for (const double near :
           {std::nextafter(point, 0.0), point, std::nextafter(point, kInfDouble)}) {
        ASSERT_NO_FATAL_FAILURE(expect_double(near));
        // Rounding to float first loses on which side of the midpoint a double was.
        const double through_float =
            static_cast<double>(round_to_format(static_cast<float>(near), format_).value);
        through_float_differs += !same_value(round_to_format(near, format_).value, through_float);
      }
      const float nearest = static_cast<float>(point);
      for (const float near :
           {std::nextafter(nearest, 0.0f), nearest, std::nextafter(nearest, kInf)}) {
        ASSERT_NO_FATAL_FAILURE(expect_float(near));
      }
    }
  }
  EXPECT_EQ(through_float_differs > 0, format_ != kFp32);
}

TEST_P(RoundTest, RandomFloatPatterns) {
  std::mt19937_64 generator(7);
  for (int i = 0; i < 100000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(generator());
    ASSERT_NO_FATAL_FAILURE(expect_float(std::bit_cast<float>(bits)));
  }
}

TEST_P(RoundTest, RandomDoublePatterns) {
  std::mt19937_64 generator(8);
  std::uniform_int_distribution<int> exponent(format_.min_exponent() - format_.mantissa_bits - 3,
                                              format_.max_exponent() + 2);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = generator();
    ASSERT_NO_FATAL_FAILURE(expect_double(std::bit_cast<double>(bits)));
    const double significand = 1.0 + static_cast<double>(bits >> 12) * 0x1p-52;
    ASSERT_NO_FATAL_FAILURE(expect_double(std::ldexp(significand, exponent(generator))));
  }
}

TEST_P(RoundTest, SpecialValues) {
  using Limits = std::numeric_limits<float>;
  for (const float x : {0.0f, kInf, Limits::max(), Limits::min(), Limits::denorm_min()}) {
    ASSERT_NO_FATAL_FAILURE(expect_float(x));
    ASSERT_NO_FATAL_FAILURE(expect_double(static_cast<double>(x)));
  }
  for (const double x : {std::numeric_limits<double>::max(), std::numeric_limits<double>::min(),
                         std::numeric_limits<double>::denorm_min()}) {
    ASSERT_NO_FATAL_FAILURE(expect_double(x));
  }
}

TEST_P(RoundTest, NaNsKeepTheirSignAndWhatFitsOfThePayload) {
  std::mt19937 generator(9);
  const uint32_t kept = ~((uint32_t{1} << (23 - format_.mantissa_bits)) - 1);
  for (int i = 0; i < 10000; ++i) {
    const uint32_t nan = static_cast<uint32_t>(generator()) | 0x7f800000u;
    if ((nan & 0x007fffffu) == 0) continue;
    const Rounded<float> got = round_to_format(std::bit_cast<float>(nan), format_);
    ASSERT_EQ(std::bit_cast<uint32_t>(got.value), (nan & kept) | 0x00400000u);
    ASSERT_EQ(got.flags, (nan & 0x00400000u) == 0 ? kInvalid : kExact);
  }
}

TEST_P(RoundTest, RoundingTwiceIsRoundingOnce) {
  std::mt19937 generator(10);
  for (int i = 0; i < 100000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(generator());
    const float once = round_to_format(std::bit_cast<float>(bits), format_).value;
    const Rounded<float> twice = round_to_format(once, format_);
    ASSERT_EQ(std::bit_cast<uint32_t>(twice.value), std::bit_cast<uint32_t>(once));
    ASSERT_EQ(twice.flags & ~kSubnormal, kExact);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundTest,
                         ::testing::Values("fp16", "bf16", "tf32", "fp32", "e4m3fn", "e5m2",
                                           "e2m1ieee", "e2m3ieee", "e3m2ieee", "e4m3", "e6m9",
                                           "e7m1", "e8m1", "e5m23", "e8m22"),
                         [](const auto& info) { return std::string(info.param); });

// Published boundaries: IEEE 754-2019 (fp16), OCP OFP8 1.0 section 5 and the conversions of
// cuda_fp8.h (e4m3fn above 464, e5m2 from 61440).

struct Boundary {
  FloatFormat format;
  double input, output;
  int flags;
};

TEST(RoundConstantsTest, PublishedBoundaries) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double two_24 = std::ldexp(1.0, -24), two_25 = std::ldexp(1.0, -25);
  const Boundary boundaries[] = {
      {kFp16, 65504.0, 65504.0, kExact},
      {kFp16, 65519.99609375, 65504.0, kInexact},
      {kFp16, 65520.0, kInfDouble, kInexact | kOverflow},
      {kFp16, two_25, 0.0, kInexact | kUnderflow | kFlushed},
      {kFp16, static_cast<double>(std::nextafter(static_cast<float>(two_25), 1.0f)), two_24,
       kInexact | kUnderflow | kSubnormal},
      {kFp16, two_24, two_24, kSubnormal},
      {kFp16, 1e-7, 2 * two_24, kInexact | kUnderflow | kSubnormal},
      {kFp16, 1e-8, 0.0, kInexact | kUnderflow | kFlushed},
      {kFp16, std::ldexp(1.0, -14), std::ldexp(1.0, -14), kExact},
      {kFp16, 2049.0, 2048.0, kInexact},
      {kBf16, 257.0, 256.0, kInexact},
      {kTf32, 1024.5, 1024.0, kInexact},
      {kE4m3fn, 448.0, 448.0, kExact},
      {kE4m3fn, 464.0, 448.0, kInexact},
      {kE4m3fn, 464.000030517578125, nan, kInexact | kOverflow},
      {kE4m3fn, std::ldexp(1.0, -10), 0.0, kInexact | kUnderflow | kFlushed},
      {kE5m2, 57344.0, 57344.0, kExact},
      {kE5m2, 61439.99609375, 57344.0, kInexact},
      {kE5m2, 61440.0, kInfDouble, kInexact | kOverflow},
      {kE5m2, std::ldexp(1.0, -17), 0.0, kInexact | kUnderflow | kFlushed},
      {kE4m3fn, kInfDouble, nan, kInexact | kOverflow},
      {kE5m2, kInfDouble, kInfDouble, kExact},
  };
  for (const Boundary& each : boundaries) {
    for (const double sign : {1.0, -1.0}) {
      const double input = sign * each.input, output = std::copysign(each.output, input);
      const Rounded<double> wide = round_to_format(input, each.format);
      EXPECT_TRUE(same_value(wide.value, output)) << input << " gave " << wide.value;
      EXPECT_EQ(wide.flags, each.flags) << input;
      const Rounded<float> narrow = round_to_format(static_cast<float>(input), each.format);
      EXPECT_TRUE(same_value(narrow.value, output)) << input << " gave " << narrow.value;
      EXPECT_EQ(narrow.flags, each.flags) << input;
    }
  }
}

TEST(RoundConstantsTest, UpdatesTooSmallForTheWeightAreLost) {
  const auto lost = [](const FloatFormat& format, double update) {
    return round_to_format(1.0 + update, format).value == 1.0;
  };
  const double above = 1.0 + 0x1p-20;
  for (const auto& [format, up, down] :
       {std::tuple{kFp16, 0x1p-11, 0x1p-12}, std::tuple{kBf16, 0x1p-8, 0x1p-9}}) {
    EXPECT_TRUE(lost(format, up));
    EXPECT_TRUE(lost(format, -down));
    EXPECT_FALSE(lost(format, up * above));
    EXPECT_FALSE(lost(format, -down * above));
  }
}

TEST(RoundConstantsTest, DistinctIntegersBelow4096) {
  for (const auto& [format, count] : {std::pair{kBf16, 769}, std::pair{kFp16, 3073}}) {
    int distinct = 0;
    double last = -1.0;
    for (int i = 0; i < 4096; ++i) {
      const double value = round_to_format(static_cast<double>(i), format).value;
      distinct += value != last;
      last = value;
    }
    EXPECT_EQ(distinct, count);
  }
}

TEST(RoundConstantsTest, DoublesAreRoundedOnce) {
  // 1 + 2^-11 + 2^-40 is above the midpoint; as a float it would be the midpoint itself.
  const double x = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(round_to_format(x, kFp16).value, 1.0 + 0x1p-10);
  EXPECT_EQ(round_to_format(static_cast<float>(x), kFp16).value, 1.0f);
}

// Usable in constant expressions.
static_assert(round_to_format(65520.0f, kFp16).flags == (kInexact | kOverflow));
static_assert(round_to_format(2049.0f, kFp16).value == 2048.0f);
static_assert(kE4m3fn.max_finite() == 448.0);

}  // namespace
}  // namespace halfscope
