// SPDX-License-Identifier: MIT
// NaNs, infinities, signed zeros, subnormal numbers and overflow, on every architecture.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "core/numeric/sums/tensor_core.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

constexpr uint32_t kInfBits = 0x7f800000, kMinusInfBits = 0xff800000, kNanBits = 0x7fffffff;

struct Special {
  float a0, b0, a1, b1, c;
  uint32_t result;
};

const std::vector<Special>& specials() {
  static const std::vector<Special> all{
      {kNan, 1, 0, 0, 0, kNanBits},         {-kNan, 1, 0, 0, 0, kNanBits},
      {1, kNan, 0, 0, kInf, kNanBits},      {0, kNan, 0, 0, 0, kNanBits},
      {0, 0, 0, 0, kNan, kNanBits},         {kInf, 0, 0, 0, 1, kNanBits},
      {0, -kInf, 0, 0, 1, kNanBits},        {-0.0f, kInf, kInf, 1, 0, kNanBits},
      {kInf, 1, kInf, -1, 0, kNanBits},     {kInf, 1, 0, 0, -kInf, kNanBits},
      {kInf, 1, kInf, 2, kInf, kInfBits},   {kInf, -kInf, 0, 0, 5, kMinusInfBits},
      {-kInf, -1, 1, -1, 5, kInfBits},      {2, 3, 0, 0, -kInf, kMinusInfBits},
      {kInf, 0x1p-14f, -4, 4, 0, kInfBits},
  };
  return all;
}

TEST(TensorCoreSpecials, NansAndInfinities) {
  int profiles = 0;
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    for (const FloatFormat& input : {kFp16, kBf16, kTf32, kE5m2}) {
      for (const FloatFormat& accumulator : {kFp32, kFp16}) {
        const auto profile = tensor_core_profile(arch.name, input, accumulator);
        if (!profile) continue;
        ++profiles;
        for (const Special& each : specials()) {
          std::vector<float> a(64, 0.0f), b(64, 0.0f);
          a[0] = each.a0, b[0] = each.b0, a[1] = each.a1, b[1] = each.b1;
          const bool nan = each.result == kNanBits;
          // fp16 accumulators contain 0x7FFF, which is this as fp32.
          const uint32_t expected = nan && accumulator == kFp16 ? 0x7fffe000u : each.result;
          EXPECT_EQ(std::bit_cast<uint32_t>(tensor_core_dot(*profile, a, b, each.c)), expected)
              << arch.name << " " << each.a0 << "*" << each.b0 << " + " << each.a1 << "*" << each.b1
              << " + " << each.c;
        }
      }
    }
  }
  EXPECT_GT(profiles, 30);
}

/// Products at the positions 0, 1, ... of one block that is otherwise filled with `rest`.
float block(const TensorCoreProfile& profile, std::vector<float> a, std::vector<float> b, float c,
            float rest = 0.0f) {
  a.resize(static_cast<size_t>(profile.step()), rest);
  b.resize(a.size(), 1.0f);
  return tensor_core_dot(profile, a, b, c);
}

TEST(TensorCoreSpecials, SignsOfZero) {
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    const auto profile = tensor_core_profile(arch.name, kFp16);
    ASSERT_TRUE(profile);
    EXPECT_FALSE(std::signbit(block(*profile, {1.0f, -1.0f}, {1.0f, 1.0f}, 0.0f)));
    EXPECT_FALSE(std::signbit(block(*profile, {}, {}, 0.0f)));
    EXPECT_FALSE(std::signbit(block(*profile, {}, {}, -0.0f))) << "+0 products";
    EXPECT_TRUE(std::signbit(block(*profile, {}, {}, -0.0f, -0.0f))) << "all terms are -0";
    EXPECT_FALSE(std::signbit(block(*profile, {}, {}, 0.0f, -0.0f)));
    TensorCoreProfile positive = *profile;
    positive.dot.negative_zero = false;
    EXPECT_FALSE(std::signbit(block(positive, {}, {}, -0.0f, -0.0f)));
  }
  // A negative sum below the smallest subnormal number keeps its sign.
  const auto bf16 = tensor_core_profile("a100", kBf16);
  EXPECT_EQ(std::bit_cast<uint32_t>(block(*bf16, {-0x1p-95f}, {0x1p-60f}, 0.0f)), 0x80000000u);
  const auto fp16 = tensor_core_profile("a100", kFp16, kFp16);
  EXPECT_EQ(std::bit_cast<uint32_t>(block(*fp16, {-0x1p-14f}, {0x1p-14f}, 0.0f)), 0x80000000u);
}

TEST(TensorCoreSpecials, SubnormalNumbersCount) {
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    const auto fp16 = tensor_core_profile(arch.name, kFp16);
    EXPECT_EQ(block(*fp16, {0x1p-24f}, {0x1p-24f}, 0.0f), 0x1p-48f) << arch.name;
    EXPECT_EQ(block(*fp16, {}, {}, 0x1p-149f), 0x1p-149f) << arch.name;
    const auto narrow = tensor_core_profile(arch.name, kFp16, kFp16);
    EXPECT_EQ(block(*narrow, {0x1p-24f}, {1.0f}, 0x1p-24f), 0x1p-23f) << arch.name;
    if (const auto bf16 = tensor_core_profile(arch.name, kBf16)) {
      EXPECT_EQ(block(*bf16, {0x1p-133f}, {1.0f}, 0.0f), 0x1p-133f) << arch.name;
      EXPECT_EQ(block(*bf16, {0x1p-100f}, {0x1.8p-48f}, 0.0f), 0x1.8p-148f) << arch.name;
    }
  }
  // Raw exponents: 2^-24 has the exponent -14 in fp16, so its product with 1 is worth keeping 24
  // bits below 2^-14, and 2^-24 * 2^-24 is aligned to 2^-28, not to 2^-48.
  const auto a100 = tensor_core_profile("a100", kFp16);
  EXPECT_EQ(block(*a100, {0x1p-24f, 0x1p-24f}, {1.0f, 0x1p-14f}, 0.0f), 0x1p-24f + 0x1p-38f);
  EXPECT_EQ(block(*a100, {0x1p-24f, 0x1p-24f}, {1.0f, 0x1p-15f}, 0.0f), 0x1p-24f);
}

