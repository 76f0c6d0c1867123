// SPDX-License-Identifier: MIT
// Blocks as the lab shows them: equal to quantize() bit for bit, and to numbers that a NumPy
// version of torchao's to_mx and ml_dtypes' element types gave.
#include "core/lab/block_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"

namespace halfscope::lab {
namespace {

constexpr std::array<const char*, 6> kNames{"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2",
                                            "mxfp6_e2m3", "mxfp4",      "nvfp4"};

BlockFormat block_format(const char* name) { return parse_block_format(name).value(); }

void expect_quantized(const std::vector<float>& values, const BlockFormat& format,
                      BlockScaleRule rule) {
  BlockFormat reference = format;
  reference.rule = rule == BlockScaleRule::ceil ? ScaleRule::up : ScaleRule::floor;
  const BlockView view = view_block(values, format, rule);
  const int64_t count = static_cast<int64_t>(values.size());
  std::vector<float> out(values.size());
  std::vector<float> scales(static_cast<size_t>(block_count({1, count, 1}, format)));
  BlockStats stats;
  quantize(values, 1, count, reference, out, scales, &stats);
  ASSERT_EQ(view.scales.size(), scales.size());
  ASSERT_EQ(view.elements.size(), values.size());
  int clipped = 0, flushed = 0;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (std::isnan(scales[i])) {
      EXPECT_TRUE(std::isnan(view.scales[i].scale));
    } else {
      EXPECT_EQ(view.scales[i].scale, scales[i]);
      const float decoded = format.scale == ScaleKind::ue8m0
                                ? decode_ue8m0(static_cast<uint8_t>(view.scales[i].code))
                                : decode(view.scales[i].code, kE4m3fn);
      EXPECT_EQ(decoded, scales[i]);
    }
    clipped += view.scales[i].clipped;
    flushed += view.scales[i].flushed;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const BlockElement& element = view.elements[i];
    if (std::isnan(out[i])) {
      EXPECT_TRUE(std::isnan(element.value));
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(element.value), std::bit_cast<uint32_t>(out[i]))
        << values[i] << " " << block_format_name(format);
    EXPECT_EQ(decode(element.code, format.element), element.element);
    EXPECT_EQ(element.error, static_cast<double>(out[i]) - static_cast<double>(values[i]));
  }
  EXPECT_EQ(clipped, stats.clipped);
  EXPECT_EQ(flushed, stats.flushed);
  EXPECT_EQ(view.tensor_scale, stats.tensor_scale);
}

TEST(BlockView, EqualsQuantize) {
  for (const char* name : kNames) {
    for (const BlockScaleRule rule : {BlockScaleRule::floor, BlockScaleRule::ceil}) {
      for (uint64_t block = 0; block < 300; ++block) {
        std::vector<float> values(1 + random_word(11, block) % kMostBlockValues);
        for (size_t i = 0; i < values.size(); ++i) {
          const uint64_t word = random_word(block + 100, i);
          // Any bits at all in every third block; else magnitudes within some powers of two.
          const uint32_t exponent =
              static_cast<uint32_t>(100 + block % 100 + (word >> 40) % (1 + block % 12));
          values[i] = block % 3 == 0
                          ? std::bit_cast<float>(static_cast<uint32_t>(word))
                          : std::bit_cast<float>(static_cast<uint32_t>(word & 0x807fffffu) |
                                                 exponent << 23);
        }
        expect_quantized(values, block_format(name), rule);
      }
    }
  }
}

TEST(BlockView, EqualsQuantizeAtTheEnds) {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = 0x1p-149f;
  const std::vector<std::vector<float>> blocks{
      {0.0f, -0.0f},    {kMost, 1.0f, -kMost}, {kLeast, -kLeast, 0.0f}, {kMost, kLeast},
      {INFINITY, 1.0f}, {1.0f, NAN},           {-INFINITY, NAN, 2.0f},  {}};
  for (const char* name : kNames) {
    for (const auto& values : blocks) {
      expect_quantized(values, block_format(name), BlockScaleRule::floor);
      expect_quantized(values, block_format(name), BlockScaleRule::ceil);
    }
  }
}

struct Expected {
  const char* format;
  BlockScaleRule rule;
  uint32_t scale;
  std::array<uint32_t, 8> codes;
  std::array<float, 8> values;
};

// From NumPy: the scale as to_mx computes it with integers (FLOOR, EVEN), or the smallest power of
// two that clips nothing; elements converted by ml_dtypes after clamping.
TEST(BlockView, NumbersFromNumPy) {
  constexpr std::array<float, 8> kValues{0.7f, -1.3f, 3.7f, 0.01f, -0.05f, 2.2f, 1e-4f, -3.3f};
  const std::array<Expected, 4> expected{
      Expected{
          "mxfp8_e4m3",
          BlockScaleRule::nearest,
          0x78u,
          {0x6bu, 0xf2u, 0x7eu, 0x3au, 0xcdu, 0x79u, 0x7u, 0xfdu},
          {0.6875f, -1.25f, 3.5f, 0.009765625f, -0.05078125f, 2.25f, 0.0001068115234375f, -3.25f}},
      Expected{
          "mxfp8_e4m3",
          BlockScaleRule::ceil,
          0x79u,
          {0x63u, 0xeau, 0x77u, 0x32u, 0xc5u, 0x71u, 0x3u, 0xf5u},
          {0.6875f, -1.25f, 3.75f, 0.009765625f, -0.05078125f, 2.25f, 9.1552734375e-05f, -3.25f}},
      Expected{"mxfp4",
               BlockScaleRule::floor,
               0x7eu,
               {0x3u, 0xdu, 0x7u, 0x0u, 0x8u, 0x6u, 0x0u, 0xfu},
               {0.75f, -1.5f, 3.0f, 0.0f, -0.0f, 2.0f, 0.0f, -3.0f}},
      Expected{"mxfp4",
               BlockScaleRule::nearest,
               0x7fu,
               {0x1u, 0xbu, 0x6u, 0x0u, 0x8u, 0x4u, 0x0u, 0xdu},
               {0.5f, -1.5f, 4.0f, 0.0f, -0.0f, 2.0f, 0.0f, -3.0f}}};
  for (const Expected& each : expected) {
    const BlockView view = view_block(kValues, block_format(each.format), each.rule);
    EXPECT_EQ(view.scales[0].code, each.scale) << each.format;
    for (size_t i = 0; i < kValues.size(); ++i) {
      EXPECT_EQ(view.elements[i].code, each.codes[i]) << each.format << " " << i;
      EXPECT_EQ(view.elements[i].value, each.values[i]) << each.format << " " << i;
    }
  }
  const BlockView floor = view_block(kValues, kMxfp4, BlockScaleRule::floor);
  EXPECT_TRUE(floor.elements[2].clipped) << "3.7 / 0.5 is 7.4, above 7";
  EXPECT_FALSE(floor.elements[7].clipped) << "3.3 / 0.5 is 6.6, which rounds to 6";
  EXPECT_TRUE(floor.elements[3].flushed);
  EXPECT_EQ(floor.scales[0].clipped, 1);
  EXPECT_EQ(floor.scales[0].flushed, 3);
  EXPECT_EQ(floor.scales[0].amax_at, 2u);
  EXPECT_EQ(floor.scales[0].wanted, static_cast<double>(3.7f) / 6.0);
}

TEST(BlockView, RulesPartAtTheirThresholds) {
  // For amax = t * 2^0: nearest doubles the scale from t on, ceil above t. From NumPy.
  struct Threshold {
    const char* format;
    uint32_t floor;
    float nearest, ceil;
  };
  for (const Threshold& each : {Threshold{"mxfp8_e4m3", 119, 1.9375f, 1.75f},
                                {"mxfp8_e5m2", 112, 1.875f, 1.75f},
                                {"mxfp6_e3m2", 123, 1.875f, 1.75f},
                                {"mxfp6_e2m3", 125, 1.9375f, 1.875f},
                                {"mxfp4", 125, 1.75f, 1.5f}}) {
    const auto code = [&](float amax, BlockScaleRule rule) {
      return view_block(std::array{amax}, block_format(each.format), rule).scales[0].code;
    };
    const float below = std::nextafter(each.nearest, 0.0f), above = std::nextafter(each.ceil, 2.0f);
    EXPECT_EQ(code(each.nearest, BlockScaleRule::nearest), each.floor + 1) << each.format;
    EXPECT_EQ(code(below, BlockScaleRule::nearest), each.floor) << each.format;
    EXPECT_EQ(code(each.ceil, BlockScaleRule::ceil), each.floor) << each.format;
    EXPECT_EQ(code(above, BlockScaleRule::ceil), each.floor + 1) << each.format;
    EXPECT_EQ(code(std::nextafter(2.0f, 0.0f), BlockScaleRule::floor), each.floor) << each.format;
  }
}

TEST(BlockView, ValuesThatWouldRoundTo2To128) {
  // The scale that clips nothing makes the largest float a power of two, 2^128, which fp32 lacks.
  constexpr float kMost = std::numeric_limits<float>::max();
  struct Most {
    const char* format;
    uint32_t code;  ///< 2^(127 - largest exponent of the element + 1)
    float element;  ///< the next below that power of two
  };
  for (const Most& each : {Most{"mxfp8_e4m3", 247, 240.0f},
                           {"mxfp8_e5m2", 240, 28672.0f},
                           {"mxfp6_e3m2", 251, 14.0f},
                           {"mxfp6_e2m3", 253, 3.75f},
                           {"mxfp4", 253, 3.0f}}) {
    for (const BlockScaleRule rule : {BlockScaleRule::nearest, BlockScaleRule::ceil}) {
      const BlockView view = view_block(std::array{1.0f, -kMost}, block_format(each.format), rule);
      EXPECT_EQ(view.scales[0].code, each.code) << each.format;
      EXPECT_EQ(view.elements[1].element, -each.element) << each.format;
      EXPECT_TRUE(std::isfinite(view.elements[1].value));
      EXPECT_TRUE(view.elements[1].beyond && view.elements[1].clipped);
      EXPECT_FALSE(view.elements[0].beyond);
      EXPECT_NE(scale_reason(view, 0).find("would round to 2^128"), std::string::npos);
    }
  }
  // 1.5 * 2^127 is the largest mxfp4 value of its scale: nothing is clipped.
  const BlockView exact = view_block(std::array{0x1.8p127f}, kMxfp4, BlockScaleRule::ceil);
  EXPECT_EQ(exact.elements[0].value, 0x1.8p127f);
  EXPECT_FALSE(exact.elements[0].clipped);
  EXPECT_EQ(scale_reason(exact, 0).find("2^128"), std::string::npos);
}

TEST(BlockView, FormatsThatCanBeViewed) {
  const std::vector<std::string> names = viewed_block_formats();
  EXPECT_EQ(names, std::vector<std::string>(kNames.begin(), kNames.end()));
  for (const std::string& name : names) {
    EXPECT_NO_THROW(view_block(std::array{1.0f}, *parse_block_format(name), BlockScaleRule::floor));
  }
}

TEST(BlockView, NearestEqualsTorchaosIntegers) {
  for (const char* name : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"}) {
    const FloatFormat element = block_format(name).element;
    for (uint64_t i = 0; i < 3000; ++i) {
      const uint32_t bits = static_cast<uint32_t>(random_word(5, i)) & 0x7fffffffu;
      if (bits == 0 || bits >= 0x7f800000u) continue;
      // to_mx: add half of the last kept bit to the bits of amax, then take the exponent field.
      const uint32_t rounded = bits + (1u << (22 - element.mantissa_bits));
      const int power = static_cast<int>(rounded >> 23) - 127 - element.max_exponent();
      const BlockView view = view_block(std::array{std::bit_cast<float>(bits)}, block_format(name),
                                        BlockScaleRule::nearest);
      EXPECT_EQ(view.scales[0].code, static_cast<uint32_t>(std::max(power, -127) + 127))
          << name << " " << bits;
    }
  }
}

TEST(BlockView, TwoLevelsOfNvfp4) {
  const std::vector<float> values{0.7f,  -1.3f,  3.7f,   0.01f,  -0.05f, 2.2f,  1e-4f,    -3.3f,
                                  0.25f, 0.5f,   -0.75f, 1.0f,   1.5f,   -2.0f, 0.1f,     0.2f,
                                  0.03f, -0.02f, 0.011f, 0.007f, 1e-4f,  0.02f, -0.0301f, 0.015f};
  const BlockView view = view_block(values, kNvfp4, BlockScaleRule::floor);
  // From NumPy and ml_dtypes.
  EXPECT_EQ(view.tensor_scale, 0x1.68d68ep-10f);
  ASSERT_EQ(view.scales.size(), 2u);
  EXPECT_EQ(view.scales[0].scale, 448.0f);
  EXPECT_EQ(view.scales[0].code, 0x7eu);
  EXPECT_EQ(view.scales[1].scale, 3.75f);
  EXPECT_EQ(view.scales[1].code, 0x47u);
  EXPECT_NEAR(view.scales[1].wanted, 3.6445403477785145, 1e-12);
  EXPECT_EQ(view.scales[1].first, 16u);
  EXPECT_EQ(view.scales[1].count, 8u);
  const std::vector<uint32_t> codes{0x2, 0xc, 0x7, 0x0, 0x8, 0x6, 0x0, 0xf, 0x1, 0x2, 0xa, 0x3,
                                    0x4, 0xd, 0x0, 0x1, 0x7, 0xe, 0x4, 0x3, 0x0, 0x6, 0xf, 0x5};
  for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(view.elements[i].code, codes[i]) << i;
  EXPECT_EQ(view.elements[0].value, 0x1.3bbbbcp-1f);
  EXPECT_EQ(view.elements[2].value, 0x1.d9999ap+1f);
  EXPECT_EQ(view.elements[16].value, 0x1.fb6db8p-6f);
  EXPECT_EQ(view.elements[22].value, -0x1.fb6db8p-6f);
  // The same block in a tensor whose largest is 1000 times larger.
  const BlockView part = view_block(values, kNvfp4, BlockScaleRule::floor, 3700.0f);
  EXPECT_EQ(part.tensor_scale, static_cast<float>(3700.0 / 2688.0));
  EXPECT_EQ(part.scales[0].scale, 0.4375f) << "nearest e4m3fn to 3.7 / (6 * 1.3765)";
  EXPECT_EQ(part.tensor_amax, 3700.0f);
}

TEST(BlockView, Reasons) {
  const auto reason = [](float amax, BlockScaleRule rule) {
    return scale_reason(view_block(std::array{amax, 0.0f}, kMxfp4, rule), 0);
  };
  EXPECT_EQ(reason(7.3f, BlockScaleRule::floor),
            "floor: 7.3 is at least 2^2 and below 2^3, and the largest power of two in e2m1 is "
            "2^2, so the scale is 2^(2 - 2) = 2^0.");
  EXPECT_EQ(reason(7.3f, BlockScaleRule::nearest),
            "nearest: 7.3 in the precision of e2m1 is 8, which reaches 2^3, and the largest power "
            "of two in e2m1 is 2^2, so the scale is 2^(3 - 2) = 2^1.");
  EXPECT_EQ(reason(6.5f, BlockScaleRule::nearest),
            "nearest: 6.5 in the precision of e2m1 is 6, at least 2^2, and the largest power of "
            "two in e2m1 is 2^2, so the scale is 2^(2 - 2) = 2^0.");
  EXPECT_EQ(reason(6.5f, BlockScaleRule::ceil),
            "ceil: a scale of 2^0 reaches only 6 \u00d7 2^0 = 6, less than 6.5, so the scale is "
            "the next power of two, 2^1.");
  EXPECT_NE(reason(5.0f, BlockScaleRule::ceil).find("smallest scale that clips nothing"),
            std::string::npos);
  EXPECT_NE(reason(1e-38f, BlockScaleRule::floor).find("2^-127, the smallest"), std::string::npos);
  EXPECT_NE(reason(NAN, BlockScaleRule::floor).find("NaN"), std::string::npos);
  EXPECT_NE(scale_reason(view_block(std::array{0.0f}, kMxfp4, BlockScaleRule::floor), 0)
                .find("All values are 0"),
            std::string::npos);
  EXPECT_NE(scale_reason(view_block(std::array{1.0f}, kNvfp4, BlockScaleRule::floor), 0)
                .find("stored in e4m3fn as 448"),
            std::string::npos);
}

TEST(BlockView, NamesAndMisuse) {
  for (const BlockScaleRule rule : kAllBlockScaleRules) {
    EXPECT_EQ(parse_block_scale_rule(block_scale_rule_name(rule)), rule);
  }
  EXPECT_FALSE(parse_block_scale_rule("up"));
  const std::vector<float> many(kMostBlockValues + 1, 1.0f);
  EXPECT_THROW(view_block(many, kMxfp4, BlockScaleRule::floor), Error);
  EXPECT_THROW(view_block(std::array{1.0f}, {.scale = ScaleKind::fp32}, BlockScaleRule::floor),
               Error);
}

TEST(BlockView, ErrorsAsRoots) {
  // e2m1 with scale 1: 6 stays, 5 is halfway between 4 and 6 and goes to the even 4.
  const BlockView view = view_block(std::array{6.0f, 5.0f}, kMxfp4, BlockScaleRule::floor);
  EXPECT_DOUBLE_EQ(view.rms_error, std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(view.rms_input, std::sqrt(30.5));
}

TEST(BlockView, Examples) {
  double sum = 0.0, squares = 0.0;
  for (const float x : block_example(BlockExample::normal)) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  EXPECT_NEAR(sum / 32, 0.0, 0.6) << "more than three standard deviations of the mean";
  EXPECT_NEAR(squares / 32, 1.0, 0.8);
  const auto view = [](BlockExample example, BlockScaleRule rule) {
    return view_block(block_example(example), kMxfp4, rule);
  };
  EXPECT_EQ(view(BlockExample::outlier, BlockScaleRule::floor).scales[0].amax, 60.0f);
  EXPECT_GT(view(BlockExample::outlier, BlockScaleRule::floor).scales[0].flushed, 20);
  EXPECT_LT(view(BlockExample::small, BlockScaleRule::floor).scales[0].flushed, 8);
  EXPECT_EQ(view(BlockExample::clipped, BlockScaleRule::floor).scales[0].clipped, 1);
  EXPECT_EQ(view(BlockExample::clipped, BlockScaleRule::nearest).scales[0].clipped, 0);
  EXPECT_EQ(block_example(BlockExample::ramp).front(), -4.0f);
  EXPECT_EQ(block_example(BlockExample::ramp).back(), 4.0f);
}

}  // namespace
}  // namespace halfscope::lab
