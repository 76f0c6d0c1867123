// SPDX-License-Identifier: MIT
// Names of formats, the numbers that follow from a format, and which formats are refused.
#include "core/numeric/formats/float_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"

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
      {"e6m9", {6, 9, 31, Encoding::ieee}},
      {"fp8_e4m3fn", kE4m3fn},
      {"float8_e4m3fn", kE4m3fn},
      {"fp8_e5m2", kE5m2},
      {"float8_e5m2", kE5m2},
      {"e4m3fnuz", kE4m3fnuz},
      {"e5m2fnuz", kE5m2fnuz},
      {"e3m2", kE3m2},
      {"float6_e3m2fn", kE3m2},
      {"e2m3", kE2m3},
      {"float6_e2m3fn", kE2m3},
      {"e2m1", kE2m1},
      {"e2m1finite", kE2m1},
      {"float4_e2m1fn", kE2m1},
      {"e2m1ieee", {2, 1, 1, Encoding::ieee}},
      {"e2m1fn", {2, 1, 1, Encoding::finite_nan}},
      {"e5m2ieee", kE5m2},
      {"e5m2fn", {5, 2, 15, Encoding::finite_nan}},
      {"e5m0", {5, 0, 15, Encoding::ieee}},
      {"e4m3b11", {4, 3, 11, Encoding::ieee}},
      {"e4m3fnb0", {4, 3, 0, Encoding::finite_nan}},
      {"e4m3b-5", {4, 3, -5, Encoding::ieee}},
      {"e8m7fnb128", {8, 7, 128, Encoding::finite_nan}},
      {"e4m3fnuzb8", kE4m3fnuz},
      {"float8_e4m3fnuz", kE4m3fnuz},
      {"float8_e5m2fnuz", kE5m2fnuz},
      {"e4m3b11fnuz", {4, 3, 11, Encoding::fnuz}},
      {"float8_e4m3b11fnuz", {4, 3, 11, Encoding::fnuz}},
      {"e4m3fnuzb11", {4, 3, 11, Encoding::fnuz}},
      {"e4m3b11fnuz:sat", {4, 3, 11, Encoding::fnuz, true}},
      {"e5m2b15fn", {5, 2, 15, Encoding::finite_nan}},
      {"e4m3b-5finite", {4, 3, -5, Encoding::finite}},
      {"fp16:sat", {5, 10, 15, Encoding::ieee, true, false, false}},
      {"half:ftz", {5, 10, 15, Encoding::ieee, false, true, true}},
      {"fp16:ftz-in", {5, 10, 15, Encoding::ieee, false, true, false}},
      {"fp16:ftz-out:sat", {5, 10, 15, Encoding::ieee, true, false, true}},
      {"fp16:ftz-in:sat:ftz-out", {5, 10, 15, Encoding::ieee, true, true, true}},
      {"e2m1:sat", {2, 1, 1, Encoding::finite, true, false, false}},
  };
  for (const auto& [name, format] : names) {
    const std::optional<FloatFormat> parsed = parse_format(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(*parsed, format) << name;
  }
}

TEST(FloatFormatTest, EveryValidFormatHasANameThatReadsBack) {
  int64_t valid = 0;
  for (int exponent_bits = 1; exponent_bits <= 9; ++exponent_bits) {
    for (int mantissa_bits = -1; mantissa_bits <= 24; ++mantissa_bits) {
      for (int encoding = 0; encoding < 4; ++encoding) {
        for (int bias = -140; bias <= 160; ++bias) {
          FloatFormat format{exponent_bits, mantissa_bits, bias, static_cast<Encoding>(encoding)};
          if (!is_valid(format)) continue;
          for (int options = 0; options < 8; ++options) {
            format.saturate = (options & 1) != 0;
            format.flush_in = (options & 2) != 0;
            format.flush_out = (options & 4) != 0;
            const std::string name = format_name(format);
            ASSERT_EQ(parse_format(name), format) << name;
            ASSERT_EQ(format_problem(name), "") << name;
            ++valid;
          }
          EXPECT_EQ(format.bits(), 1 + exponent_bits + mantissa_bits);
        }
      }
    }
  }
  EXPECT_GT(valid, 500000);
}

