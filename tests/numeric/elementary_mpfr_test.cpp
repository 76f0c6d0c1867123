// SPDX-License-Identifier: MIT
// The elementary functions against MPFR: the largest error in units in the last place over dense,
// random and awkward arguments, and what is delivered to fp16 and bf16 (all arguments) and fp32
// against the correctly rounded function. The bounds are those of docs/semantics.md.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/elementary/inverse.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/round_odd.h"
#include "tests/numeric/mpfr_number.h"

namespace halfscope {
namespace {

using testing::MpfrNumber;

constexpr mpfr_prec_t kPrecision = 128;

using Oracle = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);

struct Function {
  const char* name;
  double (*ours)(double);
  Oracle oracle;
  double bound;      ///< units in the last place
  double low, high;  ///< range where it is neither constant nor out of range
};

// MPFR declares some of these as macros.
int oracle_exp(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_exp(y, x, mode); }
int oracle_expm1(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_expm1(y, x, mode); }
int oracle_log(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_log(y, x, mode); }
int oracle_log1p(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_log1p(y, x, mode); }
int oracle_tanh(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_tanh(y, x, mode); }
int oracle_erf(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_erf(y, x, mode); }
int oracle_erfc(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_erfc(y, x, mode); }
int oracle_sin(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_sin(y, x, mode); }
int oracle_cos(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_cos(y, x, mode); }

int oracle_asin(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_asin(y, x, mode); }
int oracle_acos(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_acos(y, x, mode); }
int oracle_atan(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_atan(y, x, mode); }
int oracle_asinh(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_asinh(y, x, mode); }
int oracle_acosh(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_acosh(y, x, mode); }
int oracle_atanh(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t mode) { return mpfr_atanh(y, x, mode); }

const Function kFunctions[] = {
    {"exp", elementary::exp, oracle_exp, 0.75, -746.0, 710.0},
    {"expm1", elementary::expm1, oracle_expm1, 0.75, -38.0, 710.0},
    {"log", elementary::log, oracle_log, 0.55, 0.0, 4.0},
    {"log1p", elementary::log1p, oracle_log1p, 0.55, -1.0, 4.0},
    {"tanh", elementary::tanh, oracle_tanh, 0.6, -20.0, 20.0},
    {"sin", elementary::sin, oracle_sin, 0.9, -100.0, 100.0},
    {"cos", elementary::cos, oracle_cos, 0.9, -100.0, 100.0},
    {"erf", elementary::erf, oracle_erf, 0.85, -6.0, 6.0},
    {"erfc", elementary::erfc, oracle_erfc, 0.97, -6.0, 27.3},
    {"asin", elementary::asin, oracle_asin, 0.6, -1.0, 1.0},
    {"acos", elementary::acos, oracle_acos, 0.6, -1.0, 1.0},
    {"atan", elementary::atan, oracle_atan, 0.6, -20.0, 20.0},
    {"asinh", elementary::asinh, oracle_asinh, 0.55, -20.0, 20.0},
    {"acosh", elementary::acosh, oracle_acosh, 0.55, 1.0, 20.0},
    {"atanh", elementary::atanh, oracle_atanh, 0.55, -1.0, 1.0},
};

/// Returns |got - want| in units of a double's last place next to `want`; huge if one of them is
/// NaN or infinite and the other is not.
double error_in_ulps(double got, mpfr_srcptr want) {
  const double nearest = mpfr_get_d(want, MPFR_RNDN);
  if (std::isnan(got) || std::isnan(nearest))
    return std::isnan(got) == std::isnan(nearest) ? 0 : 1e9;
  if (std::isinf(got) || std::isinf(nearest)) return got == nearest ? 0 : 1e9;
  const long exponent = mpfr_zero_p(want) ? -1074 : std::max<long>(mpfr_get_exp(want) - 53, -1074);
  MpfrNumber difference(kPrecision);
  mpfr_sub_d(difference.get(), want, got, MPFR_RNDN);
  mpfr_mul_2si(difference.get(), difference.get(), -exponent, MPFR_RNDN);
  return std::fabs(mpfr_get_d(difference.get(), MPFR_RNDN));
}

double any_double(std::mt19937_64& random) {
  for (;;) {
    const double x = std::bit_cast<double>(random());
    if (!std::isnan(x)) return x;
  }
}
double uniform(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
}
/// A power of two between 2^low and 2^high with a random fraction and sign.
double of_any_size(std::mt19937_64& random, double low, double high) {
  const double x = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                              static_cast<int>(std::floor(uniform(random, low, high))));
  return (random() & 1) != 0 ? x : -x;
}

