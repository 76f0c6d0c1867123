// SPDX-License-Identifier: MIT
// Codes of formats: every code against the definition, the way back, published tables; the scale
// format ue8m0.
#include "core/numeric/formats/codes.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "core/numeric/scaling/ue8m0.h"
#include "tests/numeric/enumerated_format.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

TEST(CodesTest, EveryCodeIsItsDefinitionAndComesBack) {
  for (const char* name :
       {"fp16",     "bf16",       "tf32",     "e4m3fn",      "e5m2",         "e4m3fnuz",
        "e5m2fnuz", "e3m2",       "e2m3",     "e4m3b11fnuz", "e2m1",         "int8",
        "int4",     "e4m3",       "e6m9",     "e2m0",        "e8m0",         "e5m0fn",
        "e5m0fnuz", "e4m0finite", "e8m3b147", "e4m8b-100",   "fp16:sat:ftz", "e4m3fnuz:ftz-out"}) {
    const FloatFormat format = parse_format(name).value();
    const EnumeratedFormat oracle(format);
    const int64_t sign_bit = int64_t{1} << (format.bits() - 1);
    for (int64_t code = 0; code < 2 * sign_bit; ++code) {
      const float value = decode(static_cast<uint32_t>(code), format);
      ASSERT_EQ(encode(value, format), code) << name;
      const bool negative = code >= sign_bit;
      const int64_t magnitude = code % sign_bit;
      if (format.encoding == Encoding::fnuz && code == sign_bit) {
        ASSERT_EQ(bits_of(value), 0x7fc00000u) << name;
      } else if (magnitude < oracle.finite_codes()) {
        const double want = oracle.decode(magnitude);
        ASSERT_TRUE(testing::same_value(value, negative ? -want : want)) << name << " " << code;
      } else if (magnitude == oracle.finite_codes() && format.has_infinity()) {
        ASSERT_EQ(value, negative ? -kInf : kInf) << name;
      } else {
        ASSERT_TRUE(std::isnan(value) && std::signbit(value) == negative) << name << " " << code;
      }
    }
  }
}

TEST(CodesTest, HighBitsAreIgnoredAndWideFormatsFit) {
  EXPECT_EQ(decode(0xffff3c00u, kFp16), 1.0f);
  EXPECT_EQ(decode(0xabcdef38u, kE4m3fn), 1.0f);
  for (const uint32_t bits : {0u, 1u, 0x80000001u, 0x007fffffu, 0x3f800000u, 0x7f7fffffu,
                              0xff800000u, 0x7f800001u, 0xffc12345u}) {
    EXPECT_EQ(bits_of(decode(bits, kFp32)), bits);
    EXPECT_EQ(encode(std::bit_cast<float>(bits), kFp32), bits);
  }
}

TEST(CodesTest, HalfTypesOfEigenAgree) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const uint16_t narrow = static_cast<uint16_t>(code);
    const float half = static_cast<float>(std::bit_cast<Eigen::half>(narrow));
    const float bfloat = static_cast<float>(std::bit_cast<Eigen::bfloat16>(narrow));
    ASSERT_TRUE(testing::same_value(decode(code, kFp16), static_cast<double>(half))) << code;
    ASSERT_TRUE(testing::same_value(decode(code, kBf16), static_cast<double>(bfloat))) << code;
  }
}

