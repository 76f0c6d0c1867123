// SPDX-License-Identifier: MIT
// Expressions in a format. Expected values are NumPy's, for float16 and for ml_dtypes' types, or
// follow from the definition of the format.
#include "core/lab/expression.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/numeric/formats/rng.h"

namespace halfscope::lab {
namespace {

Expression value_of(const char* text, const FloatFormat& format) {
  std::string problem;
  const auto result = evaluate(text, format, RoundingMode::nearest_even, 1, problem);
  EXPECT_TRUE(result) << text << ": " << problem;
  return result.value_or(Expression{});
}

TEST(Expression, RoundsEveryStep) {
  EXPECT_TRUE(std::isinf(value_of("256*256", kFp16).value));
  EXPECT_EQ(value_of("256*256", kBf16).value, 65536.0f);
  EXPECT_EQ(value_of("1e-5^2", kFp16).value, 0.0f);
  EXPECT_EQ(value_of("2048 + 1", kFp16).value, 2048.0f);
  EXPECT_EQ(value_of("256 + 1", kBf16).value, 256.0f);
  // np.float16(0.1) + np.float16(0.2) - np.float16(0.3), and so on.
  EXPECT_EQ(value_of("0.1 + 0.2 - 0.3", kFp16).value, -0x1p-12f);
  EXPECT_EQ(value_of("(0.1+0.2)*10", kFp16).value, 2.998046875f);
  EXPECT_EQ(value_of("1/3*3", kFp16).value, 1.0f);
  EXPECT_EQ(value_of("sqrt(2)*sqrt(2)", kFp16).value, 2.0f);
  EXPECT_EQ(value_of("fma(3, 0.5, 100)", kE4m3fn).value, 96.0f) << "100 is read as 96";
}

TEST(Expression, PrecedenceSignsAndPowers) {
  EXPECT_EQ(value_of("2 + 3 * 4", kFp32).value, 14.0f);
  EXPECT_EQ(value_of("(2 + 3) * 4", kFp32).value, 20.0f);
  EXPECT_EQ(value_of("10 - 4 - 3", kFp32).value, 3.0f);
  EXPECT_EQ(value_of("24 / 4 / 2", kFp32).value, 3.0f);
  EXPECT_EQ(value_of("-2^2", kFp32).value, -4.0f);
  EXPECT_EQ(value_of("(-2)^2", kFp32).value, 4.0f);
  EXPECT_EQ(value_of("2**10", kFp32).value, 1024.0f);
  EXPECT_EQ(value_of("2 * -3", kFp32).value, -6.0f);
  EXPECT_EQ(value_of("1e-3+1E+3", kFp32).value, 1000.001f);
  EXPECT_EQ(value_of("0x1p-3*8", kFp32).value, 1.0f);
  EXPECT_EQ(value_of("0x3c00 + 1", kFp16).value, 2.0f) << "a code";
  EXPECT_TRUE(std::isnan(value_of("inf - inf", kFp16).value));
}

TEST(Expression, KnowsTheExactResult) {
  const Expression sum = value_of("0.1 + 0.2 - 0.3", kFp16);
  ASSERT_TRUE(sum.exact);
  EXPECT_TRUE(sum.exact->zero()) << "decimals have no rounding";
  EXPECT_EQ(value_of("256*256", kFp16).exact->text(), "65536");
  EXPECT_EQ(value_of("1e-5^2", kFp16).exact->text(), "0.0000000001");
  EXPECT_EQ(value_of("sqrt(2.25)", kFp16).exact->text(), "1.5");
  EXPECT_FALSE(value_of("1/3", kFp16).exact);
  EXPECT_FALSE(value_of("sqrt(2)", kFp16).exact);
  EXPECT_EQ(value_of("1/4", kFp16).exact->text(), "0.25");
  EXPECT_EQ(value_of("70000 - 70000", kFp16).exact->text(), "0") << "though fp16 gets NaN";
}

TEST(Expression, NumbersFarBeyondTheFormat) {
  const Expression large = value_of("1e999999999999 + 1", kFp16);
  EXPECT_TRUE(std::isinf(large.value));
  EXPECT_NE(large.flags & kOverflow, 0);
  EXPECT_FALSE(large.exact);
  ASSERT_EQ(large.steps.size(), 2u);
  EXPECT_EQ(large.steps[0].result.exact, "1e999999999999");
  // int8 saturates: the sum is exact in the format, but not the sum of what was typed.
  const Expression saturated = value_of("1e999999999999 - 1", kInt8Format);
  EXPECT_EQ(saturated.value, 126.0f);
  EXPECT_FALSE(saturated.exact);
  EXPECT_NE(saturated.flags & kOverflow, 0);
  const Expression small = value_of("1 + 1e-999999999999", kFp16);
  EXPECT_EQ(small.value, 1.0f);
  EXPECT_FALSE(small.exact);
  EXPECT_NE(small.flags & kFlushed, 0);
}

TEST(Expression, ListsItsSteps) {
  const Expression result = value_of("0.1 * 3 + 1", kFp16);
  ASSERT_EQ(result.steps.size(), 3u);
  EXPECT_TRUE(result.steps[0].is_number);
  EXPECT_EQ(result.steps[0].text, "0.1");
  EXPECT_NEAR(result.steps[0].result.error_ulps, -0.4, 1e-12);
  EXPECT_EQ(result.steps[1].text, "0.1 \u00d7 3");
  EXPECT_EQ(result.steps[1].result.exact, "0.2999267578125");
  EXPECT_EQ(value_of("2 + 3", kFp16).steps.size(), 1u) << "2 and 3 are exact";
}

TEST(Expression, StochasticRoundingDependsOnTheSeed) {
  std::string problem;
  int up = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto result =
        evaluate("2048 + 0.5", kFp16, RoundingMode::stochastic, seed, problem).value();
    up += result.value == 2050.0f ? 1 : 0;
    EXPECT_TRUE(result.value == 2048.0f || result.value == 2050.0f);
  }
  EXPECT_NEAR(up, 100, 35) << "a quarter of the way, within four standard deviations";
}

TEST(Expression, RefusesNonsense) {
  std::string problem;
  for (const char* bad : {"", "1+", "*2", "(1", "1)", "2 3", "foo(1)", "sqrt 2", "fma(1,2)",
                          "1^0.5", "2^100", "2^", "1..2", "abc + 1", "1 + 0x99999", "sqrt()"}) {
    EXPECT_FALSE(evaluate(bad, kFp16, RoundingMode::nearest_even, 1, problem)) << bad;
    EXPECT_NE(problem, "") << bad;
  }
  EXPECT_FALSE(evaluate(std::string(100, '(') + "1" + std::string(100, ')'), kFp16,
                        RoundingMode::nearest_even, 1, problem));
  EXPECT_FALSE(evaluate(std::string(1000, '1'), kFp16, RoundingMode::nearest_even, 1, problem));
}

TEST(Expression, AnyTextIsReadOrRefused) {
  constexpr std::string_view kParts[] = {
      "1",    "2.5", "+", "-",  "*",   "/",   "^", "**",  "(",  ")", "e",    ".",   ",", " ",
      "sqrt", "fma", "x", "0x", "inf", "nan", "p", "1e9", "64", "b", "\xc3", "E+5", "=", "0b1"};
  int read = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string text, problem;
    for (uint64_t part = 0; part < 1 + random_word(i, 99) % 7; ++part) {
      text += kParts[random_word(i, part) % std::size(kParts)];
    }
    const bool good = evaluate(text, kFp16, RoundingMode::nearest_even, 1, problem).has_value();
    read += good ? 1 : 0;
    EXPECT_NE(good, !problem.empty()) << text;
  }
  EXPECT_GT(read, 100);
}

TEST(Expression, IsToldFromNumbers) {
  for (const char* yes : {"256*256", "1e-5^2", "sqrt(2)", "(1)", "2-1", "-(3)", "0x1p-3*2"}) {
    EXPECT_TRUE(is_expression(yes)) << yes;
  }
  for (const char* no :
       {"1e-5", "-2", "0x1p-3", "0x7bff", "inf", "-inf", "abc", "", "+0.5", ".5"}) {
    EXPECT_FALSE(is_expression(no)) << no;
  }
}

}  // namespace
}  // namespace halfscope::lab
