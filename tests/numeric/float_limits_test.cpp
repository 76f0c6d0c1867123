// SPDX-License-Identifier: MIT
// std::numeric_limits and std::hash of Float<F> against a look at every code, and against the
// limits of Eigen's types and of float.
#include "core/numeric/types/float_limits.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_set>

#include "core/numeric/types/float_types.h"

namespace halfscope {
namespace {

template <class T>
class FloatLimitsTest : public ::testing::Test {};
using AllFloats = ::testing::Types<half, bfloat16, tfloat32, float8_e4m3, float8_e5m2,
                                   float8_e4m3fnuz, float8_e5m2fnuz, float6_e3m2, float6_e2m3,
                                   float4_e2m1, Float<FloatFormat{6, 9, 31}>>;
TYPED_TEST_SUITE(FloatLimitsTest, AllFloats);

TYPED_TEST(FloatLimitsTest, AreWhatTheCodesSay) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  double largest = 0, smallest = INFINITY, lowest = 0, above_one = INFINITY;
  bool infinity = false, nan = false;
  for (uint32_t code = 0; code < uint32_t{1} << T::kFormat.bits(); ++code) {
    const T x = T::from_bits(static_cast<typename T::Code>(code));
    const double value = static_cast<double>(x.value());
    infinity = infinity || std::isinf(value);
    nan = nan || std::isnan(value);
    if (!std::isfinite(value)) continue;
    largest = std::max(largest, value);
    lowest = std::min(lowest, value);
    if (value > 0) smallest = std::min(smallest, value);
    if (value > 1) above_one = std::min(above_one, value);
  }
  const auto value = [](T x) { return static_cast<double>(x.value()); };
  EXPECT_EQ(value(Limits::max()), largest);
  EXPECT_EQ(value(Limits::lowest()), lowest);
  EXPECT_EQ(value(Limits::denorm_min()), smallest);
  EXPECT_EQ(value(Limits::epsilon()), above_one - 1);
  EXPECT_EQ(value(Limits::round_error()), 0.5);
  EXPECT_EQ(Limits::has_infinity, infinity);
  EXPECT_EQ(Limits::has_quiet_NaN, nan);
  EXPECT_EQ(isinf(Limits::infinity()), infinity);
  EXPECT_EQ(isnan(Limits::quiet_NaN()), nan);
  EXPECT_FALSE(signbit(Limits::quiet_NaN()));
  EXPECT_EQ(isnan(Limits::signaling_NaN()), bool{Limits::has_signaling_NaN});

  // Normal values are those whose successor is 2^(1 - digits) away at most, relatively.
  EXPECT_EQ(value(Limits::min()), smallest * std::ldexp(1.0, Limits::digits - 1));
  EXPECT_EQ(std::ldexp(1.0, 1 - Limits::digits), above_one - 1);
  // min_exponent and max_exponent are those of frexp, as for double.
  int exponent = 0;
  std::frexp(largest, &exponent);
  EXPECT_EQ(Limits::max_exponent, exponent);
  std::frexp(value(Limits::min()), &exponent);
  EXPECT_EQ(Limits::min_exponent, exponent);
  EXPECT_EQ(Limits::max_exponent10, std::floor(std::log10(largest)));
  EXPECT_EQ(Limits::min_exponent10, std::ceil(std::log10(value(Limits::min()))));
  EXPECT_EQ(Limits::digits10, std::floor((Limits::digits - 1) * std::log10(2.0)));
  EXPECT_EQ(Limits::max_digits10, std::ceil(Limits::digits * std::log10(2.0) + 1));
}

TEST(FloatLimitsTest, TheNumbersOfTheStandards) {
  EXPECT_EQ(std::numeric_limits<half>::max().value(), 65504.0f);
  EXPECT_EQ(std::numeric_limits<float8_e4m3>::max().value(), 448.0f);
  EXPECT_EQ(std::numeric_limits<float8_e5m2>::max().value(), 57344.0f);
  EXPECT_EQ(std::numeric_limits<float8_e4m3fnuz>::max().value(), 240.0f);
  EXPECT_EQ(std::numeric_limits<float6_e3m2>::max().value(), 28.0f);
  EXPECT_EQ(std::numeric_limits<float6_e2m3>::max().value(), 7.5f);
  EXPECT_EQ(std::numeric_limits<float4_e2m1>::max().value(), 6.0f);
  static_assert(std::numeric_limits<half>::is_iec559);
  static_assert(std::numeric_limits<Float<kFp32>>::is_iec559);
  static_assert(!std::numeric_limits<bfloat16>::is_iec559);
  static_assert(!std::numeric_limits<float8_e5m2>::is_iec559);
  static_assert(
      !std::numeric_limits<Float<FloatFormat{5, 10, 15, Encoding::ieee, true}>>::is_iec559);
}

TEST(FloatLimitsTest, Fp32HasThoseOfFloat) {
  using Ours = std::numeric_limits<Float<kFp32>>;
  using Theirs = std::numeric_limits<float>;
  EXPECT_EQ(Ours::max().value(), Theirs::max());
  EXPECT_EQ(Ours::min().value(), Theirs::min());
  EXPECT_EQ(Ours::denorm_min().value(), Theirs::denorm_min());
  EXPECT_EQ(Ours::epsilon().value(), Theirs::epsilon());
  EXPECT_EQ(Ours::round_error().value(), Theirs::round_error());
  EXPECT_EQ(Ours::digits, Theirs::digits);
  EXPECT_EQ(Ours::digits10, Theirs::digits10);
  EXPECT_EQ(Ours::max_digits10, Theirs::max_digits10);
  EXPECT_EQ(Ours::min_exponent, Theirs::min_exponent);
  EXPECT_EQ(Ours::max_exponent, Theirs::max_exponent);
  EXPECT_EQ(Ours::min_exponent10, Theirs::min_exponent10);
  EXPECT_EQ(Ours::max_exponent10, Theirs::max_exponent10);
  EXPECT_EQ(Ours::is_iec559, Theirs::is_iec559);
  EXPECT_EQ(Ours::has_signaling_NaN, Theirs::has_signaling_NaN);
}

TEST(FloatLimitsTest, FlushingFormatsHaveNoSubnormals) {
  using Flushing = Float<FloatFormat{5, 10, 15, Encoding::ieee, false, true, true}>;
  EXPECT_EQ(std::numeric_limits<Flushing>::denorm_min(), std::numeric_limits<Flushing>::min());
  EXPECT_EQ(std::numeric_limits<Flushing>::has_denorm, std::denorm_absent);
}

TYPED_TEST(FloatLimitsTest, EqualValuesHashAlike) {
  using T = TypeParam;
  const std::hash<T> hash;
  EXPECT_EQ(hash(T(0.0f)), hash(T(-0.0f)));
  std::unordered_set<size_t> hashes;
  std::unordered_set<double> values;
  bool nan = false;
  for (uint32_t code = 0; code < uint32_t{1} << T::kFormat.bits(); ++code) {
    const T x = T::from_bits(static_cast<typename T::Code>(code));
    nan = nan || isnan(x);
    if (!isnan(x)) values.insert(static_cast<double>(x.value()));
    hashes.insert(hash(x));
  }
  EXPECT_EQ(hashes.size(), values.size() + (nan ? 1 : 0)) << "one each, and one for all NaNs";
}

}  // namespace
}  // namespace halfscope
