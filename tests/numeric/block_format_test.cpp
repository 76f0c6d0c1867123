// SPDX-License-Identifier: MIT
// Block formats: blocks computed by hand, the text of OCP MX 1.0 implemented a second time with
// frexp and a search among enumerated values, and properties of all blocks.
#include "core/numeric/scaling/block_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/numeric/formats/codes.h"
#include "tests/numeric/enumerated_format.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using testing::EnumeratedFormat;

constexpr BlockFormat kMx[] = {kMxfp8E4m3, kMxfp8E5m2, kMxfp6E3m2, kMxfp6E2m3, kMxfp4};

BlockFormat with_rule(BlockFormat format, ScaleRule rule) {
  format.rule = rule;
  return format;
}

struct Quantized {
  std::vector<float> values, scales;
  BlockStats stats;
};
Quantized run(const std::vector<float>& in, const BlockShape& shape, const BlockFormat& format) {
  Quantized result{std::vector<float>(in.size()),
                   std::vector<float>(static_cast<size_t>(block_count(shape, format))),
                   {}};
  quantize(in, shape, format, result.values, result.scales, &result.stats);
  return result;
}
Quantized run(const std::vector<float>& in, const BlockFormat& format) {
  return run(in, {.outer = 1, .length = static_cast<int64_t>(in.size())}, format);
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// Floats of all exponents from `low` to `high`, of both signs, some zeros.
std::vector<float> random_floats(size_t count, int low, int high, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> exponent(low, high);
  std::vector<float> result;
  while (result.size() < count) {
    const float significand =
        std::bit_cast<float>(0x3f800000u | static_cast<uint32_t>(generator() >> 9));
    const float x = std::ldexp(significand, exponent(generator));
    result.push_back(generator() % 16 == 0 ? 0.0f : generator() % 2 == 0 ? x : -x);
  }
  return result;
}

TEST(BlockFormatTest, NamesReadBack) {
  for (const char* name : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "nvfp4",
                           "mxfp8_e4m3:up", "mxfp4:up"}) {
    ASSERT_TRUE(parse_block_format(name)) << name;
    EXPECT_EQ(block_format_name(*parse_block_format(name)), name);
  }
  for (const char* name : {"", "mxfp8", "nvfp4:up", "mxfp4:up:up", "MXFP4", ":up"}) {
    EXPECT_FALSE(parse_block_format(name)) << name;
  }
  EXPECT_EQ(block_format_name({.element = kE2m1, .block_size = 16}), "custom");
  EXPECT_EQ(kMxfp4.bits_per_element(), 4.25);
  EXPECT_EQ(kNvfp4.bits_per_element(), 4.5);
}

TEST(BlockFormatTest, Mxfp4ByHand) {
  // floor(log2(7.9)) = 2 and emax = 2: scale 1. 7.9 and the tie 7 go to 8, which is clipped to 6;
  // the ties 5 and 2.5 go to the even 4 and 2, the tie 0.25 to 0.
  const std::vector<float> in{7.9f, 7, 5, -2.5f, 0.3f, 0.25f, -0.1f, 0, 1.5f};
  const Quantized floor = run(in, kMxfp4);
  EXPECT_EQ(floor.scales, std::vector<float>{1});
  EXPECT_EQ(floor.values, (std::vector<float>{6, 6, 4, -2, 0.5f, 0, 0, 0, 1.5f}));
  EXPECT_TRUE(std::signbit(floor.values[6]));
  EXPECT_EQ(floor.stats.clipped, 2);
  EXPECT_EQ(floor.stats.flushed, 2);
  EXPECT_EQ(floor.stats.values, 9);
  // 7.9 > 6: scale 2, and nothing is clipped.
  const Quantized up = run(in, with_rule(kMxfp4, ScaleRule::up));
  EXPECT_EQ(up.scales, std::vector<float>{2});
  EXPECT_EQ(up.values, (std::vector<float>{8, 8, 4, -2, 0, 0, 0, 0, 2}));
  EXPECT_EQ(up.stats.clipped, 0);
  EXPECT_EQ(up.stats.flushed, 3);
  // Exactly 6 must not round the scale up.
  EXPECT_EQ(run({6, 1}, with_rule(kMxfp4, ScaleRule::up)).scales, std::vector<float>{1});
  EXPECT_EQ(run({std::nextafter(6.0f, 7.0f), 1}, with_rule(kMxfp4, ScaleRule::up)).scales,
            std::vector<float>{2});
}

