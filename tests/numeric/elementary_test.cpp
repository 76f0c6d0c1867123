// SPDX-License-Identifier: MIT
// Properties of elementary functions apart from accuracy (elementary_mpfr_test.cpp): the special
// cases of C's Annex F, symmetries, order, and the same bits wherever this is compiled.
#include "core/numeric/elementary/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/numeric/elementary/inverse.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

/// Same value and sign; any NaN is any other.
::testing::AssertionResult is(double got, double want) {
  const bool same = std::isnan(want)
                        ? std::isnan(got)
                        : std::bit_cast<uint64_t>(got) == std::bit_cast<uint64_t>(want);
  if (same) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << std::hexfloat << "got " << got << ", not " << want;
}

TEST(Elementary, SpecialArguments) {
  using namespace elementary;
  struct Case {
    double (*f)(double);
    double x, y;
  };
  const Case cases[] = {
      {exp, 0.0, 1.0},
      {exp, -0.0, 1.0},
      {exp, kInf, kInf},
      {exp, -kInf, 0.0},
      {exp, kNan, kNan},
      {exp, 709.8, kInf},
      {exp, -745.2, 0.0},
      {exp, -745.1, 0x1p-1074},
      {exp, 1e300, kInf},
      {expm1, 0.0, 0.0},
      {expm1, -0.0, -0.0},
      {expm1, kInf, kInf},
      {expm1, -kInf, -1.0},
      {expm1, kNan, kNan},
      {expm1, -0x1p-1074, -0x1p-1074},
      {log, 0.0, -kInf},
      {log, -0.0, -kInf},
      {log, 1.0, 0.0},
      {log, kInf, kInf},
      {log, -1.0, kNan},
      {log, -kInf, kNan},
      {log, kNan, kNan},
      {log1p, 0.0, 0.0},
      {log1p, -0.0, -0.0},
      {log1p, -1.0, -kInf},
      {log1p, kInf, kInf},
      {log1p, -1.5, kNan},
      {log1p, -kInf, kNan},
      {log1p, kNan, kNan},
      {log1p, -0x1p-1074, -0x1p-1074},
      {tanh, 0.0, 0.0},
      {tanh, -0.0, -0.0},
      {tanh, kInf, 1.0},
      {tanh, -kInf, -1.0},
      {tanh, kNan, kNan},
      {tanh, 0x1p-1074, 0x1p-1074},
      {erf, 0.0, 0.0},
      {erf, -0.0, -0.0},
      {erf, kInf, 1.0},
      {erf, -kInf, -1.0},
      {erf, kNan, kNan},
      {erfc, 0.0, 1.0},
      {erfc, -0.0, 1.0},
      {erfc, kInf, 0.0},
      {erfc, -kInf, 2.0},
      {erfc, kNan, kNan},
      {erfc, 28.0, 0.0},
      {sin, 0.0, 0.0},
      {sin, -0.0, -0.0},
      {sin, kInf, kNan},
      {sin, -kInf, kNan},
      {sin, kNan, kNan},
      {sin, -0x1p-1074, -0x1p-1074},
      {cos, 0.0, 1.0},
      {cos, -0.0, 1.0},
      {cos, kInf, kNan},
      {cos, kNan, kNan},
      {asin, 0.0, 0.0},
      {asin, -0.0, -0.0},
      {asin, 1.0, 0x1.921fb54442d18p+0},
      {asin, 0x1.0000000000001p+0, kNan},
      {asin, -kInf, kNan},
      {asin, kNan, kNan},
      {asin, -0x1p-1074, -0x1p-1074},
      {acos, 1.0, 0.0},
      {acos, -1.0, 0x1.921fb54442d18p+1},
      {acos, -0.0, 0x1.921fb54442d18p+0},
      {acos, -0x1.0000000000001p+0, kNan},
      {acos, kInf, kNan},
      {acos, kNan, kNan},
      {atan, 0.0, 0.0},
      {atan, -0.0, -0.0},
      {atan, kInf, 0x1.921fb54442d18p+0},
      {atan, -kInf, -0x1.921fb54442d18p+0},
      {atan, 1e300, 0x1.921fb54442d18p+0},
      {atan, kNan, kNan},
      {atan, 0x1p-1074, 0x1p-1074},
      {asinh, -0.0, -0.0},
      {asinh, kInf, kInf},
      {asinh, -kInf, -kInf},
      {asinh, kNan, kNan},
      {asinh, -0x1p-1074, -0x1p-1074},
      {acosh, 1.0, 0.0},
      {acosh, kInf, kInf},
      {acosh, 0.9999999999999999, kNan},
      {acosh, -kInf, kNan},
      {acosh, kNan, kNan},
      {atanh, -0.0, -0.0},
      {atanh, 1.0, kInf},
      {atanh, -1.0, -kInf},
      {atanh, 0x1.0000000000001p+0, kNan},
      {atanh, -kInf, kNan},
      {atanh, kNan, kNan},
      {atanh, 0x1p-1074, 0x1p-1074},
  };
  for (const Case& each : cases) {
    EXPECT_TRUE(is(each.f(each.x), each.y)) << "case " << &each - cases << " at " << each.x;
  }
}