/// Numbers around which something changes: powers of two, multiples of ln 2 / 2 and of pi / 2,
/// limits of ranges, each with its neighbours.
std::vector<double> awkward_numbers() {
  std::vector<double> middle{0.5,    0.75,    6.0,   27.3,  std::sqrt(0.5), std::sqrt(2.0),
                             1.0,    20.0,    -40.0, 37.43, 709.78,         709.79,
                             -708.4, -745.14, -746.0};
  for (int e = -1074; e <= 1023; ++e) middle.push_back(std::ldexp(1.0, e));
  for (int k = 1; k < 2200; ++k) middle.push_back(0.5 * k * 0x1.62e42fefa39efp-1);
  for (int k = 1; k < 400; ++k) middle.push_back(k * 0x1.921fb54442d18p+0);
  for (int e = 1; e < 1000; e += 7) middle.push_back(std::ldexp(0x1.921fb54442d18p+0, e));
  // The double nearest to a multiple of pi / 2, with its neighbours in between (Kahan).
  middle.push_back(6381956970095103.0 * 0x1p797);
  std::vector<double> numbers;
  for (const double x : middle) {
    double below = x, above = x;
    numbers.push_back(x);
    for (int i = 0; i < 2; ++i) {
      below = std::nextafter(below, -INFINITY);
      above = std::nextafter(above, INFINITY);
      numbers.push_back(below);
      numbers.push_back(above);
    }
  }
  const size_t count = numbers.size();
  for (size_t i = 0; i < count; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

class ElementaryTest : public ::testing::TestWithParam<Function> {};

TEST_P(ElementaryTest, ErrorIsBounded) {
  const Function& f = GetParam();
  std::mt19937_64 random(20);
  MpfrNumber x(53), want(kPrecision);
  double worst = 0.0, at = 0.0;
  const auto check = [&](double argument) {
    mpfr_set_d(x.get(), argument, MPFR_RNDN);
    f.oracle(want.get(), x.get(), MPFR_RNDN);
    const double error = error_in_ulps(f.ours(argument), want.get());
    if (error > worst) worst = error, at = argument;
  };
  for (const double argument : awkward_numbers()) check(argument);
  for (int i = 0; i < 10000; ++i) {
    check(any_double(random));
    check(of_any_size(random, -60.0, 11.0));
    check(uniform(random, f.low, f.high));
    check(uniform(random, -1.0, 1.0));
    check(uniform(random, -6.0, 6.0));
    check(1.0 + of_any_size(random, -53.0, -1.0));
  }
  EXPECT_LE(worst, f.bound) << std::hexfloat << "at " << at;
  EXPECT_GT(worst, 0.5 - 1e-3) << "no result was near a tie: are the arguments as they should be?";
}

/// `exact` rounded once to a format that has subnormal numbers.
float rounded_once(mpfr_srcptr exact, const FloatFormat& format) {
  MpfrNumber result(format.mantissa_bits + 1);
  const mpfr_exp_t before_min = mpfr_get_emin(), before_max = mpfr_get_emax();
  int ternary = mpfr_set(result.get(), exact, MPFR_RNDN);
  mpfr_set_emin(format.min_exponent() - format.mantissa_bits + 1);  // 1/2 <= |x| < 1 there
  mpfr_set_emax(format.max_exponent() + 1);
  ternary = mpfr_check_range(result.get(), ternary, MPFR_RNDN);
  mpfr_subnormalize(result.get(), ternary, MPFR_RNDN);
  mpfr_set_emin(before_min);
  mpfr_set_emax(before_max);
  return static_cast<float>(mpfr_get_d(result.get(), MPFR_RNDN));
}

/// Counts the arguments whose result is not correctly rounded.
int64_t misrounded(const Function& f, const FloatFormat& format,
                   const std::vector<float>& arguments) {
  MpfrNumber x(24), want(kPrecision);
  int64_t count = 0;
  for (const float argument : arguments) {
    mpfr_set_flt(x.get(), argument, MPFR_RNDN);
    f.oracle(want.get(), x.get(), MPFR_RNDN);
    const float expected = rounded_once(want.get(), format);
    const float got =
        round_to_format(deliver(f.ours(static_cast<double>(argument)), format), format).value;
    const bool same = std::isnan(expected)
                          ? std::isnan(got)
                          : std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(got);
    if (!same) ++count;
  }
  return count;
}

std::vector<float> all_of(const FloatFormat& format) {
  std::vector<float> numbers;
  for (uint32_t code = 0; code < 0x10000; ++code) {
    numbers.push_back(decode(code, format));
  }
  return numbers;
}

TEST_P(ElementaryTest, AllOfFp16AreRoundedCorrectly) {
  EXPECT_EQ(misrounded(GetParam(), kFp16, all_of(kFp16)), 0);
}
TEST_P(ElementaryTest, AllOfBf16AreRoundedCorrectly) {
  EXPECT_EQ(misrounded(GetParam(), kBf16, all_of(kBf16)), 0);
}
TEST_P(ElementaryTest, SamplesOfFp32AreRoundedCorrectly) {
  std::mt19937_64 random(21);
  std::vector<float> arguments;
  for (int i = 0; i < 60000; ++i) {
    arguments.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    arguments.push_back(static_cast<float>(of_any_size(random, -24.0, 8.0)));
  }
  EXPECT_EQ(misrounded(GetParam(), kFp32, arguments), 0);
}

INSTANTIATE_TEST_SUITE_P(Functions, ElementaryTest, ::testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ElementaryPower, ErrorIsBounded) {
  std::mt19937_64 random(22);
  MpfrNumber x(53), y(53), want(kPrecision);
  double worst = 0.0, at_a = 0.0, at_b = 0.0;
  const auto check = [&](double a, double b) {
    mpfr_set_d(x.get(), a, MPFR_RNDN);
    mpfr_set_d(y.get(), b, MPFR_RNDN);
    mpfr_pow(want.get(), x.get(), y.get(), MPFR_RNDN);
    const double error = error_in_ulps(elementary::pow(a, b), want.get());
    if (error > worst) worst = error, at_a = a, at_b = b;
  };
  const std::vector<double> exponents{2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1.5, 1.0 / 3.0, 7.0, 64.0};
  for (int i = 0; i < 20000; ++i) {
    check(any_double(random), any_double(random));
    const double a = std::fabs(of_any_size(random, -40.0, 40.0));
    check(a, uniform(random, -30.0, 30.0));
    check(of_any_size(random, -40.0, 40.0), std::floor(uniform(random, -30.0, 30.0)));
    check(a, exponents[static_cast<size_t>(i) % exponents.size()]);
    check(uniform(random, 0.5, 2.0), uniform(random, -1075.0, 1075.0));
    check(a, uniform(random, -1030.0, -1018.0) / std::log2(a));  // about the smallest normal number
    check(1.0 + of_any_size(random, -52.0, -20.0), of_any_size(random, 20.0, 52.0));
  }
  EXPECT_LE(worst, 0.8) << std::hexfloat << "at " << at_a << ", " << at_b;
  EXPECT_GT(worst, 0.5 - 1e-3);
}

TEST(ElementaryPower, SquaresAndCubesOfFloatsAreExact) {
  std::mt19937_64 random(23);
  for (int i = 0; i < 50000; ++i) {
    const double a = static_cast<double>(static_cast<float>(of_any_size(random, -60.0, 60.0)));
    ASSERT_EQ(elementary::pow(a, 2.0), a * a) << std::hexfloat << a;
    const double b = std::ldexp(std::floor(uniform(random, 1.0, 131072.0)), -9);
    ASSERT_EQ(elementary::pow(b, 3.0), b * b * b) << std::hexfloat << b;
  }
}

}  // namespace
}  // namespace halfscope