TEST(BlockFormatTest, Mxfp8ByHand) {
  // 1000 is in [512, 1024), emax = 8: scale 2; 500 is beyond 464 and clipped to 448.
  const Quantized e4m3 = run({1000, 3.1f, 0.001f}, kMxfp8E4m3);
  EXPECT_EQ(e4m3.scales, std::vector<float>{2});
  EXPECT_EQ(e4m3.values, (std::vector<float>{896, 3, 0}));
  EXPECT_EQ(e4m3.stats.clipped, 1);
  const Quantized e5m2 = run({1000, 3.1f, 0.001f}, kMxfp8E5m2);
  EXPECT_EQ(e5m2.scales, std::vector<float>{0x1p-6f});
  EXPECT_EQ(e5m2.values, (std::vector<float>{896, 3, 0x1p-10f}));  // 62720 is above 61440
  EXPECT_EQ(e5m2.stats.clipped, 1);
}

TEST(BlockFormatTest, Nvfp4ByHand) {
  // amax 2688 makes the tensor scale 1.
  std::vector<float> in(64, 0.0f);
  in[0] = 2688, in[1] = -400, in[2] = 100;   // scale 448: 6, -0.89 -> -1, 0.22 -> 0
  in[16] = 3, in[17] = 1, in[18] = 0.3f;     // scale 0.5: 6, 2, 0.6 -> 0.5
  in[32] = 6 * 0x1p-10f, in[33] = 0x1p-20f;  // scale 2^-10, a tie, becomes 0
  const Quantized result = run(in, kNvfp4);
  EXPECT_EQ(result.stats.tensor_scale, 1.0f);
  EXPECT_EQ(result.scales, (std::vector<float>{448, 0.5f, 0, 0}));
  EXPECT_EQ(result.values[0], 2688.0f);
  EXPECT_EQ(result.values[1], -448.0f);
  EXPECT_EQ(result.values[2], 0.0f);
  EXPECT_EQ(result.values[16], 3.0f);
  EXPECT_EQ(result.values[17], 1.0f);
  EXPECT_EQ(result.values[18], 0.25f);
  EXPECT_EQ(result.values[32], 0.0f);
  EXPECT_EQ(result.stats.flushed, 3);
  EXPECT_EQ(result.stats.clipped, 0);
  // A tensor of zeros, and one of nothing.
  EXPECT_EQ(run(std::vector<float>(20, 0.0f), kNvfp4).values, std::vector<float>(20, 0.0f));
  EXPECT_EQ(run({}, kNvfp4).scales.size(), 0u);
}

TEST(BlockFormatTest, ScalesInFp32) {
  // 1344 = 3 * 448: the scale is 3, and the codes are 448, 1, 0 and -0.5.
  const std::vector<float> in{1344.0f, 3.0f, 0.0f, -1.5f, 0.0f, 0.0f, 0.0f, 0.0f};
  BlockFormat rows{.element = kE4m3fn, .block_size = 4, .scale = ScaleKind::fp32};
  Quantized result = run(in, rows);
  EXPECT_EQ(result.scales, (std::vector<float>{3.0f, 1.0f})) << "zeros have their guard";
  EXPECT_EQ(result.values, in);

  rows.unguarded = true;  // 0 / 448 = 0, and 0 / 0
  result = run(in, rows);
  EXPECT_EQ(result.scales, (std::vector<float>{3.0f, 0.0f}));
  EXPECT_EQ(std::vector<float>(result.values.begin(), result.values.begin() + 4),
            std::vector<float>(in.begin(), in.begin() + 4));
  for (size_t i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(result.values[i]));

  rows.amax_floor = 1e-12f;
  result = run(in, rows);
  EXPECT_EQ(result.scales, (std::vector<float>{3.0f, 1e-12f / 448.0f}));
  EXPECT_EQ(result.values, in);
  rows.amax_floor = 2688.0f;  // twice the largest: codes are 224, 0.5 ...
  EXPECT_EQ(run(in, rows).scales, (std::vector<float>{6.0f, 6.0f}));

  // fp4 has no NaN: its largest code, 6, times 0.
  rows = {.element = kE2m1, .block_size = 4, .scale = ScaleKind::fp32, .unguarded = true};
  EXPECT_EQ(run(in, rows).values[5], 0.0f);
}