TEST(FloatFormatTest, ValidFormatsAreThoseWithinFp32) {
  for (int exponent_bits = 1; exponent_bits <= 8; ++exponent_bits) {
    for (int mantissa_bits = 0; mantissa_bits <= 23; ++mantissa_bits) {
      // With one exponent bit, no exponent is left for special values.
      const auto first = static_cast<int>(exponent_bits > 1 ? Encoding::ieee : Encoding::finite);
      for (int encoding = first; encoding < 4; ++encoding) {
        for (int bias = -140; bias <= 160; ++bias) {
          const FloatFormat format{exponent_bits, mantissa_bits, bias,
                                   static_cast<Encoding>(encoding)};
          const double max = format.max_finite(), min = format.min_subnormal();
          const bool held = static_cast<double>(static_cast<float>(max)) == max &&
                            static_cast<double>(static_cast<float>(min)) == min;
          ASSERT_EQ(is_valid(format), held) << format_name(format);
        }
      }
    }
  }
  EXPECT_FALSE(is_valid({1, 3, 0}));
  EXPECT_FALSE(is_valid({1, 3, 0, Encoding::finite_nan}));
  EXPECT_FALSE(is_valid({1, 3, 0, Encoding::fnuz}));
  EXPECT_FALSE(is_valid({0, 3, 0, Encoding::finite}));
  EXPECT_FALSE(is_valid({9, 3, 255}));
  EXPECT_FALSE(is_valid({5, 24, 15}));
  EXPECT_FALSE(is_valid({5, -1, 15}));
  EXPECT_FALSE(is_valid({5, 2, 2147483647}));
}

TEST(FloatFormatTest, NamesAreTheShortest) {
  EXPECT_EQ(format_name(kFp32), "fp32");
  EXPECT_EQ(format_name(kTf32), "tf32");
  EXPECT_EQ(format_name(kBf16), "bf16");
  EXPECT_EQ(format_name(kFp16), "fp16");
  EXPECT_EQ(format_name(kE4m3fn), "e4m3fn");
  EXPECT_EQ(format_name(kE5m2), "e5m2");
  EXPECT_EQ(format_name({6, 9, 31, Encoding::ieee}), "e6m9");
  EXPECT_EQ(format_name(kE4m3fnuz), "e4m3fnuz");
  EXPECT_EQ(format_name({4, 3, 11, Encoding::fnuz}), "e4m3b11fnuz");
  EXPECT_EQ(format_name({4, 3, 12, Encoding::fnuz}), "e4m3fnuzb12");
  EXPECT_EQ(format_name(kE2m1), "e2m1");
  EXPECT_EQ(format_name({2, 1, 1, Encoding::ieee}), "e2m1ieee");
  EXPECT_EQ(format_name({4, 3, 5, Encoding::finite_nan, true, true, true}), "e4m3fnb5:sat:ftz");
  EXPECT_EQ(format_name({5, 10, 15, Encoding::ieee, false, false, true}), "fp16:ftz-out");
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
                           "e5m2fnu",
                           "e5m2b",
                           "e5m2b-",
                           "e5m2b-0",
                           "e5m2b015",
                           "e5m2b99999999999",
                           "e5m2b1000",
                           "e5m2bfn",
                           "e5m2b15fnb15",
                           "e5m2fnb15fn",
                           "e8m7fn",
                           "e8m23fnuz",
                           "e8m23fnuzb128",
                           "fp16b3",
                           "fp16fn",
                           "fp16:",
                           "fp16::sat",
                           "fp16:sat:sat",
                           "fp16:ftz:ftz-in",
                           "fp16:ftz-out:ftz",
                           "fp16:satx",
                           "fp16 :sat",
                           ":sat",
                           ":",
                           "e3m2finitefinite",
                           "e4m3fnx",
                           "FP16",
                           "fp8",
                           "float",
                           "e99999999999m2",
                           "e5mm2",
                           "f5m2"}) {
    EXPECT_FALSE(parse_format(name).has_value()) << "'" << name << "'";
    EXPECT_NE(format_problem(name), "") << "'" << name << "'";
  }
}

TEST(FloatFormatTest, ProblemsSayWhatIsWrong) {
  EXPECT_EQ(format_problem("fp8"), "\"fp8\" is neither a named format nor of the form eXmY");
  EXPECT_EQ(format_problem("e9m3"), "exponent bits are 1 to 8, not 9");
  EXPECT_EQ(format_problem("e1m3"),
            "a single exponent bit leaves no room for infinity or NaN; write e1m3finite");
  EXPECT_EQ(format_problem("e5m24"), "mantissa bits are 0 to 23, not 24");
  EXPECT_EQ(format_problem("e5m2x"),
            "\"x\" is not an encoding (fn, fnuz, finite, ieee), a bias (bN) or an option");
  EXPECT_EQ(format_problem("e8m7fn"),
            "fp32 cannot represent all its values; write a bias from b128 to b143");
  EXPECT_EQ(format_problem("e8m23fnuz"),
            "fp32 cannot represent all its values; no bias is possible with this many bits");
  EXPECT_EQ(format_problem("fp16:fast"), "\"fast\" is not an option (sat, ftz, ftz-in, ftz-out)");
  EXPECT_EQ(format_problem("fp16:sat:sat"), "option \"sat\" repeats an earlier option");
  EXPECT_EQ(format_problem("fp16:sat"), "");
}

