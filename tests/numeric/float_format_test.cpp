// SPDX-License-Identifier: MIT
// Names of formats, the numbers that follow from a format, and which formats are refused.
#include "core/numeric/float_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace halfscope {
namespace {

TEST(FloatFormatTest, NamesAreRead) {
  const std::pair<const char*, FloatFormat> names[] = {
      {"fp16", kFp16},
      {"float16", kFp16},
      {"half", kFp16},
      {"e5m10", kFp16},
      {"bf16", kBf16},
      {"bfloat16", kBf16},
      {"e8m7", kBf16},
      {"tf32", kTf32},
      {"e8m10", kTf32},
      {"fp32", kFp32},
      {"float32", kFp32},
      {"e8m23", kFp32},
      {"e4m3fn", kE4m3fn},
      {"e5m2", kE5m2},
      {"e4m3", {4, 3, 7, Encoding::ieee}},
      {"e2m1", {2, 1, 1, Encoding::ieee}},
      {"e6m9", {6, 9, 31, Encoding::ieee}},
  };
  for (const auto& [name, format] : names) {
    const std::optional<FloatFormat> parsed = parse_format(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(*parsed, format) << name;
  }
}

TEST(FloatFormatTest, EveryNameReadsBack) {
  for (int exponent_bits = 2; exponent_bits <= 8; ++exponent_bits) {
    for (int mantissa_bits = 1; mantissa_bits <= 23; ++mantissa_bits) {
      const FloatFormat format{exponent_bits, mantissa_bits, (1 << (exponent_bits - 1)) - 1,
                               Encoding::ieee};
      EXPECT_EQ(parse_format(format_name(format)), format) << format_name(format);
      EXPECT_EQ(format.bits(), 1 + exponent_bits + mantissa_bits);
    }
  }
  EXPECT_EQ(parse_format(format_name(kE4m3fn)), kE4m3fn);
}

TEST(FloatFormatTest, NamesAreTheShortest) {
  EXPECT_EQ(format_name(kFp32), "fp32");
  EXPECT_EQ(format_name(kTf32), "tf32");
  EXPECT_EQ(format_name(kBf16), "bf16");
  EXPECT_EQ(format_name(kFp16), "fp16");
  EXPECT_EQ(format_name(kE4m3fn), "e4m3fn");
  EXPECT_EQ(format_name(kE5m2), "e5m2");
  EXPECT_EQ(format_name({6, 9, 31, Encoding::ieee}), "e6m9");
}

TEST(FloatFormatTest, FormatsOutsideTheSchemeHaveNamesThatAreNotRead) {
  for (const FloatFormat& format :
       {FloatFormat{4, 3, 8, Encoding::ieee}, FloatFormat{5, 2, 15, Encoding::finite_nan}}) {
    EXPECT_FALSE(parse_format(format_name(format)).has_value()) << format_name(format);
  }
}

TEST(FloatFormatTest, ImpossibleNamesAreRefused) {
  for (const char* name : {"",
                           "e",
                           "m",
                           "em",
                           "e5",
                           "m3",
                           "e5m",
                           "em10",
                           "e1m3",
                           "e0m3",
                           "e9m3",
                           "e5m0",
                           "e5m24",
                           "e05m2",
                           "e5m02",
                           "e5m2 ",
                           " e5m2",
                           "E5M2",
                           "e-5m2",
                           "e5m-2",
                           "e+5m2",
                           "e5.m2",
                           "e5m2fn",
                           "e4m3fnx",
                           "FP16",
                           "fp8",
                           "int8",
                           "float",
                           "e99999999999m2",
                           "e5mm2",
                           "f5m2"}) {
    EXPECT_FALSE(parse_format(name).has_value()) << "'" << name << "'";
  }
}

TEST(FloatFormatTest, LimitsAreThePublishedOnes) {
  EXPECT_EQ(kFp16.max_finite(), 65504.0);
  EXPECT_EQ(kFp16.min_normal(), std::ldexp(1.0, -14));
  EXPECT_EQ(kFp16.min_subnormal(), std::ldexp(1.0, -24));
  EXPECT_EQ(kE4m3fn.max_finite(), 448.0);
  EXPECT_EQ(kE4m3fn.min_normal(), std::ldexp(1.0, -6));
  EXPECT_EQ(kE4m3fn.min_subnormal(), std::ldexp(1.0, -9));
  EXPECT_EQ(kE5m2.max_finite(), 57344.0);
  EXPECT_EQ(kE5m2.min_subnormal(), std::ldexp(1.0, -16));
  EXPECT_EQ(kBf16.max_finite(), std::ldexp(255.0, 120));
  EXPECT_EQ(kFp32.max_finite(), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(kFp32.min_subnormal(), static_cast<double>(std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(kBf16.bits(), 16);
  EXPECT_EQ(kTf32.bits(), 19);
  EXPECT_FALSE(kE4m3fn.has_infinity());
}

TEST(FloatFormatTest, PowersOfTwoAreExact) {
  for (int e = -1022; e <= 1023; ++e) {
    ASSERT_EQ(FloatFormat::power_of_two(e), std::ldexp(1.0, e)) << e;
  }
}

TEST(FloatFormatTest, ContainsComparesRangeAndPrecision) {
  EXPECT_TRUE(kFp32.contains(kFp16));
  EXPECT_TRUE(kFp32.contains(kBf16));
  EXPECT_TRUE(kTf32.contains(kFp16));
  EXPECT_TRUE(kTf32.contains(kBf16));
  EXPECT_TRUE(kFp16.contains(kE5m2));
  EXPECT_TRUE(kFp16.contains(kFp16));
  EXPECT_FALSE(kFp16.contains(kBf16));
  EXPECT_FALSE(kBf16.contains(kFp16));
  EXPECT_FALSE(kE4m3fn.contains(kE5m2));
  EXPECT_TRUE(kFp16.contains(kE4m3fn));
}

}  // namespace
}  // namespace halfscope
