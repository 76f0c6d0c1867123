// SPDX-License-Identifier: MIT
// Float<F> against the format by definition (all pairs of the 8-bit types and narrower), against
// Eigen's 16-bit types and the compiler's (all codes), and its conversions.
#include "core/numeric/types/float_types.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>

#include "tests/numeric/enumerated_format.h"
#include "tests/numeric/exact_operation.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;
using testing::exact_operation;
using testing::Operation;

// Storage, and constant evaluation of everything.
static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2 && sizeof(tfloat32) == 4);
static_assert(sizeof(float8_e4m3) == 1 && sizeof(float6_e2m3) == 1 && sizeof(float4_e2m1) == 1);
static_assert(std::is_trivially_copyable_v<half> && std::is_standard_layout_v<half>);
static_assert(1.5_h + 2_h == 3.5_h && -(1.5_h) < 0_h && 3_h / 2_h == 1.5_h && 2_h * 3_h != 5_h);
static_assert(2048_h + 1_h == 2048_h && isinf(65504_h + 16_h) && fma(3_h, 2_h, 1_h) == 7_h);
static_assert(sqrt(9_h) == 3_h && abs(-2_bf16) == 2_bf16 && isnan(sqrt(-1_h)));
static_assert((0.1_e4m3).value() == 0.1015625f && (0.1_e5m2).value() == 0.09375f);
static_assert(half(float8_e4m3(448)).value() == 448.0f && float8_e4m3(300_h).value() == 288.0f);
static_assert(half::from_bits(0x3c00) == 1_h && (1_h).bits() == 0x3c00);
// 2^-11 above 1 and a bit of the long double that a double has not: up, not to even.
static_assert((1.000488281250000001_h).bits() == 0x3c01 && (1.00048828125_h).bits() == 0x3c00);

// There are no implicit conversions, and types do not mix.
template <class A, class B>
concept Adds = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Compares = requires(A a, B b) {
  a == b;
};
static_assert(!std::is_convertible_v<float, half> && !std::is_convertible_v<half, float>);
static_assert(std::is_constructible_v<half, bfloat16> && !std::is_convertible_v<half, bfloat16>);
static_assert(Adds<half, half> && !Adds<half, float> && !Adds<half, bfloat16> && !Adds<int, half>);
static_assert(Compares<half, half> && !Compares<half, float> && !Compares<half, int>);

/// Same value and sign; of NaNs only that both are.
template <class T>
bool same(T got, double want) {
  if (std::isnan(want)) return isnan(got);
  return static_cast<double>(got) == want && (want != 0 || signbit(got) == std::signbit(want));
}

template <class T>
class SmallFloatTest : public ::testing::Test {};
using SmallFloats = ::testing::Types<float8_e4m3, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz,
                                     float6_e3m2, float6_e2m3, float4_e2m1,
                                     Float<FloatFormat{4, 3, 7, Encoding::finite_nan, true}>>;
TYPED_TEST_SUITE(SmallFloatTest, SmallFloats);

TYPED_TEST(SmallFloatTest, AllPairsAreTheExactResultRounded) {
  using T = TypeParam;
  const EnumeratedFormat definition(T::kFormat);
  const int codes = 1 << T::kFormat.bits();
  const auto expect = [&](T got, Operation operation, float a, float b) {
    const double want = definition.round(exact_operation(operation, a, b, 0)).value;
    ASSERT_TRUE(same(got, want)) << static_cast<int>(operation) << ' ' << a << ' ' << b << ": "
                                 << got.value() << ", not " << want;
  };
  for (int i = 0; i < codes; ++i) {
    const T a = T::from_bits(static_cast<uint8_t>(i));
    const float x = a.value();
    ASSERT_NO_FATAL_FAILURE(expect(sqrt(a), Operation::sqrt, x, 0));
    for (int j = 0; j < codes; ++j) {
      const T b = T::from_bits(static_cast<uint8_t>(j));
      const float y = b.value();
      ASSERT_NO_FATAL_FAILURE(expect(a + b, Operation::add, x, y));
      ASSERT_NO_FATAL_FAILURE(expect(a - b, Operation::sub, x, y));
      ASSERT_NO_FATAL_FAILURE(expect(a * b, Operation::mul, x, y));
      ASSERT_NO_FATAL_FAILURE(expect(a / b, Operation::div, x, y));
      ASSERT_TRUE((a == b) == (x == y) && (a != b) == (x != y) && (a < b) == (x < y) &&
                  (a <= b) == (x <= y) && (a > b) == (x > y) && (a >= b) == (x >= y));
    }
  }
}