TEST(CodesTest, PublishedTables) {
  const struct {
    FloatFormat format;
    std::vector<double> values;
  } tables[] = {
      // OCP MX 1.0, tables 4 and 5 (all positive values of fp4; fp6 by its bounds).
      {kE2m1, {0, 0.5, 1, 1.5, 2, 3, 4, 6}},
      {kE2m3, {0,     0.125, 0.25,  0.375, 0.5,   0.625, 0.75, 0.875, 1,    1.125, 1.25,
               1.375, 1.5,   1.625, 1.75,  1.875, 2,     2.25, 2.5,   2.75, 3,     3.25,
               3.5,   3.75,  4,     4.5,   5,     5.5,   6,    6.5,   7,    7.5}},
      {kE3m2, {0,     0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5, 0.625, 0.75,
               0.875, 1,      1.25,  1.5,    1.75, 2,      2.5,   3,      3.5, 4,     5,
               6,     7,      8,     10,     12,   14,     16,    20,     24,  28}},
  };
  for (const auto& [format, values] : tables) {
    ASSERT_EQ(values.size() * 2, size_t{1} << format.bits());
    for (size_t code = 0; code < values.size(); ++code) {
      EXPECT_EQ(static_cast<double>(decode(static_cast<uint32_t>(code), format)), values[code]);
    }
  }
  // OCP OFP8 1.0, table 1, and arXiv:2206.02915 for fnuz.
  EXPECT_EQ(decode(0x7e, kE4m3fn), 448.0f);
  EXPECT_TRUE(std::isnan(decode(0x7f, kE4m3fn)) && std::isnan(decode(0xff, kE4m3fn)));
  EXPECT_EQ(decode(0x08, kE4m3fn), 0x1p-6f);
  EXPECT_EQ(decode(0x01, kE4m3fn), 0x1p-9f);
  EXPECT_EQ(decode(0x7b, kE5m2), 57344.0f);
  EXPECT_EQ(decode(0xfc, kE5m2), -kInf);
  EXPECT_EQ(decode(0x01, kE5m2), 0x1p-16f);
  EXPECT_EQ(decode(0x7f, kE4m3fnuz), 240.0f);
  EXPECT_EQ(decode(0x7f, kE5m2fnuz), 57344.0f);
  // float8_e4m3b11fnuz of ml_dtypes: (1 + 7/8) 2^(15 - 11), 2^(1 - 11) / 8, one NaN, no -0.
  EXPECT_EQ(decode(0x7f, kE4m3b11fnuz), 30.0f);
  EXPECT_EQ(decode(0xff, kE4m3b11fnuz), -30.0f);
  EXPECT_EQ(decode(0x58, kE4m3b11fnuz), 1.0f);
  EXPECT_EQ(decode(0x01, kE4m3b11fnuz), 0x1p-13f);
  EXPECT_EQ(decode(0x08, kE4m3b11fnuz), 0x1p-10f);
  EXPECT_TRUE(std::isnan(decode(0x80, kE4m3b11fnuz)));
  EXPECT_EQ(encode(-0.0f, kE4m3b11fnuz), 0u);
  EXPECT_EQ(encode(0.1f, kE4m3b11fnuz), 0x3du);  // 1.625 * 2^-4
  EXPECT_TRUE(std::isnan(decode(0x80, kE4m3fnuz)) && std::isnan(decode(0x80, kE5m2fnuz)));
  EXPECT_EQ(decode(0x01, kE4m3fnuz), 0x1p-10f);
  EXPECT_EQ(decode(0x01, kE5m2fnuz), 0x1p-17f);
}

TEST(CodesTest, OtherNumbersAreRoundedFirst) {
  EXPECT_EQ(encode(2049.0f, kFp16), encode(2048.0f, kFp16));
  EXPECT_EQ(encode(1e30f, kFp16), 0x7c00u);
  EXPECT_EQ(encode(1e30f, kE4m3fn), 0x7fu);
  EXPECT_EQ(encode(-1e30f, kE2m1), 0xfu);
  EXPECT_EQ(encode(std::nanf(""), kE2m1), 0x7u);
  EXPECT_EQ(encode(-0.0f, kE4m3fnuz), 0u);
  EXPECT_EQ(encode(-std::nanf(""), kE4m3fnuz), 0x80u);
}

TEST(Ue8m0Test, EveryCode) {
  for (int code = 0; code < 255; ++code) {
    const float value = decode_ue8m0(static_cast<uint8_t>(code));
    ASSERT_EQ(static_cast<double>(value), std::ldexp(1.0, code - 127));
    for (const Ue8m0Rounding each :
         {Ue8m0Rounding::toward_zero, Ue8m0Rounding::up, Ue8m0Rounding::nearest}) {
      ASSERT_EQ(encode_ue8m0(value, each), code);
      ASSERT_EQ(encode_ue8m0(-value, each), code);
    }
    // The powers of two around: a little above, half way, a little below the next.
    const int next = code < 254 ? code + 1 : 254;
    const float above = std::nextafter(value, kInf), half_way = 1.5f * value;
    const float below_half_way = std::nextafter(half_way, 0.0f);
    const float below_next = std::nextafter(2.0f * value, 0.0f);
    for (const float x : {above, below_half_way, half_way, below_next}) {
      ASSERT_EQ(encode_ue8m0(x, Ue8m0Rounding::toward_zero), code);
      ASSERT_EQ(encode_ue8m0(x, Ue8m0Rounding::up), next);
      ASSERT_EQ(encode_ue8m0(x, Ue8m0Rounding::nearest), x >= half_way ? next : code);
    }
  }
}

TEST(Ue8m0Test, Extremes) {
  for (const Ue8m0Rounding each :
       {Ue8m0Rounding::toward_zero, Ue8m0Rounding::up, Ue8m0Rounding::nearest}) {
    EXPECT_EQ(encode_ue8m0(0.0f, each), 0);
    EXPECT_EQ(encode_ue8m0(0x1p-149f, each), 0);
    EXPECT_EQ(encode_ue8m0(0x1.fp-128f, each), 0);
    EXPECT_EQ(encode_ue8m0(kInf, each), 254);
    EXPECT_EQ(encode_ue8m0(std::nanf(""), each), kUe8m0Nan);
  }
  EXPECT_TRUE(std::isnan(decode_ue8m0(kUe8m0Nan)));
}

static_assert(decode(0x3c00u, kFp16) == 1.0f && encode(-2.0f, kFp16) == 0xc000u);
static_assert(decode_ue8m0(127) == 1.0f && encode_ue8m0(3.0f, Ue8m0Rounding::up) == 129);

}  // namespace
}  // namespace halfscope