TEST(TensorCoreSpecials, OverflowIsOfTheResultAlone) {
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    if (const auto bf16 = tensor_core_profile(arch.name, kBf16)) {
      // Products far beyond fp32 cancel.
      EXPECT_EQ(block(*bf16, {0x1p127f, -0x1p127f}, {0x1p127f, 0x1p127f}, 1.0f), 0.0f);
      EXPECT_EQ(block(*bf16, {0x1p127f}, {0x1p127f}, -kInf), -kInf);
      EXPECT_EQ(block(*bf16, {-0x1p127f}, {2.0f}, 0.0f), -kInf) << arch.name;
      EXPECT_EQ(block(*bf16, {0x1p127f, 0x1p127f}, {1.0f, 1.0f}, 0.0f), kInf) << arch.name;
      // Truncation towards zero never makes an infinity of what is below 2^128.
      EXPECT_EQ(block(*bf16, {0x1p104f}, {0x1p-1f}, 0x1.fffffep127f), 0x1.fffffep127f);
      EXPECT_EQ(block(*bf16, {0x1p104f}, {1.0f}, 0x1.fffffep127f), kInf) << arch.name;
    }
    const auto fp16 = tensor_core_profile(arch.name, kFp16, kFp16);
    EXPECT_EQ(block(*fp16, {65504.0f}, {1.0f}, 8.0f), 65504.0f) << arch.name;
    EXPECT_EQ(block(*fp16, {65504.0f}, {1.0f}, 16.0f), kInf) << arch.name << ": a tie goes up";
    EXPECT_EQ(block(*fp16, {-65504.0f}, {2.0f}, 0.0f), -kInf) << arch.name;
    EXPECT_EQ(tensor_core_dot(*fp16, {}, {}, 70000.0f), kInf) << "c is rounded to fp16 first";
  }
}

TEST(TensorCoreSpecials, Tf32OperandsAreCut) {
  const auto profile = tensor_core_profile("a100", kTf32);
  const float above = std::bit_cast<float>(0x3f803fffu);  // 1 + 2^-9 - 2^-23
  EXPECT_EQ(block(*profile, {above}, {1.0f}, 0.0f), 1.0f + 0x1p-10f);
  EXPECT_EQ(block(*profile, {1.0f}, {-above}, 0.0f), -1.0f - 0x1p-10f);
}

TEST(TensorCoreSpecials, E4m3HasOneNanAndNoInfinity) {
  for (const char* arch : {"ada", "h100", "h100-wgmma", "b200-tcgen05"}) {
    const auto profile = tensor_core_profile(arch, kE4m3fn);
    EXPECT_EQ(block(*profile, {448.0f, 448.0f}, {448.0f, 448.0f}, 0.0f), 401408.0f) << arch;
    EXPECT_EQ(std::bit_cast<uint32_t>(block(*profile, {kNan}, {0.0f}, 0.0f)), kNanBits) << arch;
    EXPECT_EQ(block(*profile, {0x1p-9f}, {0x1p-9f}, 0.0f), 0x1p-18f) << arch;
  }
}

TEST(TensorCoreSpecials, BlockScales) {
  const FloatFormat e2m1{2, 1, 1, Encoding::finite_nan};
  const std::vector<float> a(64, 6.0f), b(64, 0.5f);
  const auto dot = [&](BlockScale scale, const std::vector<float>& u, const std::vector<float>& v) {
    return tensor_core_dot(*tensor_core_profile("b200-tcgen05", e2m1, kFp32, scale), a, b, 1.0f, {},
                           u, v);
  };
  EXPECT_EQ(dot(BlockScale::mxf4, {2.0f, 1.0f}, {1.0f, 0.25f}), 1.0f + 96 * 2 + 96 * 0.25f);
  EXPECT_EQ(dot(BlockScale::mxf8f6f4, {2.0f, 1.0f}, {1.0f, 0.25f}), 1.0f + 96 * 2 + 96 * 0.25f);
  EXPECT_EQ(dot(BlockScale::nvf4, {1.5f, 1.0f, 448.0f, 0.0f}, {1.0f, 0x1p-9f, 1.0f, 1.0f}),
            1.0f + 48 * 1.5f + 48 * 0x1p-9f + 48 * 448);
  EXPECT_EQ(dot(BlockScale::nvf4, {-1.5f, 1, 1, 1}, {1, 1, 1, 1}), 1.0f + 48 * 4.5f)
      << "ue4m3 has no sign";
  EXPECT_EQ(dot(BlockScale::mxf4, {0x1p127f, 1.0f}, {0x1p127f, 1.0f}), kInf);
  EXPECT_EQ(dot(BlockScale::mxf4, {0x1p-127f, 1.0f}, {0x1p127f, 1.0f}), 1.0f + 96 + 96);
  EXPECT_EQ(dot(BlockScale::mxf8f6f4, {0x1p-127f, 1.0f}, {0x1p127f, 1.0f}), 1.0f + 96 + 96);
  for (const BlockScale scale : {BlockScale::mxf4, BlockScale::mxf8f6f4, BlockScale::nvf4}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(dot(scale, {kNan, 1, 1, 1}, {1, 1, 1, 1})), kNanBits);
  }
}

}  // namespace
}  // namespace halfscope
