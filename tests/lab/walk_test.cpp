// SPDX-License-Identifier: MIT
// Arithmetic step by step: exact bits against integers, and the bits that a tensor core cuts
// against fused_dot, which computes with integers of its own.
#include "core/lab/walk.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope::lab {
namespace {

TEST(ExactBits, AgreeWithIntegers) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const int64_t a = static_cast<int64_t>(random_word(1, i) % 4000007u) - 2000003;
    const int64_t b = static_cast<int64_t>(random_word(2, i) % 4000007u) - 2000003;
    const ExactBits x(static_cast<double>(a)), y(static_cast<double>(b));
    EXPECT_EQ((x + y).approximate(), static_cast<double>(a + b));
    EXPECT_EQ((x - y).approximate(), static_cast<double>(a - b));
    EXPECT_EQ((x * y).approximate(), static_cast<double>(a * b));
    EXPECT_EQ(x.truncated(5).approximate(), static_cast<double>(a / 32 * 32));
    const ExactBits tiny(0x1p-140);
    EXPECT_EQ((x + tiny) - x, tiny) << "no bit is lost";
    for (int bit = 0; bit < 22; ++bit) EXPECT_EQ(x.bit(bit), (std::abs(a) >> bit & 1) != 0);
  }
  EXPECT_TRUE(ExactBits(NAN).zero());
  EXPECT_TRUE(ExactBits(0.0).zero());
  EXPECT_TRUE(ExactBits().truncated(3).zero());
  EXPECT_TRUE(ExactBits(3.0).truncated(9).zero());
  EXPECT_EQ(ExactBits(-6.0).high(), 2);
  EXPECT_EQ(ExactBits(-6.0).low(), 1);
  EXPECT_TRUE(ExactBits(-6.0).negative());
}

TEST(FmaWalk, OneRoundingOrTwo) {
  // NumPy: float16(float16(a * a) + c) is 0, and a * a + c is 2^-20.
  const float a = 1.0f + 0x1p-10f;
  const Walk walk = fma_walk(kFp16, a, a, -(1.0f + 0x1p-9f));
  EXPECT_EQ(walk.separate, 0.0f);
  EXPECT_EQ(walk.result, 0x1p-20f);
  EXPECT_EQ(walk.exact, 0x1p-20);
  ASSERT_EQ(walk.steps.size(), 6u);
  const BitRow& product = walk.steps[2].rows[0];
  EXPECT_EQ(product.cut, -10);
  EXPECT_EQ((product.bits - product.bits.truncated(product.cut)).approximate(), 0x1p-20);
  EXPECT_NE(walk.steps[2].text.find("less than half"), std::string::npos);
  EXPECT_NE(walk.steps.back().text.find("mul + add gives 0"), std::string::npos);
  const Walk tie = fma_walk(kFp16, 2049.0f / 1.0f - 1.0f, 1.0f, 1.0f);
  EXPECT_NE(tie.steps[3].text.find("exactly half"), std::string::npos);
  EXPECT_NE(fma_walk(kFp16, NAN, 1.0f, 1.0f).problem, "");
}

TEST(FmaWalk, OverflowOfTheProduct) {
  const Walk walk = fma_walk(kFp16, 256.0f, 256.0f, -1024.0f);
  EXPECT_EQ(walk.result, 64512.0f) << "the fused operation never stores the product";
  EXPECT_TRUE(std::isinf(walk.separate));
}

TEST(FmaWalk, SaturatesAndFlushes) {
  // e2m1 ends at 6: 4 * 3 is 12.
  const Walk large = fma_walk(kE2m1, 4.0f, 3.0f, 0.0f);
  EXPECT_EQ(large.result, 6.0f);
  EXPECT_NE(large.steps[2].text.find("it saturates"), std::string::npos) << large.steps[2].text;
  const FloatFormat flushing = parse_format("fp16:ftz-out").value();
  const Walk small = fma_walk(flushing, 0x1.8p-10f, 0x1.004p-6f, 0.0f);
  EXPECT_EQ(small.result, 0.0f);
  EXPECT_NE(small.steps[2].text.find("flushes"), std::string::npos) << small.steps[2].text;
}

