// SPDX-License-Identifier: MIT
// Arithmetic against exact results and the definition of the formats, value, sign and all flags:
// every pair of values of 8-bit and smaller formats in every mode, random and directed operands of
// the others; then the rules for zeros, infinities and NaNs, and comparison.
#include "core/numeric/formats/arithmetic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "tests/numeric/enumerated_format.h"
#include "tests/numeric/exact_operation.h"
#include "tests/numeric/operands.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;
using testing::exact_operation;
using testing::Operands;
using testing::Operation;
using testing::run;
using testing::same_value;

class Checker {
 public:
  explicit Checker(const char* name) : oracle_(parse_format(name).value()) {}

  const FloatFormat& format() const { return oracle_.format(); }

  /// One operation in one rounding; the operands are values of the format.
  void check(Operation operation, float a, float b, float c, const Rounding& rounding) {
    const Rounded<float> got = run(operation, a, b, c, format(), rounding);
    const Rounded<double> want = expected(operation, read(a), read(b), read(c), rounding);
    const bool nans = std::isnan(want.value) && std::isnan(got.value);  // sign: see NaNs below
    ASSERT_TRUE((nans || same_value(got.value, want.value)) && got.flags == want.flags)
        << format_name(format()) << std::hexfloat << " operation " << static_cast<int>(operation)
        << " " << a << " " << b << " " << c << " " << rounding_mode_name(rounding.mode) << " gave "
        << got.value << " flags " << int{got.flags} << ", expected " << want.value << " flags "
        << int{want.flags};
  }

 private:
  float read(float x) const {
    const bool flushed = format().flush_in && std::fabs(x) < oracle_.smallest_normal();
    return flushed ? std::copysign(0.0f, format().has_negative_zero() ? x : 1.0f) : x;
  }

  Rounded<double> expected(Operation operation, float a, float b, float c,
                           const Rounding& rounding) const {
    const bool binary = operation != Operation::sqrt, ternary = operation == Operation::fma;
    double exact = exact_operation(operation, a, b, c);
    const bool sum = operation == Operation::add || operation == Operation::sub || ternary;
    if (sum && exact == 0 && rounding.mode == RoundingMode::down) {
      // Opposite zeros and x - x. Results that are -0 in every mode already have the right sign.
      const double left = ternary ? static_cast<double>(a) * static_cast<double>(b) : a;
      const double right = ternary ? c : operation == Operation::sub ? -b : b;
      if (std::signbit(left) || std::signbit(right)) exact = -0.0;
    }
    const bool nan_in = std::isnan(a) || (binary && std::isnan(b)) || (ternary && std::isnan(c));
    Rounded<double> result = oracle_.round(exact, rounding);
    if (std::isnan(exact) && !nan_in) result.flags |= kInvalid;
    if (ternary && nan_in && std::isnan(exact_operation(Operation::mul, a, b, 0)) &&
        !std::isnan(a) && !std::isnan(b)) {
      result.flags |= kInvalid;  // fma(0, inf, NaN)
    }
    if (operation == Operation::div && b == 0 && std::isfinite(a) && a != 0) {
      result.flags |= kDivideByZero;
    }
    return result;
  }

  EnumeratedFormat oracle_;
};

std::vector<float> every_value(const FloatFormat& format) {
  std::vector<float> values;
  for (uint32_t code = 0; code < uint32_t{1} << format.bits(); ++code) {
    const float value = decode(code, format);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value) && (bits & 0x00400000u) == 0) continue;  // signalling: see NaNs below
    values.push_back(value);
  }
  return values;
}

class SmallFormatTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallFormatTest, EveryPairInEveryMode) {
  Checker checker(GetParam());
  const std::vector<float> values = every_value(checker.format());
  uint64_t draw = 0;
  for (const RoundingMode mode : kAllRoundingModes) {
    const Tininess tininess =
        mode == RoundingMode::nearest_away ? Tininess::before_rounding : Tininess::after_rounding;
    for (const float a : values) {
      for (const float b : values) {
        for (const Operation each :
             {Operation::add, Operation::sub, Operation::mul, Operation::div}) {
          const Rounding rounding{mode, tininess, splitmix64(++draw), 8};
          ASSERT_NO_FATAL_FAILURE(checker.check(each, a, b, 0.0f, rounding));
        }
      }
      const Rounding rounding{mode, tininess, splitmix64(++draw), 8};
      ASSERT_NO_FATAL_FAILURE(checker.check(Operation::sqrt, a, 0.0f, 0.0f, rounding));
    }
  }
}