TYPED_TEST(SmallFloatTest, SignsAndClasses) {
  using T = TypeParam;
  for (int i = 0; i < 1 << T::kFormat.bits(); ++i) {
    const T x = T::from_bits(static_cast<uint8_t>(i));
    const float value = x.value();
    EXPECT_EQ(x.bits(), i);
    EXPECT_EQ(isnan(x), std::isnan(value));
    EXPECT_EQ(isinf(x), std::isinf(value));
    EXPECT_EQ(isfinite(x), std::isfinite(value));
    EXPECT_EQ(static_cast<bool>(x), value != 0);
    EXPECT_EQ(signbit(x), std::signbit(value));
    EXPECT_TRUE(same(abs(x), std::fabs(static_cast<double>(value))));
    const bool zero = value == 0 && !T::kFormat.has_negative_zero();
    EXPECT_TRUE(same(-x, zero ? 0.0 : -static_cast<double>(value))) << i;
    if (!std::isnan(value)) {
      EXPECT_EQ(T(value).bits(), i);
      EXPECT_EQ(T(static_cast<double>(value)).bits(), i);
    }
  }
  // Bits above the format's are ignored.
  EXPECT_EQ(float4_e2m1::from_bits(0xf7).bits(), 7);
}

template <class T, class Other>
void expect_same_codes() {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const T x = T::from_bits(static_cast<uint16_t>(code));
    const Other reference = std::bit_cast<Other>(static_cast<uint16_t>(code));
    ASSERT_TRUE(same(x, static_cast<double>(static_cast<float>(reference)))) << code;
    ASSERT_TRUE(same(-x, static_cast<double>(static_cast<float>(-reference)))) << code;
    ASSERT_EQ(std::bit_cast<uint16_t>(x), code);
  }
}

/// Every code with varying partners: random ones, close ones, special ones.
template <class T, class Other>
void expect_same_operations() {
  std::mt19937 generator(5);
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const uint16_t partners[] = {static_cast<uint16_t>(generator()),
                                 static_cast<uint16_t>(generator()),
                                 static_cast<uint16_t>(generator()),
                                 static_cast<uint16_t>(code + generator() % 5 - 2),
                                 static_cast<uint16_t>((code ^ 0x8000) + generator() % 5 - 2),
                                 0,
                                 0x8000,
                                 1,
                                 std::bit_cast<uint16_t>(T(1)),
                                 std::bit_cast<uint16_t>(T(3)),
                                 std::bit_cast<uint16_t>(std::numeric_limits<T>::max()),
                                 std::bit_cast<uint16_t>(std::numeric_limits<T>::min()),
                                 std::bit_cast<uint16_t>(std::numeric_limits<T>::infinity())};
    for (const uint16_t partner : partners) {
      const T a = T::from_bits(static_cast<uint16_t>(code)), b = T::from_bits(partner);
      const Other x = std::bit_cast<Other>(static_cast<uint16_t>(code));
      const Other y = std::bit_cast<Other>(partner);
      const auto expect = [&](char operation, T got, Other want) {
        ASSERT_TRUE(same(got, static_cast<double>(static_cast<float>(want))))
            << operation << std::hex << ' ' << code << ' ' << partner;
      };
      ASSERT_NO_FATAL_FAILURE(expect('+', a + b, static_cast<Other>(x + y)));
      ASSERT_NO_FATAL_FAILURE(expect('-', a - b, static_cast<Other>(x - y)));
      ASSERT_NO_FATAL_FAILURE(expect('*', a * b, static_cast<Other>(x * y)));
      ASSERT_NO_FATAL_FAILURE(expect('/', a / b, static_cast<Other>(x / y)));
      ASSERT_TRUE((a == b) == (x == y) && (a != b) == (x != y) && (a < b) == (x < y) &&
                  (a <= b) == (x <= y) && (a > b) == (x > y) && (a >= b) == (x >= y));
      T sum = a;
      sum += b;
      ASSERT_TRUE(sum.bits() == (a + b).bits());
    }
  }
}

TEST(FloatTypesTest, HalfIsEigensHalf) {
  expect_same_codes<half, Eigen::half>();
  expect_same_operations<half, Eigen::half>();
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const Eigen::half x = std::bit_cast<Eigen::half>(static_cast<uint16_t>(code));
    const float want = static_cast<float>(Eigen::half(std::sqrt(static_cast<float>(x))));
    ASSERT_TRUE(same(sqrt(std::bit_cast<half>(x)), static_cast<double>(want))) << code;
  }
}