TEST(BlockFormatTest, FloorsHoldForPowersOfTwo) {
  BlockFormat format = kMxfp8E4m3;
  EXPECT_EQ(run({0.5f}, format).scales[0], 0x1p-9f) << "0.5 = 2^-1, 448 lies in 2^8";
  format.amax_floor = 1.0f;
  EXPECT_EQ(run({0.5f}, format).scales[0], 0x1p-8f);
  EXPECT_EQ(run({0.0f}, format).scales[0], 0x1p-8f);
}

TEST(BlockFormatTest, NanAndInfinityTakeTheirBlock) {
  for (const BlockFormat& format :
       {kMxfp8E4m3, kMxfp4, kNvfp4, with_rule(kMxfp6E2m3, ScaleRule::up)}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      std::vector<float> in(96, 1.0f);
      in[40] = bad;
      const Quantized result = run(in, format);
      EXPECT_EQ(result.stats.nan_blocks, 1);
      for (int i = 0; i < 96; ++i) {
        const bool hit = i / format.block_size == 40 / format.block_size;
        EXPECT_EQ(std::isnan(result.values[static_cast<size_t>(i)]), hit) << i;
        if (!hit) {
          EXPECT_NEAR(result.values[static_cast<size_t>(i)], 1.0f, 1e-6f) << i;
        }
      }
      EXPECT_TRUE(std::isnan(result.scales[static_cast<size_t>(40 / format.block_size)]));
    }
  }
  EXPECT_EQ(mx_scale_code(kNan, kE4m3fn, ScaleRule::floor), kUe8m0Nan);
  EXPECT_EQ(mx_scale_code(kInf, kE2m1, ScaleRule::up), kUe8m0Nan);
}

/// OCP MX 1.0, 6.3: X is the largest power of two not above max|V|, over the largest power of two
/// of the element; P is V / X, rounded, clamped to the largest value.
void expect_as_specified(const std::vector<float>& in, const BlockFormat& format,
                         const EnumeratedFormat& element) {
  float amax = 0;
  for (const float x : in) amax = std::max(amax, std::fabs(x));
  int exponent = -127;
  if (amax > 0) exponent = std::max(-127, std::ilogb(amax) - std::ilogb(element.largest()));
  const Quantized got = run(in, format);
  ASSERT_EQ(got.scales.size(), 1u);
  ASSERT_EQ(got.scales[0], std::ldexp(1.0f, exponent));
  int64_t clipped = 0, flushed = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double ratio = std::ldexp(static_cast<double>(in[i]), -exponent);
    const Rounded<double> want = element.round(ratio);
    clipped += (want.flags & kOverflow) != 0 ? 1 : 0;
    flushed += (want.flags & kFlushed) != 0 ? 1 : 0;
    ASSERT_TRUE(same(got.values[i], static_cast<float>(std::ldexp(want.value, exponent))))
        << block_format_name(format) << ' ' << in[i] << " of amax " << amax << ": "
        << got.values[i];
  }
  ASSERT_EQ(got.stats.clipped, clipped);
  ASSERT_EQ(got.stats.flushed, flushed);
}

EnumeratedFormat saturating(FloatFormat format) {
  format.saturate = true;
  return EnumeratedFormat(format);
}

TEST(BlockFormatTest, AllPairsOfSmallNumbersAsSpecified) {
  std::vector<float> numbers{0.0f};
  for (int e = -7; e <= 4; ++e) {
    for (int k = 16; k < 32; ++k) numbers.push_back(std::ldexp(static_cast<float>(k), e - 4));
  }
  for (const BlockFormat& format : kMx) {
    const EnumeratedFormat element = saturating(format.element);
    for (const float a : numbers) {
      for (const float b : numbers) {
        ASSERT_NO_FATAL_FAILURE(expect_as_specified({a, -b}, format, element));
      }
    }
  }
}

