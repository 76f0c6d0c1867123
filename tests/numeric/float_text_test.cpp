// SPDX-License-Identifier: MIT
// Decimals of Float<F>: every code is converted to text and back, texts are the shortest possible,
// and long decimals are rounded once.
#include "core/numeric/types/float_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "core/numeric/types/float_types.h"

namespace halfscope {
namespace {

template <class T>
class FloatTextTest : public ::testing::Test {};
using AllFloats =
    ::testing::Types<half, bfloat16, float8_e4m3, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz,
                     float6_e3m2, float6_e2m3, float4_e2m1, tfloat32>;
TYPED_TEST_SUITE(FloatTextTest, AllFloats);

TYPED_TEST(FloatTextTest, EveryCodeReadsBack) {
  using T = TypeParam;
  const uint32_t stride = T::kFormat.bits() > 16 ? 7 : 1;
  for (uint32_t code = 0; code < uint32_t{1} << T::kFormat.bits(); code += stride) {
    const T x = T::from_bits(static_cast<typename T::Code>(code));
    std::stringstream stream;
    stream << x;
    const std::string text = stream.str();
    ASSERT_EQ(text, to_string(x));
    T back = T(1);
    ASSERT_TRUE(stream >> back) << text;
    if (isnan(x)) {
      ASSERT_TRUE(isnan(back) && signbit(back) == signbit(x));
    } else {
      ASSERT_EQ(back.bits(), x.bits()) << text;
      ASSERT_EQ(from_string<T>(text)->bits(), x.bits()) << text;
      // A double of the text is off by far less than half a unit, so this is a second opinion.
      ASSERT_EQ(T(std::strtod(text.c_str(), nullptr)).bits(), x.bits()) << text;
    }
  }
}

/// The fewest digits of a decimal between the neighbours' midpoints, by trying all of them; the
/// ends count if the code is even. `low` and `high` are doubles, exact.
int fewest_digits(double low, double high, bool even) {
  for (int digits = 1;; ++digits) {
    for (int exponent = static_cast<int>(std::floor(std::log10(high))) - digits + 1;; --exponent) {
      // The largest multiple of 10^exponent below or at high, as text to be exact.
      char text[64];
      std::snprintf(text, sizeof text, "%.*e", digits - 1, high);
      for (const double candidate :
           {std::strtod(text, nullptr), std::strtod(text, nullptr) - std::pow(10.0, exponent)}) {
        const bool inside =
            even ? candidate >= low && candidate <= high : candidate > low && candidate < high;
        if (inside) return digits;
      }
      break;
    }
  }
}

TEST(FloatTextTest, HalfTextsAreTheShortest) {
  for (uint16_t code = 1; code < 0x7bff; ++code) {
    const auto value = [](int c) {
      return static_cast<double>(half::from_bits(static_cast<uint16_t>(c)).value());
    };
    const double low = (value(code - 1) + value(code)) / 2;
    const double high = (value(code) + value(code + 1)) / 2;
    const std::string text = to_string(half::from_bits(code));
    std::string digits;
    for (const char c : text.substr(0, text.find('e'))) {
      if (c != '.' && (c != '0' || !digits.empty())) digits += c;
    }
    const int wanted = fewest_digits(low, high, code % 2 == 0);
    if (text.find_first_of(".e") != text.npos) {
      ASSERT_EQ(digits.size(), static_cast<size_t>(wanted)) << text;
    } else {  // an integer, all its digits right
      ASSERT_EQ(std::stod(text), value(code));
    }
  }
}

TEST(FloatTextTest, Fp32TextsAreThoseOfToChars) {
  std::mt19937 generator(8);
  for (int i = 0; i < 20000; ++i) {
    const Float<kFp32> x = Float<kFp32>::from_bits(static_cast<uint32_t>(generator()));
    if (!isfinite(x)) continue;
    char text[64];
    const auto [end, error] = std::to_chars(text, text + sizeof text, x.value());
    ASSERT_EQ(to_string(x), std::string(text, end));
  }
}

TEST(FloatTextTest, Examples) {
  EXPECT_EQ(to_string(0.1_h), "0.1");
  EXPECT_EQ(to_string(std::numeric_limits<half>::max()), "65504");
  EXPECT_EQ(to_string(std::numeric_limits<half>::denorm_min()), "6e-08");
  EXPECT_EQ(to_string(std::numeric_limits<bfloat16>::max()), "3.39e+38");
  EXPECT_EQ(to_string(std::numeric_limits<float8_e4m3>::max()), "448");
  EXPECT_EQ(to_string(std::numeric_limits<float6_e2m3>::max()), "7.5");
  EXPECT_EQ(to_string(1_h / 3_h), "0.3333");
  EXPECT_EQ(to_string(-0.0_h * 0_h), "-0");
  EXPECT_EQ(to_string(-std::numeric_limits<half>::infinity()), "-inf");
}

TEST(FloatTextTest, DecimalsAreRoundedOnce) {
  // 1 + 2^-11 is the tie between 1 and the next half, and so is its nearest double.
  const std::string tie = "1.00048828125";
  EXPECT_EQ(from_string<half>(tie)->bits(), 0x3c00);
  EXPECT_EQ(from_string<half>(tie + std::string(40, '0') + "1")->bits(), 0x3c01);
  EXPECT_EQ(from_string<half>("1.0004882812499999999999999999999999")->bits(), 0x3c00);
  EXPECT_EQ(from_string<half>("1.00146484375")->bits(), 0x3c02);
  EXPECT_EQ(from_string<half>("1.00146484374999999999999999999999999")->bits(), 0x3c01);
  // Half of the smallest value, and a hair more.
  const std::string half_smallest = "2.98023223876953125e-8";
  EXPECT_EQ(from_string<half>(half_smallest)->bits(), 0);
  EXPECT_EQ(from_string<half>("2.98023223876953125000000000000001e-8")->bits(), 1);
  EXPECT_EQ(from_string<half>("65519.9999999999999999999999")->bits(), 0x7bff);
  EXPECT_EQ(from_string<half>("65520")->bits(), 0x7c00);
  EXPECT_EQ(from_string<half>("1e-999999999999")->bits(), 0);
  EXPECT_EQ(from_string<half>("-1e999999999999")->bits(), 0xfc00);
  EXPECT_EQ(from_string<half>("0e999999999999")->bits(), 0);
  EXPECT_EQ(from_string<half>("0.000001e6")->bits(), 0x3c00);
  EXPECT_EQ(from_string<half>("+100000e-5")->bits(), 0x3c00);
}

TEST(FloatTextTest, OtherTextsAreNoNumbers) {
  for (const char* text : {"", "-", "+", ".", "e5", "1e", "1e+", "1.2.3", "--1", "1 ", " 1", "0x1",
                           "1f", "infinite", "nanu"}) {
    EXPECT_FALSE(from_string<half>(text)) << text;
  }
  EXPECT_EQ(from_string<half>("-Infinity")->bits(), 0xfc00);
  EXPECT_TRUE(isnan(*from_string<float8_e4m3>("inf")));
}

TEST(FloatTextTest, StreamFlags) {
  const auto print = [](auto set, half x) {
    std::ostringstream out;
    set(out);
    out << x;
    return out.str();
  };
  EXPECT_EQ(print([](auto& out) { out << std::setw(6); }, 1.5_h), "   1.5");
  EXPECT_EQ(print([](auto& out) { out << std::left << std::setfill('*') << std::setw(6); }, 1.5_h),
            "1.5***");
  EXPECT_EQ(print([](auto& out) { out << std::showpos; }, 1.5_h), "+1.5");
  EXPECT_EQ(print([](auto& out) { out << std::uppercase; }, 6e-8_h), "6E-08");
  EXPECT_EQ(print([](auto& out) { out << std::fixed << std::setprecision(3); }, 0.1_h), "0.100");
  EXPECT_EQ(print([](auto& out) { out << std::scientific << std::setprecision(2); }, 1024_h),
            "1.02e+03");
  EXPECT_EQ(print([](auto& out) { out << std::hexfloat; }, 1.5_h), "0x1.8p+0");
}

TEST(FloatTextTest, ReadingTakesOneNumberAndFailsAsForFloat) {
  std::istringstream list("1.5,-2e1;nan inf 3e");
  half a, b, c, d, e;
  char comma = 0, semicolon = 0;
  list >> a >> comma >> b >> semicolon >> c >> d;
  EXPECT_TRUE(list);
  EXPECT_EQ(a, 1.5_h);
  EXPECT_EQ(b, -20_h);
  EXPECT_TRUE(isnan(c) && isinf(d));
  EXPECT_FALSE(list >> e);
  EXPECT_EQ(e, 0_h);

  std::istringstream large("70000 -7");
  EXPECT_FALSE(large >> a);
  EXPECT_EQ(a, std::numeric_limits<half>::max());
  std::istringstream small("-7");
  float4_e2m1 f;
  EXPECT_FALSE(small >> f);
  EXPECT_EQ(f.value(), -6.0f);
  std::istringstream no_nan("nan");
  EXPECT_FALSE(no_nan >> f);
  std::istringstream word("abc");
  EXPECT_FALSE(word >> a);
  EXPECT_EQ(a, 0_h);
  std::istringstream last("2.5");
  EXPECT_TRUE(last >> a);
  EXPECT_EQ(a, 2.5_h);
}

}  // namespace
}  // namespace halfscope