TEST(Elementary, SpecialPowers) {
  struct Case {
    double a, b, power;
  };
  const Case cases[] = {
      {0.0, 3.0, 0.0},           {-0.0, 3.0, -0.0},
      {-0.0, 2.0, 0.0},          {0.0, 0.5, 0.0},
      {-0.0, 0.5, 0.0},          {0.0, -3.0, kInf},
      {-0.0, -3.0, -kInf},       {-0.0, -2.0, kInf},
      {-0.0, -0.5, kInf},        {0.0, -kInf, kInf},
      {0.0, kInf, 0.0},          {-1.0, kInf, 1.0},
      {-1.0, -kInf, 1.0},        {1.0, kNan, 1.0},
      {1.0, -kInf, 1.0},         {kNan, 0.0, 1.0},
      {kInf, -0.0, 1.0},         {-2.0, 0.5, kNan},
      {-2.0, 3.0, -8.0},         {-2.0, 2.0, 4.0},
      {-2.0, -1.0, -0.5},        {0.5, -kInf, kInf},
      {-2.0, -kInf, 0.0},        {0.5, kInf, 0.0},
      {2.0, kInf, kInf},         {-kInf, -3.0, -0.0},
      {-kInf, -2.0, 0.0},        {-kInf, 3.0, -kInf},
      {-kInf, 2.0, kInf},        {-kInf, 0.5, kInf},
      {kInf, -1.0, 0.0},         {kInf, 1.0, kInf},
      {kNan, 1.0, kNan},         {2.0, kNan, kNan},
      {2.0, 1024.0, kInf},       {-2.0, 1025.0, -kInf},
      {2.0, -1074.0, 0x1p-1074}, {2.0, -1076.0, 0.0},
      {-2.0, -1077.0, -0.0},     {-1.0, 0x1p53 - 1.0, -1.0},
      {-1.0, 0x1p53, 1.0},       {10.0, 22.0, 1e22},
      {-1.5, 1e300, kInf},       {0.999, -1e300, kInf},
      {1.001, -1e300, 0.0},
  };
  for (const Case& each : cases) {
    EXPECT_TRUE(is(elementary::pow(each.a, each.b), each.power)) << each.a << "^" << each.b;
  }
}

TEST(Elementary, SymmetriesHoldBitForBit) {
  std::mt19937_64 random(24);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::bit_cast<double>(random());
    if (std::isnan(x)) continue;
    ASSERT_TRUE(is(elementary::tanh(-x), -elementary::tanh(x))) << x;
    ASSERT_TRUE(is(elementary::erf(-x), -elementary::erf(x))) << x;
    ASSERT_TRUE(is(elementary::sin(-x), -elementary::sin(x))) << x;
    ASSERT_TRUE(is(elementary::asin(-x), -elementary::asin(x))) << x;
    ASSERT_TRUE(is(elementary::atan(-x), -elementary::atan(x))) << x;
    ASSERT_TRUE(is(elementary::asinh(-x), -elementary::asinh(x))) << x;
    ASSERT_TRUE(is(elementary::atanh(-x), -elementary::atanh(x))) << x;
    ASSERT_TRUE(is(elementary::cos(-x), elementary::cos(x))) << x;
  }
}

/// Increasing functions also increase from float to float: neighbours are so far apart that an
/// error of less than one unit of double does not matter.
TEST(Elementary, OrderIsKept) {
  const float starts[] = {-700.0f, -20.0f, -5.0f, -0.7f, -0.5f, -0.35f, 0.1f,  0.35f,
                          0.5f,    0.7f,   1.4f,  5.0f,  27.0f, 88.0f,  700.0f};
  for (const float start : starts) {
    double x = static_cast<double>(start);
    for (int i = 0; i < 3000; ++i) {
      const double next = static_cast<double>(
          std::nextafter(static_cast<float>(x), std::numeric_limits<float>::max()));
      ASSERT_LE(elementary::exp(x), elementary::exp(next)) << x;
      ASSERT_LE(elementary::expm1(x), elementary::expm1(next)) << x;
      ASSERT_LE(elementary::tanh(x), elementary::tanh(next)) << x;
      ASSERT_LE(elementary::erf(x), elementary::erf(next)) << x;
      ASSERT_GE(elementary::erfc(x), elementary::erfc(next)) << x;
      if (x > 0.0) {
        ASSERT_LE(elementary::log(x), elementary::log(next)) << x;
        ASSERT_LE(elementary::log1p(x), elementary::log1p(next)) << x;
      }
      x = next;
    }
  }
}

/// FNV-1a over the results' bits for 20,000 arguments. Another number here means that training on
/// some machine gives other bits: a contracted multiply-add, another rounding, an edited
/// polynomial.
TEST(Elementary, BitsAreTheSameEverywhere) {
  struct Expected {
    const char* name;
    double (*f)(double);
    uint64_t hash;
  };
  using namespace elementary;
  const Expected all[] = {
      {"exp", exp, 0xbbda71ffd33a2231},
      {"expm1", expm1, 0x70c26c7ba1e8332b},
      {"log", log, 0x0722c0b9b7faad8f},
      {"log1p", log1p, 0xeb8900bd2a2d03a6},
      {"tanh", tanh, 0x063a5889db6bf74b},
      {"sin", sin, 0x6447eb7f9900328c},
      {"cos", cos, 0x6143b816259cf237},
      {"erf", erf, 0x9a7f301bd0d9e63c},
      {"erfc", erfc, 0xaee194215adae0b4},
      {"pow", [](double x) { return pow(magnitude(x), 1.7 * x); }, 0xfed3a16aec8afe7c},
  };
  for (const Expected& each : all) {
    uint64_t hash = 0xcbf29ce484222325, random = 1;
    for (int i = 0; i < 20000; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth
      const int exponent = static_cast<int>((random >> 33) % 48) - 40;
      const double x =
          std::ldexp(static_cast<double>(static_cast<int64_t>(random) >> 11), exponent - 52);
      const double y = each.f(x);
      const uint64_t bits = y == y ? std::bit_cast<uint64_t>(y) : 0x7ff8000000000000;
      for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (bits >> 8 * byte & 255)) * 0x100000001b3;
    }
    EXPECT_EQ(hash, each.hash) << each.name << std::hex << " 0x" << hash;
  }
}

}  // namespace
}  // namespace halfscope