TEST(BlockFormatTest, RandomBlocksAsSpecified) {
  for (const BlockFormat& format : kMx) {
    const EnumeratedFormat element = saturating(format.element);
    for (uint32_t seed = 0; seed < 300; ++seed) {
      const int middle = static_cast<int>(seed % 277) - 149;
      const std::vector<float> in =
          random_floats(32, std::max(-149, middle - 12), std::min(127, middle + 2), seed);
      ASSERT_NO_FATAL_FAILURE(expect_as_specified(in, format, element));
    }
  }
}

TEST(BlockFormatTest, ScalesRoundedUpAreTheSmallestThatClipNothing) {
  for (const BlockFormat& format : kMx) {
    const double largest = format.element.max_finite();
    for (const float amax : random_floats(20000, -149, 127, 9)) {
      if (amax == 0) continue;
      const uint8_t code = mx_scale_code(amax, format.element, ScaleRule::up);
      const double magnitude = std::fabs(static_cast<double>(amax));
      ASSERT_LE(magnitude, std::ldexp(largest, code - 127)) << amax;
      if (code > 0) {
        ASSERT_GT(magnitude, std::ldexp(largest, code - 128)) << amax;
      }
    }
    const Quantized result = run(random_floats(320, -20, 20, 10), with_rule(format, ScaleRule::up));
    EXPECT_EQ(result.stats.clipped, 0);
  }
}

TEST(BlockFormatTest, TransformerEnginesScaleIsTheOneRoundedUp) {
  // float_to_e8m0(amax * (1 / max)), with the reciprocal rounded to fp32. For all significands.
  for (const FloatFormat& element : {kE4m3fn, kE5m2}) {
    const float reciprocal = 1.0f / static_cast<float>(element.max_finite());
    int64_t different = 0;
    for (uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
      const float amax = std::bit_cast<float>(0x3f800000u | mantissa);
      different += mx_scale_code(amax, element, ScaleRule::up) !=
                           encode_ue8m0(amax * reciprocal, Ue8m0Rounding::up)
                       ? 1
                       : 0;
    }
    EXPECT_EQ(different, 0);
  }
}

TEST(BlockFormatTest, QuantizedValuesStayAsTheyAre) {
  for (const BlockFormat& plain : kMx) {
    for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::up}) {
      const BlockFormat format = with_rule(plain, rule);
      const std::vector<float> once = run(random_floats(6400, -140, 120, 11), format).values;
      const Quantized twice = run(once, format);
      EXPECT_EQ(twice.values, once);
      EXPECT_EQ(twice.stats.clipped, 0);
      EXPECT_EQ(twice.stats.flushed, 0);
    }
  }
}

TEST(BlockFormatTest, ErrorsAreHalfAUnitOfTheLargestAtMost) {
  for (const BlockFormat& format : kMx) {
    const std::vector<float> in = random_floats(32 * 400, -8, 8, 12);
    const Quantized result = run(in, with_rule(format, ScaleRule::up));
    const double step =
        std::ldexp(1.0, format.element.max_exponent() - format.element.mantissa_bits);
    for (size_t i = 0; i < in.size(); ++i) {
      const double error = static_cast<double>(result.values[i]) - static_cast<double>(in[i]);
      ASSERT_LE(std::fabs(error), step / 2 * static_cast<double>(result.scales[i / 32]));
    }
  }
}

TEST(BlockFormatTest, BlocksDoNotSeeEachOther) {
  const std::vector<float> in = random_floats(160, -6, 6, 13);
  for (const BlockFormat& format : kMx) {
    const Quantized all = run(in, format);
    for (size_t block = 0; block < 5; ++block) {
      const auto from = in.begin() + static_cast<std::ptrdiff_t>(32 * block);
      const Quantized alone = run({from, from + 32}, format);
      ASSERT_EQ(alone.scales[0], all.scales[block]);
      ASSERT_TRUE(std::equal(alone.values.begin(), alone.values.end(),
                             all.values.begin() + static_cast<std::ptrdiff_t>(32 * block)));
    }
  }
}