TEST(TensorCoreWalk, BitsAfterTheCutGiveTheResult) {
  for (const char* arch : {"v100", "a100", "h100-wgmma", "b200-tcgen05", "ada"}) {
    for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn}) {
      const auto profile = tensor_core_profile(arch, format);
      if (!profile || profile->path != TensorCorePath::native) {
        EXPECT_NE(tensor_core_walk(arch, format, {}, {}, 0.0f).problem, "");
        continue;
      }
      for (uint64_t i = 0; i < 200; ++i) {
        std::vector<float> a, b;
        for (int k = 0; k < std::min(profile->dot.products, 8); ++k) {
          const auto draw = [&](uint64_t which) {
            const uint64_t word = random_word(i * 100 + static_cast<uint64_t>(k), which);
            const double x = (static_cast<double>(word >> 40) / 16777216.0 - 0.5) *
                             std::ldexp(1.0, static_cast<int>(word % 14) - 7);
            return static_cast<float>(round_to_format(x, format).value);
          };
          a.push_back(draw(1));
          b.push_back(i % 5 == 0 && k == 2 ? 0.0f : draw(2));
        }
        const float c = i % 3 == 0 ? 0.0f : std::ldexp(1.1f, static_cast<int>(i % 20) - 8);
        const Walk walk = tensor_core_walk(arch, format, a, b, c);
        EXPECT_EQ(walk.result, tensor_core_dot(*profile, a, b, c, {.fill = false}));
        const BitRow& sum = walk.steps[3].rows[0];
        EXPECT_EQ(static_cast<float>(sum.bits.truncated(sum.cut).approximate()), walk.result)
            << arch << " " << format_name(format) << " " << i;
      }
    }
  }
}

TEST(TensorCoreWalk, SmallProductsVanish) {
  // V100 keeps 23 bits below the largest exponent (grade A vectors): 2^12 and 2^-12 are 24 apart.
  const std::array<float, 2> a{4096.0f, 0x1p-12f}, b{1.0f, 1.0f};
  const Walk walk = tensor_core_walk("v100", kFp16, a, b, 0.0f);
  EXPECT_EQ(walk.result, 4096.0f);
  EXPECT_NE(walk.steps[1].text.find("1 of 2 products vanish"), std::string::npos);
  EXPECT_EQ(walk.exact, 4096.0 + 0x1p-12);
  const std::array<float, 2> zeros{0.0f, 0.0f};
  EXPECT_EQ(tensor_core_walk("a100", kFp16, zeros, b, 0.0f).steps.size(), 2u);
}

TEST(DotWalk, EveryAccumulationEndsLikeTheReference) {
  const std::vector<double> a{1.0, 0.5, 1e-3, 2048.0, -7.25, 0x1p-11}, b{1.0, 3.0, 1.0, 1.0, 2, 1};
  std::vector<float> x, y;
  for (size_t k = 0; k < a.size(); ++k) {
    x.push_back(static_cast<float>(round_to_format(a[k], kFp16).value));
    y.push_back(static_cast<float>(round_to_format(b[k], kFp16).value));
  }
  for (const std::string& name : accumulation_names()) {
    const SumSpec spec{
        .accumulation = parse_accumulation(name).value(), .write = kFp16, .read = kFp16};
    const Walk walk = dot_walk(spec, a, b);
    ASSERT_EQ(walk.steps.size(), a.size()) << name;
    EXPECT_EQ(walk.result, sum_of_products(spec, x, y)) << name;
    EXPECT_EQ(walk.steps.back().rows.back().bits.approximate(), walk.result) << name;
  }
}

TEST(DotWalk, ShowsTheLostProduct) {
  // Under `format` each step is one rounding: 2048 + 1 is a tie that goes to 2048.
  const SumSpec spec{.accumulation = Accumulation::format, .write = kFp16, .read = kFp16};
  const Walk walk = dot_walk(spec, std::array{2048.0, 1.0}, std::array{1.0, 1.0});
  EXPECT_EQ(walk.result, 2048.0f);
  EXPECT_NE(walk.steps[1].text.find("stays where it is"), std::string::npos);
  EXPECT_NE(walk.steps[1].text.find("exactly half"), std::string::npos);
  EXPECT_EQ(walk.steps[1].rows[2].cut, 1);
  const SumSpec tree{.accumulation = Accumulation::pairwise, .write = kFp16, .read = kFp16};
  EXPECT_EQ(dot_walk(tree, std::array{1.0, 3.0}, std::array{1.0, 1.0}).steps[1].text,
            "The first 2 products, as pairwise adds them. The exact sum is 4, so the error is 0.");
  EXPECT_NE(dot_walk(spec, std::array{1.0}, std::array{1.0, 2.0}).problem, "");
  EXPECT_NE(dot_walk(spec, {}, {}).problem, "");
  EXPECT_NE(dot_walk(spec, std::array{1e9}, std::array{1.0}).problem, "");
}

}  // namespace
}  // namespace halfscope::lab