TEST(FloatTypesTest, Bfloat16IsEigensBfloat16) {
  expect_same_codes<bfloat16, Eigen::bfloat16>();
  expect_same_operations<bfloat16, Eigen::bfloat16>();
}

#if defined(__FLT16_MANT_DIG__)
TEST(FloatTypesTest, HalfIsTheCompilersHalf) { expect_same_operations<half, _Float16>(); }
#endif

TEST(FloatTypesTest, FmaRoundsOnce) {
  const EnumeratedFormat definition(kFp16);
  std::mt19937 generator(6);
  for (int i = 0; i < 200000; ++i) {
    const half a = half::from_bits(static_cast<uint16_t>(generator()));
    const half b = half::from_bits(static_cast<uint16_t>(generator()));
    half c = half::from_bits(static_cast<uint16_t>(generator()));
    if (i % 2 == 0) c = -(a * b);  // cancellation
    const double exact = exact_operation(Operation::fma, a.value(), b.value(), c.value());
    ASSERT_TRUE(same(fma(a, b, c), definition.round(exact).value))
        << a.value() << ' ' << b.value() << ' ' << c.value();
  }
}

TEST(FloatTypesTest, IntegersOfAnyWidthAreRoundedOnce) {
  for (int i = -70000; i <= 70000; ++i) {
    ASSERT_EQ(half(i).bits(), half(static_cast<double>(i)).bits()) << i;
  }
  EXPECT_EQ(bfloat16(std::numeric_limits<int64_t>::min()).value(), -0x1p63f);
  EXPECT_EQ(bfloat16(std::numeric_limits<uint64_t>::max()).value(), 0x1p64f);
  // One above the tie between 2^62 and the next: a double would lose the one.
  EXPECT_EQ(bfloat16((int64_t{1} << 62) + (int64_t{1} << 54) + 1).value(), 0x1.02p62f);
  EXPECT_EQ(bfloat16((int64_t{1} << 62) + (int64_t{1} << 54)).value(), 0x1p62f);
  EXPECT_EQ(half(true).value(), 1.0f);
}

TEST(FloatTypesTest, ToIntegersTruncatesAndSaturates) {
  EXPECT_EQ(static_cast<int>(2.75_h), 2);
  EXPECT_EQ(static_cast<int>(-2.75_h), -2);
  EXPECT_EQ(static_cast<int8_t>(300_h), 127);
  EXPECT_EQ(static_cast<int8_t>(-300_h), -128);
  EXPECT_EQ(static_cast<uint8_t>(-3_h), 0);
  EXPECT_EQ(static_cast<uint8_t>(255.5_h), 255);
  EXPECT_EQ(static_cast<int64_t>(std::numeric_limits<bfloat16>::infinity()),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(static_cast<int>(std::numeric_limits<half>::quiet_NaN()), 0);
}

TEST(FloatTypesTest, ConstructionTakesARounding) {
  EXPECT_EQ(half(0.1f, {.mode = RoundingMode::up}).bits(),
            half(0.1f, {.mode = RoundingMode::down}).bits() + 1);
  EXPECT_EQ(half(70000, {.mode = RoundingMode::toward_zero}).value(), 65504.0f);
  EXPECT_EQ(float8_e4m3(1.06_h, {.mode = RoundingMode::up}).value(), 1.125f);
}

TEST(FloatTypesTest, ConversionBetweenFormatsGoesThroughNoThird) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const half x = half::from_bits(static_cast<uint16_t>(code));
    ASSERT_TRUE(same(bfloat16(x), round_to_format(static_cast<double>(x.value()), kBf16).value));
    ASSERT_TRUE(same(half(tfloat32(x)), static_cast<double>(x.value())));
  }
}

TEST(FloatTypesTest, SignallingNansSurviveUntilTheyAreUsed) {
  const half signalling = std::numeric_limits<half>::signaling_NaN();
  EXPECT_EQ(signalling.bits(), 0x7c01);
  EXPECT_EQ((-signalling).bits(), 0xfc01);
  EXPECT_EQ((signalling + 1_h).bits() & 0x0200, 0x0200);
}

TEST(FloatTypesTest, TheMachinesRoundingModeChangesNothing) {
  const volatile float a = 1.0f, b = 3.0f;
  std::fesetround(FE_UPWARD);
  const half up = half(a) / half(b);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(up, 1_h / 3_h);
}

}  // namespace
}  // namespace halfscope