TEST_P(SmallFormatTest, RandomTriples) {
  Checker checker(GetParam());
  const std::vector<float> values = every_value(checker.format());
  std::mt19937 generator(21);
  uint64_t draw = 0;
  for (const RoundingMode mode : kAllRoundingModes) {
    for (size_t i = 0; i < 30000; ++i) {
      const float a = values[generator() % values.size()], b = values[generator() % values.size()];
      const float c = values[generator() % values.size()];
      const Rounding rounding{.mode = mode, .random = splitmix64(++draw), .random_bits = 11};
      ASSERT_NO_FATAL_FAILURE(checker.check(Operation::fma, a, b, c, rounding));
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& each : name) each = each == ':' || each == '-' ? '_' : each;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFormatTest,
                         ::testing::Values("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3", "e3m4",
                                           "e3m2", "e2m3", "e2m1", "int8", "int4", "e2m0", "e4m0",
                                           "e3m0fnuz", "e2m1fn", "e5m2:ftz", "e3m2:ftz",
                                           "e3m2fnuz:ftz-in", "e3m3:sat", "e2m2fnuz:sat"),
                         test_name);

class WideFormatTest : public ::testing::TestWithParam<const char*> {};

TEST_P(WideFormatTest, RandomAndDirectedOperandsInEveryMode) {
  Checker checker(GetParam());
  Operands operands(checker.format());
  // A double shows 53 bits of the exact result: few formats leave 32 of them for the fraction.
  const int random_bits = checker.format().mantissa_bits <= 18 ? 32 : 26;
  for (int i = 0; i < 25000; ++i) {
    const float a = operands.next(), b = operands.next(), c = operands.next();
    for (const RoundingMode mode : kAllRoundingModes) {
      const Tininess tininess = i % 4 == 0 ? Tininess::before_rounding : Tininess::after_rounding;
      const Rounding rounding{mode, tininess, operands.random(), random_bits};
      for (const Operation each : {Operation::add, Operation::sub, Operation::mul, Operation::div,
                                   Operation::sqrt, Operation::fma}) {
        ASSERT_NO_FATAL_FAILURE(checker.check(each, a, b, c, rounding));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, WideFormatTest,
                         ::testing::Values("fp16", "bf16", "tf32", "fp32", "e5m2", "e4m3fn", "e6m9",
                                           "e5m23", "e8m22fnuz", "e5m10finite", "fp32:ftz",
                                           "fp16:sat", "bf16:ftz-in", "e8m0", "e3m17"),
                         test_name);

TEST(ArithmeticTest, HardwareAgreesInFp32) {
  Operands operands(kFp32);
  const auto same = [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  };
  for (int i = 0; i < 300000; ++i) {
    const float a = operands.next(), b = operands.next(), c = operands.next();
    ASSERT_TRUE(same(add(a, b, kFp32).value, a + b)) << std::hexfloat << a << " " << b;
    ASSERT_TRUE(same(sub(a, b, kFp32).value, a - b)) << std::hexfloat << a << " " << b;
    ASSERT_TRUE(same(mul(a, b, kFp32).value, a * b)) << std::hexfloat << a << " " << b;
    ASSERT_TRUE(same(div(a, b, kFp32).value, a / b)) << std::hexfloat << a << " " << b;
    ASSERT_TRUE(same(halfscope::sqrt(a, kFp32).value, std::sqrt(a))) << std::hexfloat << a;
    ASSERT_TRUE(same(halfscope::fma(a, b, c, kFp32).value, std::fma(a, b, c)))
        << std::hexfloat << a << " " << b << " " << c;
  }
}

TEST(ArithmeticTest, NaNsAreQuietedAndTheFirstOneIsKept) {
  const auto bits = [](const Rounded<float>& x) { return std::bit_cast<uint32_t>(x.value); };
  const float quiet = std::bit_cast<float>(0xffc01234u);
  const float signalling = std::bit_cast<float>(0x7f800042u);
  EXPECT_EQ(bits(add(1.0f, quiet, kFp32)), 0xffc01234u);
  EXPECT_EQ(add(1.0f, quiet, kFp32).flags, kExact);
  EXPECT_EQ(bits(sub(1.0f, quiet, kFp32)), 0xffc01234u);
  EXPECT_EQ(bits(mul(signalling, quiet, kFp32)), 0x7fc00042u);
  EXPECT_EQ(mul(signalling, quiet, kFp32).flags, kInvalid);
  EXPECT_EQ(bits(div(quiet, signalling, kFp32)), 0xffc01234u);
  EXPECT_EQ(div(quiet, signalling, kFp32).flags, kInvalid);
  EXPECT_EQ(bits(halfscope::sqrt(quiet, kFp32)), 0xffc01234u);
  EXPECT_EQ(halfscope::sqrt(quiet, kFp32).flags, kExact);
  EXPECT_EQ(bits(halfscope::fma(1.0f, 1.0f, signalling, kFp32)), 0x7fc00042u);
  EXPECT_EQ(bits(halfscope::fma(0.0f, kInf, quiet, kFp32)), 0xffc01234u);
  EXPECT_EQ(halfscope::fma(0.0f, kInf, quiet, kFp32).flags, kInvalid);
  EXPECT_EQ(bits(add(kInf, -kInf, kFp32)), 0x7fc00000u);
  EXPECT_EQ(bits(add(1.0f, quiet, kFp16)), 0xffc00000u);  // the payload that fits
  EXPECT_EQ(bits(add(1.0f, quiet, kE4m3fnuz)), 0x7fc00000u);
  EXPECT_EQ(add(1.0f, quiet, kE2m1).value, 6.0f);
  EXPECT_EQ(div(0.0f, 0.0f, kE2m1).value, 6.0f);
  EXPECT_EQ(div(0.0f, 0.0f, kE2m1).flags, kInvalid);
}

TEST(ArithmeticTest, DivisionByZeroFollowsTheFormatsInfinity) {
  EXPECT_EQ(div(-1.0f, 0.0f, kFp16).value, -kInf);
  EXPECT_EQ(div(-1.0f, 0.0f, kFp16).flags, kDivideByZero);
  EXPECT_EQ(div(-1.0f, 0.0f, kE2m1).value, -6.0f);
  EXPECT_TRUE(std::isnan(div(1.0f, -0.0f, kE4m3fn).value));
  EXPECT_EQ(div(1.0f, 0.0f, *parse_format("fp16:sat")).value, 65504.0f);
  EXPECT_EQ(div(kInf, 0.0f, kFp16).flags, kExact);
}

TEST(ArithmeticTest, ConversionReadsInOneFormatAndRoundsToTheOther) {
  const FloatFormat flushing = *parse_format("fp16:ftz-in");
  EXPECT_EQ(convert(0x1p-20f, kFp16, kBf16).value, 0x1p-20f);
  EXPECT_EQ(convert(0x1p-20f, flushing, kBf16).value, 0.0f);
  EXPECT_TRUE(std::signbit(convert(-0x1p-20f, flushing, kBf16).value));
  EXPECT_FALSE(std::signbit(convert(-0x1p-20f, flushing, kE4m3fnuz).value));
  EXPECT_EQ(convert(0x1p-14f, flushing, kBf16).value, 0x1p-14f);
  EXPECT_EQ(convert(57344.0f, kE5m2, kE4m3fn, {.mode = RoundingMode::toward_zero}).value, 448.0f);
  EXPECT_TRUE(std::isnan(convert(kInf, kE5m2, kE4m3fn, {.mode = RoundingMode::down}).value));
}

TEST(ArithmeticTest, Comparisons) {
  const float signalling = std::bit_cast<float>(0x7f800001u);
  const std::vector<float> ascending = {-kInf, -2.0f, -0x1p-149f, 0.0f, 0x1p-149f, 1.0f, kInf};
  for (size_t i = 0; i < ascending.size(); ++i) {
    for (size_t j = 0; j < ascending.size(); ++j) {
      const float a = ascending[i], b = ascending[j];
      const Ordering want = i < j ? Ordering::less : i == j ? Ordering::equal : Ordering::greater;
      EXPECT_EQ(compare(a, b, kFp32).value, want);
      EXPECT_EQ(equal(a, b, kFp32).value, a == b);
      EXPECT_EQ(less(a, b, kFp32).value, a < b);
      EXPECT_EQ(less_equal(a, b, kFp32).value, a <= b);
      EXPECT_FALSE(unordered(a, b, kFp32).value);
      EXPECT_EQ(less(a, b, kFp32).flags, kExact);
    }
  }
  EXPECT_TRUE(equal(0.0f, -0.0f, kFp32).value);
  EXPECT_TRUE(equal(0x1p-20f, -0x1p-24f, *parse_format("fp16:ftz")).value);
  EXPECT_TRUE(unordered(kNan, 1.0f, kFp32).value);
  EXPECT_FALSE(equal(kNan, kNan, kFp32).value || less_equal(kNan, kNan, kFp32).value);
  EXPECT_EQ(equal(kNan, 1.0f, kFp32).flags, kExact);
  EXPECT_EQ(unordered(kNan, 1.0f, kFp32).flags, kExact);
  EXPECT_EQ(less(kNan, 1.0f, kFp32).flags, kInvalid);
  EXPECT_EQ(less_equal(1.0f, kNan, kFp32).flags, kInvalid);
  EXPECT_EQ(equal(signalling, 1.0f, kFp32).flags, kInvalid);
}

static_assert(halfscope::fma(2049.0f, 2049.0f, -4198400.0f, kFp32).value == 1.0f);
static_assert(halfscope::sqrt(2.0f, kFp16).value == 1.4140625f);
static_assert(div(1.0f, 3.0f, kE4m3fn).flags == kInexact);

}  // namespace
}  // namespace halfscope