TEST(BlockFormatTest, ColumnsAreTheRowsOfTheTransposed) {
  constexpr int64_t kRows = 70, kCols = 5;  // the last block of a column has 6 elements
  const std::vector<float> in = random_floats(kRows * kCols, -6, 6, 14);
  std::vector<float> transposed(in.size());
  const auto at = [](int64_t row, int64_t col, int64_t width) {
    return static_cast<size_t>(row * width + col);
  };
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) transposed[at(c, r, kRows)] = in[at(r, c, kCols)];
  }
  for (const BlockFormat& format : {kMxfp8E4m3, kNvfp4}) {
    const Quantized columns = run(in, {.outer = 1, .length = kRows, .inner = kCols}, format);
    const Quantized rows = run(transposed, {.outer = kCols, .length = kRows}, format);
    const int64_t blocks = blocks_along({.length = kRows}, format);
    ASSERT_EQ(columns.scales.size(), static_cast<size_t>(kCols * blocks));
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(columns.values[at(r, c, kCols)], rows.values[at(c, r, kRows)]);
        const int64_t block = r / format.block_size;
        ASSERT_EQ(columns.scales[at(block, c, kCols)], rows.scales[at(c, block, blocks)]);
      }
    }
  }
}

TEST(BlockFormatTest, Nvfp4WithinItsDefinition) {
  // Every value is one of e2m1's times e4m3fn's times the tensor scale, and the closest one.
  const std::vector<float> in = random_floats(16 * 200, -10, 3, 15);
  const Quantized result = run(in, kNvfp4);
  const double tensor_scale = static_cast<double>(result.stats.tensor_scale);
  float amax = 0;
  for (const float x : in) amax = std::max(amax, std::fabs(x));
  EXPECT_EQ(result.stats.tensor_scale, amax / 2688.0f);
  const EnumeratedFormat e4m3 = saturating(kE4m3fn), e2m1 = saturating(kE2m1);
  for (size_t i = 0; i < in.size(); ++i) {
    float largest = 0;
    for (size_t j = i / 16 * 16; j < i / 16 * 16 + 16; ++j) {
      largest = std::max(largest, std::fabs(in[j]));
    }
    const double scale = e4m3.round(static_cast<double>(largest) / (6 * tensor_scale)).value;
    ASSERT_EQ(static_cast<double>(result.scales[i / 16]), scale);
    const double unit = scale * tensor_scale;
    const double want = unit == 0 ? 0 : e2m1.round(static_cast<double>(in[i]) / unit).value * unit;
    ASSERT_EQ(result.values[i], static_cast<float>(want)) << i;
  }
}

TEST(BlockFormatTest, TheEndsOfFp32) {
  const float largest = std::numeric_limits<float>::max();
  const float smallest = std::numeric_limits<float>::denorm_min();
  for (const BlockFormat& format : {kMxfp8E4m3, kMxfp4, with_rule(kMxfp8E4m3, ScaleRule::up),
                                    with_rule(kMxfp4, ScaleRule::up), kNvfp4}) {
    for (const float x : run({largest, -largest, 1}, format).values) {
      EXPECT_TRUE(std::isfinite(x));
    }
    for (const float x : run({smallest, -smallest, 0}, format).values) {
      EXPECT_TRUE(std::fabs(x) <= smallest);
    }
  }
  // 448 * 2^119 is what the rule leaves of the largest float.
  EXPECT_EQ(run({largest}, kMxfp8E4m3).values[0], 448 * 0x1p119f);
  // Rounded up, 2^128 would be the nearest: the largest element below is 240 * 2^120.
  const Quantized up = run({largest}, with_rule(kMxfp8E4m3, ScaleRule::up));
  EXPECT_EQ(up.values[0], 240 * 0x1p120f);
  EXPECT_EQ(up.stats.clipped, 1);
}

TEST(BlockFormatTest, SizesMustFit) {
  std::vector<float> in(64), out(64), scales(2), wrong(3);
  EXPECT_NO_THROW(quantize(in, 2, 32, kMxfp4, out, scales));
  EXPECT_NO_THROW(quantize(in, 2, 32, kMxfp4, in, scales)) << "in place";
  EXPECT_THROW(quantize(in, 2, 32, kMxfp4, out, wrong), Error);
  EXPECT_THROW(quantize(in, 3, 32, kMxfp4, out, wrong), Error);
  EXPECT_THROW(quantize(in, -2, -32, kMxfp4, out, scales), Error);
  EXPECT_THROW(quantize(in, 2, 32, BlockFormat{.block_size = 0}, out, scales), Error);
}

}  // namespace
}  // namespace halfscope
