// SPDX-License-Identifier: MIT
// The texts and results of the float lab, compared with known numbers and with double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/lab/calculation.h"
#include "core/lab/exact_decimal.h"
#include "core/lab/number_text.h"
#include "core/lab/rounding_place.h"
#include "core/lab/running_sum.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope::lab {
namespace {

FloatFormat format_of(const char* name) { return parse_format(name).value(); }

std::string rounded_text(const char* number, const FloatFormat& format) {
  std::string problem;
  return exact_text(decode(read_number(number, format, problem).value(), format));
}

TEST(ExactDecimal, KnownNumbers) {
  EXPECT_EQ(rounded_text("0.1", kFp16), "0.0999755859375");
  EXPECT_EQ(rounded_text("0.1", kBf16), "0.10009765625");
  EXPECT_EQ(rounded_text("0.1", kFp32), "0.100000001490116119384765625");
  EXPECT_EQ(rounded_text("0.1", kE4m3fn), "0.1015625");
  EXPECT_EQ(rounded_text("0x0001", kFp16), "0.000000059604644775390625");
  EXPECT_EQ(rounded_text("0x7bff", kFp16), "65504");
  EXPECT_EQ(rounded_text("0x7f7fffff", kFp32), "340282346638528859811704183484516925440");
  EXPECT_EQ(rounded_text("0x00000001", kFp32),
            "0.0000000000000000000000000000000000000000000014012984643248170709237295832899161312"
            "8026194187651577175706828388979108268586060148663818836212158203125");
  EXPECT_EQ(rounded_text("-0", kFp16), "-0");
  EXPECT_EQ(rounded_text("1e9", kFp16), "infinity");
  EXPECT_EQ(rounded_text("nan", kFp16), "NaN");
}

TEST(ExactDecimal, Text) {
  const auto again = [](const char* text) { return ExactDecimal::parse(text).value().text(); };
  EXPECT_EQ(again("-001.500"), "-1.5");
  EXPECT_EQ(again("1e3"), "1000");
  EXPECT_EQ(again("1.25e1"), "12.5");
  EXPECT_EQ(again("12.5e-3"), "0.0125");
  EXPECT_EQ(again("-0.0"), "0");
  EXPECT_EQ(again(".5"), "0.5");
  for (const char* bad :
       {"", "-", ".", "1e", "1e9999", "1e-9999", "1x", "0x10", "inf", "1.2.3", "1e+-3"}) {
    EXPECT_FALSE(ExactDecimal::parse(bad)) << bad;
  }
}

TEST(ExactDecimal, NumbersWithTooManyDigits) {
  struct Far {
    const char* text;
    double stands_for;  ///< sign and side
  };
  for (const Far& each : {Far{"1e999999999999", HUGE_VAL},
                          {"-1e99999999999999999999999999", -HUGE_VAL},
                          {"+0.001e500", HUGE_VAL},
                          {"1e-402", 0.0},
                          {"-12.5E-99999999999999999999", -0.0}}) {
    EXPECT_FALSE(ExactDecimal::parse(each.text)) << each.text;
    const auto far = ExactDecimal::parse_far(each.text);
    ASSERT_TRUE(far) << each.text;
    EXPECT_EQ(far->approximate(), each.stands_for) << each.text;
    EXPECT_EQ(far->negative(), std::signbit(each.stands_for)) << each.text;
    EXPECT_LT(far->text().size(), 500u);
  }
  // Zeros make up for the exponent, or there is nothing but zeros.
  const std::string zeros(450, '0');
  EXPECT_EQ(ExactDecimal::parse("0." + zeros + "5e451").value().text(), "5");
  EXPECT_EQ(ExactDecimal::parse("3" + zeros + "e-450").value().text(), "3");
  EXPECT_EQ(ExactDecimal::parse("0e999999999999").value().text(), "0");
  for (const char* near : {"1e400", "0e999999", "1", "x", "1e", "0x1p9999", "inf", "1e5000x"}) {
    EXPECT_FALSE(ExactDecimal::parse_far(near)) << near;
  }
}

TEST(ExactDecimal, RoundsAsItselfBeyondDouble) {
  const auto rounded = [](const char* text, const FloatFormat& format, RoundingMode mode) {
    return round_to_format(ExactDecimal::parse(text).value().rounding_input(), format,
                           {.mode = mode});
  };
  EXPECT_EQ(rounded("1e310", kFp16, RoundingMode::toward_zero).value, 65504.0);
  EXPECT_NE(rounded("1e310", kFp16, RoundingMode::nearest_even).flags & kOverflow, 0);
  EXPECT_EQ(rounded("-1e310", kFp32, RoundingMode::up).value,
            -static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(rounded("1e-390", kFp16, RoundingMode::up).value, 0x1p-24);
  EXPECT_NE(rounded("1e-390", kFp16, RoundingMode::nearest_even).flags & kFlushed, 0);
  EXPECT_EQ(rounded("0", kFp16, RoundingMode::up).value, 0.0);
  EXPECT_EQ(rounded("0.75", kFp16, RoundingMode::up).value, 0.75);
}

TEST(ExactDecimal, ArithmeticAgreesWithIntegers) {
  for (uint64_t i = 0; i < 2000; ++i) {
    // Up to 31 bits: sums and products are exact in int64 and shown by to_string.
    const int64_t a = static_cast<int64_t>(random_word(1, i) % 4000000007u) - 2000000003;
    const int64_t b = static_cast<int64_t>(random_word(2, i) % 4000000007u) - 2000000003;
    const ExactDecimal x(static_cast<double>(a)), y(static_cast<double>(b));
    EXPECT_EQ((x + y).text(), std::to_string(a + b));
    EXPECT_EQ((x - y).text(), std::to_string(a - b));
    EXPECT_EQ((x * y).text(), std::to_string(a * b));
    const ExactDecimal fraction(std::ldexp(static_cast<double>(a), -20));
    EXPECT_EQ((fraction + y - fraction).text(), std::to_string(b));
    EXPECT_EQ(fraction * ExactDecimal(0x1p20), x);
  }
}

TEST(Lab, ReadsNumbersAndCodes) {
  std::string problem;
  EXPECT_EQ(read_number("0.1", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number(" 0x2E66 ", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number("0b0010111001100110", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number("0x1.998p-4", kFp16, problem), 0x2e66u);
  EXPECT_EQ(read_number("-inf", kFp16, problem), 0xfc00u);
  EXPECT_EQ(read_number("448", kE4m3fn, problem), 0x7eu);
  EXPECT_EQ(problem, "");
  EXPECT_FALSE(read_number("0x12345", kFp16, problem));
  EXPECT_NE(problem.find("16 bits"), std::string::npos);
  for (const char* bad : {"", "abc", "0xzz", "1,5", "0x"}) {
    EXPECT_FALSE(read_number(bad, kFp16, problem)) << bad;
    EXPECT_NE(problem, "") << bad;
  }
}

TEST(Lab, NeighboursAreToldFromTheValue) {
  EXPECT_EQ(distinct_text(0x1.994p-4f, kFp16), "0.09991455078125") << "all digits, since few";
  EXPECT_EQ(distinct_text(65504.0f, kFp16), "65504");
  EXPECT_EQ(distinct_text(std::numeric_limits<float>::infinity(), kFp16), "infinity");
  for (const FloatFormat& format : {kFp32, kTf32, kBf16, kFp16, kE4m3fn}) {
    for (const char* number : {"0.1", "3.14159", "1e-7", "-200", "0.3333333"}) {
      std::string problem;
      const float value = decode(read_number(number, format, problem).value(), format);
      for (const int by : {-1, 1}) {
        const float other = neighbour(value, by, format);
        const double read = std::stod(distinct_text(other, format));
        const double ulp = std::fabs(static_cast<double>(other) - static_cast<double>(value));
        EXPECT_LT(std::fabs(read - static_cast<double>(other)), 0.01 * ulp)
            << format_name(format) << " " << number << ": " << distinct_text(other, format);
      }
    }
  }
}

TEST(Lab, StepsVisitEveryValueOnce) {
  for (const char* name : {"e4m3fn", "e4m3fnuz", "e5m2", "e2m1", "e3m0"}) {
    const FloatFormat format = format_of(name);
    float value = neighbour(0.0f, -100000, format);
    int seen = 1;
    for (;;) {
      const float next = neighbour(value, 1, format);
      if (next == value) break;
      EXPECT_GT(next, value) << name;
      value = next;
      ++seen;
    }
    int values = 0;  // but for NaN, and one zero of two
    for (uint32_t code = 0; code < (1u << format.bits()); ++code) {
      const float each = decode(code, format);
      values += !std::isnan(each) && !(each == 0.0f && std::signbit(each));
    }
    EXPECT_EQ(seen, values) << name;
  }
}

TEST(Lab, Texts) {
  EXPECT_EQ(formula_text(0x1.998p-4f, kFp16), "+ 1.599609375 \u00d7 2^-4");
  EXPECT_EQ(formula_text(-0x1p-24f, kFp16), "- 0.0009765625 \u00d7 2^-14");
  EXPECT_EQ(hex_float(0.0999755859375), "0x1.998p-4");
  EXPECT_EQ(code_text(0x1u, kFp16), "0x0001");
  EXPECT_EQ(code_text(0x1u, kE2m1), "0x1");
  EXPECT_EQ(kind_text(0x1p-15f, kFp16), "subnormal");
  EXPECT_EQ(kind_text(0x1p-15f, kBf16), "normal");
  EXPECT_EQ(flags_text(kExact), "exact");
  EXPECT_EQ(flags_text(kInexact | kOverflow), "inexact, overflow");
}

TEST(Lab, GuardRoundSticky) {
  const RoundingPlace tie = rounding_place(2049.0, kFp16).value();
  EXPECT_EQ(tie.kept, "1.0000000000");
  EXPECT_TRUE(tie.guard && !tie.round && !tie.sticky);
  EXPECT_EQ(tie.below, 2048.0f);
  EXPECT_EQ(tie.above, 2050.0f);
  EXPECT_EQ(tie.fraction, 0.5);
  const RoundingPlace more = rounding_place(-2049.5625, kFp16).value();
  EXPECT_TRUE(more.guard && more.round && more.sticky);
  EXPECT_EQ(more.above, -2050.0f);
  const RoundingPlace tiny = rounding_place(0x1.8p-24, kFp16).value();
  EXPECT_EQ(tiny.kept, "0.0000000001");
  EXPECT_TRUE(tiny.guard && !tiny.round && !tiny.sticky);
  EXPECT_FALSE(rounding_place(0.0, kFp16));
  EXPECT_FALSE(rounding_place(INFINITY, kFp16));
  EXPECT_FALSE(rounding_place(1e300, kFp16));
  // Every rounding mode gives one of the two neighbours.
  for (uint64_t i = 0; i < 500; ++i) {
    const double x = std::ldexp(static_cast<double>(random_word(3, i) >> 20), -50);
    if (x == 0.0) continue;
    const RoundingPlace place = rounding_place(x, kFp16).value();
    EXPECT_EQ(
        static_cast<float>(round_to_format(x, kFp16, Rounding{.mode = RoundingMode::down}).value),
        place.below);
    const double nearest = round_to_format(x, kFp16).value;
    EXPECT_EQ(place.fraction > 0.5 || (place.fraction == 0.5 && place.kept.back() == '1'),
              static_cast<float>(nearest) == place.above && place.fraction > 0.0);
  }
}

TEST(Lab, SumsStandStill) {
  const RunningSums sums = running_sums({{5000, 1.0}}, kFp16);
  ASSERT_EQ(sums.series.size(), 5u);
  EXPECT_EQ(sums.series[0].name, "fp16");
  EXPECT_EQ(sums.series[0].stalled_after, 2048);
  EXPECT_EQ(sums.series[0].last, 2048.0f);
  EXPECT_EQ(sums.series[1].last, 5000.0f) << "compensated";
  EXPECT_NEAR(sums.series[2].last, 5000.0f, 500.0f) << "stochastic";
  EXPECT_EQ(sums.series[3].name, "bf16");
  EXPECT_EQ(sums.series[3].last, 256.0f);
  EXPECT_EQ(sums.series[4].last, 5000.0f);
  EXPECT_EQ(sums.series[4].stalled_after, -1);
  EXPECT_EQ(sums.terms.back(), 5000);
  for (const SumSeries& series : sums.series) {
    EXPECT_EQ(series.sums.size(), sums.terms.size());
    EXPECT_EQ(series.sums.back(), series.last);
  }
  EXPECT_EQ(running_sums({{10, 0.0}}, kFp16).series[0].stalled_after, 0);
  EXPECT_TRUE(std::isinf(running_sums({{10, 60000.0}}, kFp16).series[0].last));
}

TEST(Lab, CalculatesSquareRoots) {
  const Calculation two = calculate(Operation::sqrt, 2.0f, NAN, NAN, kFp16);
  EXPECT_EQ(two.value, 1.4140625f);
  EXPECT_EQ(two.exact, "1.4142135623730951...");
  EXPECT_NEAR(two.error_ulps, (1.4140625 - std::sqrt(2.0)) * 1024, 1e-9);
  EXPECT_EQ(calculate(Operation::sqrt, 2.25f, NAN, NAN, kFp16).exact, "1.5");
  const Calculation negative = calculate(Operation::sqrt, -1.0f, 0, 0, kFp16);
  EXPECT_TRUE(std::isnan(negative.value));
  EXPECT_EQ(negative.exact, "");
  EXPECT_EQ(negative.flags, kInvalid);
}

TEST(Lab, SumsOfDifferentTerms) {
  std::string problem;
  // 1, then terms that fp16 cannot add to it: half an ulp above 1 is 2^-11.
  const RunningSums sums = running_sums(read_terms("1, 1000x0x1p-12", problem).value(), kFp16);
  EXPECT_EQ(sums.exact, 1.0 + 1000 * 0x1p-12);
  EXPECT_EQ(sums.series[0].last, 1.0f);
  EXPECT_EQ(sums.series[0].stalled_after, 1);
  EXPECT_EQ(sums.terms.back(), 1001);
  const RunningSums reversed = running_sums(read_terms("1000x0x1p-12,1", problem).value(), kFp16);
  EXPECT_EQ(reversed.series[0].last, 1.244140625f) << "small terms first";
  EXPECT_EQ(reversed.series[0].stalled_after, -1);
  for (const char* bad : {"", "x1", "0x", "-3x1", "4096x", "1,,2", "abc", "1e9", "99999999x1",
                          "2x3x4", "nan", "5xinf"}) {
    problem.clear();
    if (std::string_view(bad) == "1e9") {
      EXPECT_TRUE(read_terms(bad, problem));
      continue;
    }
    EXPECT_FALSE(read_terms(bad, problem)) << bad;
    EXPECT_NE(problem, "") << bad;
  }
}

}  // namespace
}  // namespace halfscope::lab