TEST(FloatFormatTest, AnyTextIsReadOrRefused) {
  const std::string_view letters = "efmbnuzit0123456789-:sa";
  std::mt19937 generator(12);
  for (int i = 0; i < 200000; ++i) {
    std::string text = i % 2 == 0 ? "e5m2" : "";
    for (uint32_t n = generator() % 9; n > 0; --n) text += letters[generator() % letters.size()];
    const std::optional<FloatFormat> format = parse_format(text);
    ASSERT_EQ(format.has_value(), format_problem(text).empty()) << text;
    if (!format) continue;
    ASSERT_TRUE(is_valid(*format)) << text;
    ASSERT_EQ(parse_format(format_name(*format)), format) << text;
    ASSERT_LE(format_name(*format).size(), text.size()) << text;
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
  EXPECT_EQ(kE4m3fnuz.max_finite(), 240.0);
  EXPECT_EQ(kE4m3b11fnuz.max_finite(), 30.0);
  EXPECT_EQ(kE4m3b11fnuz.min_normal(), 0x1p-10);
  EXPECT_EQ(kE4m3b11fnuz.min_subnormal(), 0x1p-13);
  EXPECT_EQ(kE5m2fnuz.max_finite(), 57344.0);
  EXPECT_EQ(kE2m1.max_finite(), 6.0);
  EXPECT_EQ(kE2m3.max_finite(), 7.5);
  EXPECT_EQ(kE3m2.max_finite(), 28.0);
  EXPECT_EQ(parse_format("e8m0fn")->max_finite(), std::ldexp(1.0, 127));
  EXPECT_TRUE(kFp16.has_nan() && kE4m3fn.has_nan() && kE4m3fnuz.has_nan() && !kE2m1.has_nan());
  EXPECT_FALSE(parse_format("e5m0")->has_nan());
  EXPECT_TRUE(kE2m1.has_negative_zero() && !kE4m3fnuz.has_negative_zero());
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
  EXPECT_TRUE(kFp16.contains(kE2m1));
  EXPECT_TRUE(kE2m3.contains(kE2m1));
  EXPECT_TRUE(kFp16.contains(kE4m3fnuz));
  EXPECT_FALSE(kE5m2fnuz.contains(kE2m1));                // no -0
  EXPECT_FALSE(kE3m2.contains(*parse_format("e2m1fn")));  // no NaN
  EXPECT_TRUE(kFp16.contains(*parse_format("fp16:sat")));
  EXPECT_FALSE(parse_format("fp16:sat")->contains(kFp16));
  EXPECT_TRUE(parse_format("fp16:sat")->contains(kE4m3fn));
  EXPECT_FALSE(parse_format("fp16:ftz-out")->contains(kFp16));
  EXPECT_TRUE(parse_format("fp16:ftz-out")->contains(kE4m3fn));
  EXPECT_TRUE(parse_format("fp16:ftz-out")->contains(*parse_format("fp16:ftz")));
}

TEST(NamedFormats, IntegersAreAllWholeNumbersUpToTheLargest) {
  for (const auto& [format, largest] : {std::pair(kInt8Format, 127), std::pair(kInt4Format, 7)}) {
    EXPECT_EQ(format.max_finite(), largest);
    EXPECT_EQ(format.bits(), largest == 127 ? 8 : 4);
    for (int whole = 0; whole <= largest; ++whole) {
      EXPECT_EQ(decode(static_cast<uint32_t>(whole), format), static_cast<float>(whole));
      for (const float x : {static_cast<float>(whole), -static_cast<float>(whole)}) {
        EXPECT_EQ(round_to_format(x, format).value, x);
        // ONNX QuantizeLinear: half way between two numbers, to the even one.
        const float half = std::nearbyint(x + 0.5f);
        EXPECT_EQ(round_to_format(x + 0.5f, format).value,
                  std::min(half, static_cast<float>(largest)));
      }
    }
    EXPECT_EQ(round_to_format(1e30f, format).value, static_cast<float>(largest));
    EXPECT_EQ(round_to_format(-INFINITY, format).value, static_cast<float>(-largest));
  }
}

TEST(NamedFormats, AreReadByEveryNameAndPrintedByOne) {
  std::set<std::string_view> names;
  std::set<int> onnx_types;
  for (const NamedFormat& each : named_formats()) {
    EXPECT_TRUE(is_valid(each.format)) << each.name;
    EXPECT_EQ(format_name(each.format), each.name);
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_EQ(parse_format(each.name), each.format) << each.name;
    for (const std::string_view alias : each.aliases) {
      if (alias.empty()) continue;
      EXPECT_TRUE(names.insert(alias).second) << alias;
      EXPECT_EQ(parse_format(alias), each.format) << alias;
    }
    if (each.onnx_type != 0) {
      EXPECT_TRUE(onnx_types.insert(each.onnx_type).second) << each.name;
    }
  }
  EXPECT_FALSE(parse_format(""));
  EXPECT_EQ(format_names().size(), named_formats().size());
}

}  // namespace
}  // namespace halfscope
