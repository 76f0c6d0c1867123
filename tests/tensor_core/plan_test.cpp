// SPDX-License-Identifier: MIT
// Orders of K: chains, split-K, sliced-K, promotion, short blocks; each put together by hand from
// shorter chains.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/numeric/formats/round.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

using Numbers = std::vector<float>;

/// Normally distributed values of a format.
Numbers random_values(size_t n, const FloatFormat& format, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Numbers values(n);
  for (float& x : values) x = round_to_format(normal(generator), format).value;
  return values;
}

Numbers part(const Numbers& x, size_t begin, size_t end) {
  return {x.begin() + static_cast<std::ptrdiff_t>(begin),
          x.begin() + static_cast<std::ptrdiff_t>(std::min(end, x.size()))};
}

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

struct Fixture {
  TensorCoreProfile profile;
  Numbers a, b;

  Fixture(const char* arch, const FloatFormat& format, size_t n)
      : profile(*tensor_core_profile(arch, format)),
        a(random_values(n, format, 1)),
        b(random_values(n, format, 2)) {}

  float dot(float c, const TensorCorePlan& plan = {}) const {
    return tensor_core_dot(profile, a, b, c, plan);
  }
  float chain(size_t begin, size_t end, float c = 0.0f) const {
    return tensor_core_dot(profile, part(a, begin, end), part(b, begin, end), c);
  }
};

TEST(TensorCorePlans, AChainPassesItsSumOn) {
  const Fixture x("h100", kFp16, 256);
  EXPECT_EQ(bits(x.dot(0.5f)), bits(x.chain(96, 256, x.chain(0, 96, 0.5f))));
  EXPECT_NE(bits(x.dot(0.5f)), bits(x.chain(0, 96, x.chain(96, 256, 0.5f)))) << "order matters";
}

TEST(TensorCorePlans, SplitKSumsSlicesFromZero) {
  const Fixture x("a100", kBf16, 1000);
  const float sum =
      (((0.0f + x.chain(0, 256)) + x.chain(256, 512)) + x.chain(512, 768)) + x.chain(768, 1000);
  EXPECT_EQ(bits(x.dot(0.25f, {.slices = 4})), bits(sum + 0.25f));
  // 1000 elements are 16 tiles of 64, so each of three slices has up to 6.
  const float wide = x.chain(0, 384) + x.chain(384, 768) + x.chain(768, 1000);
  EXPECT_EQ(bits(x.dot(0.0f, {.slices = 3, .tile = 64})), bits(wide));
  EXPECT_NE(bits(x.dot(0.0f)), bits(wide));
}

TEST(TensorCorePlans, PromotionAddsToATotal) {
  const Fixture x("h100-wgmma", kE4m3fn, 512);
  const float sum = x.chain(0, 128) + x.chain(128, 256) + x.chain(256, 384) + x.chain(384, 512);
  EXPECT_EQ(bits(x.dot(1.0f, {.promote_every = 128})), bits(sum + 1.0f));
  EXPECT_NE(bits(x.dot(0.0f)), bits(sum)) << "13 bits do lose something";
}

TEST(TensorCorePlans, SlicedKSharesEveryTile) {
  const Fixture x("a100", kFp16, 128);
  // Two warps, tiles of 32: warp 0 takes 0-15, 32-47 ..., warp 1 the others.
  Fixture warps[2] = {x, x};
  for (int w = 0; w < 2; ++w) {
    warps[w].a.clear();
    warps[w].b.clear();
    for (size_t k = 0; k < 128; ++k) {
      if (k / 16 % 2 != static_cast<size_t>(w)) continue;
      warps[w].a.push_back(x.a[k]);
      warps[w].b.push_back(x.b[k]);
    }
  }
  const float sum = warps[0].dot(0.0f) + warps[1].dot(0.0f);
  EXPECT_EQ(bits(x.dot(0.0f, {.interleave = 2, .tile = 32})), bits(sum));
}

TEST(TensorCorePlans, ShortBlocksAreFilledOrNot) {
  const Fixture x("h100", kFp16, 21);
  Numbers a = x.a, b = x.b;
  a.resize(32, 0.0f);
  b.resize(32, 0.0f);
  EXPECT_EQ(bits(x.dot(0.5f)), bits(tensor_core_dot(x.profile, a, b, 0.5f)));
  EXPECT_EQ(bits(x.dot(0.5f, {.fill = false})), bits(x.dot(0.5f))) << "zeros rarely matter";
  // They do where all is tiny: products 2^-25 and 2^-46 in fp16, aligned to a zero's exponent.
  const auto narrow = tensor_core_profile("a100", kFp16, kFp16);
  const Numbers u{0x1p-12f, 0x1p-24f}, v{0x1p-13f, 0x1p-22f};
  TensorCoreProfile no_zero = *narrow;
  no_zero.dot.zero_exponent = -14;
  EXPECT_EQ(tensor_core_dot(no_zero, u, v, 0.0f), 0.0f);
}

TEST(TensorCorePlans, Fp8IsSplitOverFp16Blocks) {
  const Fixture x("h100", kE4m3fn, 64);
  const auto fp16 = tensor_core_profile("h100", kFp16);
  float expected = 0.5f;
  for (size_t start : {size_t{0}, size_t{32}}) {
    Numbers a[2], b[2];
    for (size_t k = start; k < start + 32; ++k) {
      a[k % 4 / 2].push_back(x.a[k]);
      b[k % 4 / 2].push_back(x.b[k]);
    }
    const float first = tensor_core_dot(*fp16, a[0], b[0], 0.0f);
    expected = tensor_core_dot(*fp16, a[1], b[1], first) + expected;
  }
  EXPECT_EQ(bits(x.dot(0.5f)), bits(expected));
}

TEST(TensorCorePlans, AnyPlanHasAResult) {
  const Fixture x("a100", kFp16, 33);
  for (const int64_t wild : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1000}, INT64_MAX}) {
    for (const TensorCorePlan& plan :
         {TensorCorePlan{.slices = wild}, TensorCorePlan{.interleave = wild},
          TensorCorePlan{.tile = wild}, TensorCorePlan{.promote_every = wild},
          TensorCorePlan{.slices = 2, .interleave = wild, .tile = wild, .promote_every = wild}}) {
      EXPECT_TRUE(std::isfinite(x.dot(0.0f, plan)));
    }
  }
  EXPECT_EQ(tensor_core_dot(x.profile, {}, {}, 2.0f), 2.0f);
  EXPECT_EQ(tensor_core_dot(x.profile, {}, {}, 2.0f, {.slices = 4}), 2.0f);
}

}  // namespace
}  // namespace halfscope
