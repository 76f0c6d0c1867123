// SPDX-License-Identifier: MIT
// Sums that can be checked by hand. Each gives different bits if one rule of the block is wrong:
// raw product exponents, truncation of each term and of the result, block sizes, bits kept.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/tensor_core/variants.h"

namespace halfscope {
namespace {

using test::Variant;

/// Products are written as pairs of factors, since 1.5 * 1.5 and 2.25 * 1 are not the same.
struct Sum {
  const char* name;
  float c;
  std::vector<std::pair<float, float>> products;
  uint32_t v100, a100, h100;
  FloatFormat accumulator = kFp32;
};

constexpr float two_to(int e) { return static_cast<float>(FloatFormat::power_of_two(e)); }
/// 2^e as a product of two fp16 numbers.
std::pair<float, float> power(int e, float sign = 1.0f) {
  return {sign * two_to(e / 2), two_to(e - e / 2)};
}

std::vector<std::pair<float, float>> repeated(size_t n, int e, bool one_first) {
  std::vector<std::pair<float, float>> products;
  if (one_first) products.push_back({1.0f, 1.0f});
  for (size_t i = 0; i < n; ++i) products.push_back(power(e));
  return products;
}

const std::vector<Sum>& sums() {
  static const std::vector<Sum> all{
      {"T1a",
       0,
       {{1.5f, 1.5f}, power(-23), power(-24), power(-24)},
       0x40100000,
       0x40100001,
       0x40100001},
      {"T1b",
       0,
       {{2.25f, 1.0f}, power(-23), power(-24), power(-24)},
       0x40100000,
       0x40100000,
       0x40100001},
      {"T1c", 0, {{1.5f, 1.5f}, power(-23), power(-23)}, 0x40100001, 0x40100001, 0x40100001},
      {"T1d", 0, {{2.25f, 1.0f}, power(-23), power(-23)}, 0x40100000, 0x40100001, 0x40100001},
      {"T2", 0, {{1.0f, 1.0f}, power(-26, -1.0f)}, 0x3f800000, 0x3f800000, 0x3f800000},
      {"T3", 1, repeated(16, -25, false), 0x3f800000, 0x3f800000, 0x3f800004},
      {"T4", 0, repeated(14, -24, true), 0x3f800000, 0x3f800006, 0x3f800007},
      {"T5", 0, {{1.0f, 1.0f}, power(-11), power(-25)}, 0x3f800000, 0x3f800000, 0x3f802000, kFp16},
      {"T6",
       0,
       {{-4.0f, 1.0f}, power(-21, -1.0f), power(-22, -1.0f)},
       0xc0800001,
       0xc0800001,
       0xc0800001},
  };
  return all;
}

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

struct Operands {
  std::vector<float> a, b;
  explicit Operands(const std::vector<std::pair<float, float>>& products) {
    for (const auto& [x, y] : products) {
      a.push_back(x);
      b.push_back(y);
    }
  }
};

TEST(FusedDot, SumsCheckedByHand) {
  for (const Sum& sum : sums()) {
    const Operands x(sum.products);
    const std::pair<const char*, uint32_t> expected[] = {
        {"v100", sum.v100},
        {"a100", sum.a100},
        {"h100", sum.h100},
        // Same numbers on the other chips of a generation and on every path of Hopper's.
        {"t4", sum.a100},
        {"ada", sum.a100},
        {"h100-wgmma", sum.h100},
        {"b200", sum.h100},
        {"b200-tcgen05", sum.h100},
        {"rtx-blackwell", sum.h100}};
    for (const auto& [arch, result] : expected) {
      const auto profile = tensor_core_profile(arch, kFp16, sum.accumulator);
      ASSERT_TRUE(profile);
      EXPECT_EQ(bits(tensor_core_dot(*profile, x.a, x.b, sum.c)), result)
          << sum.name << " " << arch << std::hex;
      EXPECT_EQ(bits(test::variant_dot(*profile, x.a, x.b, sum.c, {})), result)
          << sum.name << " " << arch << ", in doubles";
    }
  }
}

TEST(FusedDot, EveryWrongRuleIsNoticedByOneOfThem) {
  const std::pair<const char*, Variant> wrong[] = {
      {"F - 1", {.more_bits = -1}},
      {"F + 1", {.more_bits = 1}},
      {"G / 2", {.half_block = true}},
      {"normalised products", {.normalised = true}},
      {"c after the block", {.late_c = true}},
      {"floor of the terms", {.floor_terms = true}},
      {"floor of the result", {.floor_output = true}},
      {"result to nearest", {.nearest_output = true}},
      {"fp16 through fp32", {.double_rounding = true}},
  };
  for (const auto& [name, variant] : wrong) {
    int noticed = 0;
    for (const Sum& sum : sums()) {
      const Operands x(sum.products);
      for (const auto& [arch, result] : {std::pair{"v100", sum.v100}, std::pair{"a100", sum.a100},
                                         std::pair{"h100", sum.h100}}) {
        const auto profile = tensor_core_profile(arch, kFp16, sum.accumulator);
        noticed += bits(test::variant_dot(*profile, x.a, x.b, sum.c, variant)) != result ? 1 : 0;
      }
    }
    EXPECT_GT(noticed, 0) << name;
  }
}

TEST(FusedDot, IsAConstantExpression) {
  constexpr float a[] = {1.5f, 2.0f}, b[] = {1.5f, 0.5f};
  static_assert(fused_dot({}, kFp16, kFp16, a, b, 2, 1.0f) == 4.25f);
}

// Hopper's fp8 accumulator reads c with 13 fraction bits, too.
TEST(FusedDot, CLosesBitsInAnFp8Block) {
  const std::vector<float> zeros(32, 0.0f);
  const float c = 1.0f + two_to(-13) + two_to(-14);
  for (const char* arch : {"h100-wgmma", "ada"}) {
    const auto profile = tensor_core_profile(arch, kE4m3fn);
    EXPECT_EQ(bits(tensor_core_dot(*profile, zeros, zeros, c)), 0x3f800400u) << arch;
  }
  const auto tcgen05 = tensor_core_profile("b200-tcgen05", kE4m3fn);
  EXPECT_EQ(tensor_core_dot(*tcgen05, zeros, zeros, c), c);
}

// Products 2^-25 and 2^j beside zeros, fp16 accumulator of Ampere: is the sum above half of the
// smallest subnormal number, 2^-25, after alignment to the exponent of the zeros?
TEST(FusedDot, ZeroTermsHaveAnExponent) {
  const auto sum = [](const FusedDot& unit, int j) {
    const std::vector<float> a{two_to(-12), two_to(-24), 0.0f},
        b{two_to(-13), two_to(j + 24), 0.0f};
    return fused_dot(unit, kFp16, kFp16, a.data(), b.data(), 3, 0.0f);
  };
  FusedDot unit = tensor_core_profile("a100", kFp16, kFp16)->dot;
  EXPECT_EQ(unit.zero_exponent, -21);
  EXPECT_EQ(sum(unit, -45), two_to(-24));
  EXPECT_EQ(sum(unit, -46), 0.0f);
  unit.zero_rule = ZeroRule::floor;  // the other publication's
  unit.zero_exponent = -20;
  EXPECT_EQ(sum(unit, -44), two_to(-24));
  EXPECT_EQ(sum(unit, -45), 0.0f);
  unit.zero_rule = ZeroRule::ignored;
  EXPECT_EQ(sum(unit, -48), two_to(-24));
}

// Without a zero among the terms, only the floor has an effect.
TEST(FusedDot, FloorActsWithoutZeros) {
  FusedDot unit = tensor_core_profile("a100", kFp16, kFp16)->dot;
  const std::vector<float> a{two_to(-12), two_to(-24)}, b{two_to(-13), two_to(-24)};
  const float c = two_to(-24);
  const float all = fused_dot(unit, kFp16, kFp16, a.data(), b.data(), 2, c);
  EXPECT_EQ(all, 2 * two_to(-24)) << "c keeps the exponent at -14: 2^-48 is cut off, a tie is left";
  unit.zero_rule = ZeroRule::floor;
  unit.zero_exponent = 0;
  EXPECT_EQ(fused_dot(unit, kFp16, kFp16, a.data(), b.data(), 2, c), two_to(-24))
      << "2^-25 is cut off";
  unit.zero_exponent = 1;
  EXPECT_EQ(fused_dot(unit, kFp16, kFp16, a.data(), b.data(), 2, c), 0.0f);
}

TEST(FusedDot, OrderInsideABlockDoesNotMatter) {
  const auto profile = tensor_core_profile("h100", kFp16);
  std::vector<float> a, b;
  for (int k = 0; k < 16; ++k) {
    a.push_back(std::ldexp(k % 3 == 0 ? -1.25f : 1.75f, k % 7 - 9));
    b.push_back(std::ldexp(1.5f, -(k % 5)));
  }
  const float forward = tensor_core_dot(*profile, a, b, 0.1f);
  std::reverse(a.begin(), a.end());
  std::reverse(b.begin(), b.end());
  EXPECT_EQ(bits(tensor_core_dot(*profile, a, b, 0.1f)), bits(forward));
}

}  // namespace
}  // namespace halfscope
