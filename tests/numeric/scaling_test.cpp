// SPDX-License-Identifier: MIT
// Integers with scale and zero point against the examples of the ONNX operators, and fp8 scales
// against Transformer Engine's update written down as it rolls its history.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/numeric/scaling/linear_quantization.h"
#include "core/numeric/scaling/tensor_scale.h"
#include "core/numeric/scaling/tensor_scaling.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

static_assert(quantize_linear(3.0f, {.scale = 2, .zero_point = 128}, kUint8) == 130);
static_assert(quantize_linear(kNan, {.scale = 2, .zero_point = 5}, kUint8) == 5);
static_assert(quantize_linear(1.0f, {.scale = 0}, kInt8) == 127);

TEST(LinearQuantizationTest, TheExampleOfQuantizeLinear) {
  const std::vector<float> in{0, 2, 3, 1000, -254, -1000};
  const std::vector<LinearQuantization> by{{.scale = 2, .zero_point = 128}};
  std::vector<float> out(in.size());
  std::vector<int32_t> codes(in.size());
  BlockStats stats;
  quantize_linear(in, {.inner = 6}, by, kUint8, out, codes, &stats);
  EXPECT_EQ(codes, (std::vector<int32_t>{128, 129, 130, 255, 1, 0}));
  EXPECT_EQ(out, (std::vector<float>{0, 2, 4, 254, -254, -256}));
  EXPECT_EQ(stats.clipped, 2);
  EXPECT_EQ(stats.flushed, 0);
}

TEST(LinearQuantizationTest, TheExampleAlongAnAxis) {
  const std::vector<float> in{-162, 10, -100, 232, -20,  -50,  -76,  0,    0,
                              252,  32, -44,  245, -485, -960, -270, -375, -470};
  const std::vector<LinearQuantization> by{{2, 84}, {4, 24}, {5, 196}};
  std::vector<float> out(in.size());
  std::vector<int32_t> codes(in.size());
  quantize_linear(in, {.outer = 1, .channels = 3, .inner = 6}, by, kUint8, out, codes);
  EXPECT_EQ(codes, (std::vector<int32_t>{3, 89, 34, 200, 74, 59, 5, 24, 24, 87, 32, 13, 245, 99, 4,
                                         142, 121, 102}));
}

TEST(LinearQuantizationTest, TheExampleOfDynamicQuantizeLinear) {
  const std::vector<float> in{0, 2, -3, -2.5f, 1.34f, 0.5f};
  const ChannelShape shape{.inner = 6};
  const auto by = calibrate(in, shape, Symmetry::asymmetric, kUint8);
  ASSERT_EQ(by.size(), 1u);
  EXPECT_EQ(by[0].scale, 0.0196078438f);
  EXPECT_EQ(by[0].zero_point, 153);
  std::vector<float> out(in.size());
  std::vector<int32_t> codes(in.size());
  quantize_linear(in, shape, by, kUint8, out, codes);
  EXPECT_EQ(codes, (std::vector<int32_t>{153, 255, 0, 26, 221, 179}));
  // All values are above zero: the range is extended to include zero.
  EXPECT_EQ(calibrate(std::vector<float>{1, 2.1f, 1.3f, 2.5f, 3.34f, 4}, shape,
                      Symmetry::asymmetric, kUint8)[0]
                .zero_point,
            0);
}

TEST(LinearQuantizationTest, RoundsHalfToEvenAndSaturates) {
  const LinearQuantization one{};
  for (int i = -600; i <= 600; ++i) {
    const float x = static_cast<float>(i) / 4;
    const int want = static_cast<int>(std::clamp(std::nearbyint(x), -128.0f, 127.0f));
    ASSERT_EQ(quantize_linear(x, one, kInt8), want) << x;
  }
  EXPECT_EQ(quantize_linear(kInf, one, kInt8), 127);
  EXPECT_EQ(quantize_linear(-kInf, one, kInt8Symmetric), -127);
  EXPECT_EQ(quantize_linear(3e38f, one, kUint4), 15);
}

TEST(LinearQuantizationTest, SymmetricHasNoZeroPointAndKeepsItsLargest) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> in(4 * 100);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = normal(generator) * std::ldexp(1.0f, static_cast<int>(i / 100));
  const ChannelShape shape{.outer = 1, .channels = 4, .inner = 100};
  const auto by = calibrate(in, shape, Symmetry::symmetric, kInt8Symmetric);
  std::vector<float> out(in.size()), again(in.size());
  BlockStats stats;
  quantize_linear(in, shape, by, kInt8Symmetric, out, {}, &stats);
  EXPECT_EQ(stats.clipped, 0);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(by[i / 100].zero_point, 0);
    EXPECT_LE(std::fabs(out[i] - in[i]), by[i / 100].scale * 0.5001f);
  }
  quantize_linear(out, shape, by, kInt8Symmetric, again);
  EXPECT_EQ(again, out);
}

TEST(LinearQuantizationTest, DegenerateTensors) {
  const ChannelShape shape{.inner = 3};
  for (const Symmetry symmetry : {Symmetry::symmetric, Symmetry::asymmetric}) {
    const auto zeros = calibrate(std::vector<float>{0, 0, 0}, shape, symmetry, kInt8);
    EXPECT_EQ(zeros[0].scale, 1.0f);
    EXPECT_EQ(zeros[0].zero_point, 0);
    const auto bad = calibrate(std::vector<float>{kNan, kInf, 1}, shape, symmetry, kInt8);
    EXPECT_EQ(bad[0].scale, symmetry == Symmetry::symmetric ? 1.0f / 127 : 1.0f / 255);
  }
  EXPECT_EQ(asymmetric_quantization(-3e38f, 3e38f, kInt8).zero_point, 0);
  std::vector<float> in(3), out(2);
  EXPECT_THROW(calibrate(in, {.inner = 4}, Symmetry::symmetric, kInt8), Error);
  const std::vector<LinearQuantization> by{{}};
  EXPECT_THROW(quantize_linear(in, shape, by, kInt8, out), Error);
}

TEST(TensorScaleTest, TextsReadBack) {
  for (const char* text : {"none",
                           "static:0.5",
                           "static:1e-05",
                           "current",
                           "current:power-of-two",
                           "delayed",
                           "delayed:history=16",
                           "delayed:history=4,margin=2,amax=recent",
                           "mx",
                           "mx:up",
                           "mx:weights=square",
                           "mx:up,weights=square",
                           "block:128",
                           "block:128,weights=square",
                           "nvfp4",
                           "nvfp4:weights=square",
                           "current:unguarded",
                           "current:amax-floor=1e-12",
                           "current:power-of-two,unguarded,amax-floor=1e-12",
                           "mx:up,amax-floor=0.5",
                           "block:128,scales=fp32",
                           "block:32,scales=fp32",
                           "block:128,weights=square,scales=fp32,unguarded,amax-floor=1e-06"}) {
    const std::optional<TensorScale> scale = parse_scale(text);
    ASSERT_TRUE(scale) << text;
    EXPECT_EQ(scale_name(*scale), text);
  }
  EXPECT_EQ(parse_scale("delayed:margin=0,amax=max,history=1024"), parse_scale("delayed"));
  EXPECT_EQ(parse_scale("block:32"), parse_scale("mx:up"));
  EXPECT_EQ(parse_scale("block:128")->rule, ScaleRule::up) << "nothing is clipped";
}

TEST(TensorScaleTest, AnythingElseIsRefused) {
  for (const char* text : {"",
                           "nonesuch",
                           "none:",
                           "none:up",
                           "static",
                           "static:",
                           "static:0",
                           "static:-1",
                           "static:inf",
                           "static:nan",
                           "static:1,up",
                           "static:1e99",
                           "current:up",
                           "current:",
                           "current:power-of-two=1",
                           "current:power-of-two,power-of-two",
                           "delayed:history",
                           "delayed:history=0",
                           "delayed:history=65537",
                           "delayed:history=1,history=1",
                           "delayed:margin=-1",
                           "delayed:margin=65",
                           "delayed:amax=mean",
                           "delayed:up",
                           "mx:up,",
                           "mx:,up",
                           "mx:up=1",
                           "mx:weights=round",
                           "mx:margin=1",
                           "block",
                           "block:",
                           "block:0",
                           "block:-4",
                           "block:1048577",
                           "block:weights=square",
                           "nvfp4:up",
                           "nvfp4:unguarded",
                           "mx:unguarded",
                           "mx:scales=fp32",
                           "block:128,unguarded",
                           "block:128,scales=fp16",
                           "current:scales=fp32",
                           "current:amax-floor=0",
                           "current:amax-floor=-1",
                           "delayed:unguarded",
                           "Current",
                           " current"}) {
    EXPECT_FALSE(parse_scale(text)) << text;
  }
}

TEST(TensorScalingTest, CurrentScale) {
  EXPECT_EQ(current_scale(448, kE4m3fn), 1.0f);
  EXPECT_EQ(current_scale(3, kE4m3fn), 448.0f / 3);
  EXPECT_EQ(current_scale(3, kE4m3fn, ScaleGrid::power_of_two), 128.0f);
  EXPECT_EQ(current_scale(3.5f, kE4m3fn, ScaleGrid::power_of_two), 128.0f);
  EXPECT_EQ(current_scale(0, kE4m3fn), 1.0f);
  EXPECT_EQ(current_scale(kInf, kE5m2), 1.0f);
  EXPECT_EQ(current_scale(kNan, kE5m2, ScaleGrid::any, 8), 8.0f);
  EXPECT_EQ(current_scale(1e-40f, kE4m3fn), std::numeric_limits<float>::max());
  EXPECT_EQ(current_scale(1e-40f, kE4m3fn, ScaleGrid::power_of_two), 0x1p127f);
}

TEST(TensorScalingTest, ScaledTensors) {
  const std::vector<float> in{3, -1, 0.01f, 1e-6f, 0, kNan};
  std::vector<float> out(in.size());
  BlockStats stats;
  quantize_scaled(in, current_scale(3, kE4m3fn, ScaleGrid::power_of_two), kE4m3fn, out, &stats);
  EXPECT_EQ(out[0], 3.0f);
  EXPECT_EQ(out[1], -1.0f);
  EXPECT_EQ(out[2], 1.25f / 128);  // 1.28 rounds to 1.25
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_EQ(stats.clipped, 0);
  EXPECT_EQ(stats.flushed, 1);
  quantize_scaled(in, 256, kE4m3fn, out, &stats);
  EXPECT_EQ(out[0], 1.75f);
  EXPECT_EQ(stats.clipped, 1);
  EXPECT_TRUE(std::isnan(largest_magnitude(in)));
  EXPECT_EQ(largest_magnitude(std::vector<float>{1, -4, 2}), 4.0f);
  EXPECT_EQ(largest_magnitude({}), 0.0f);
}

/// amax_and_scale_update as it is published: slot 0 has this step's amax; the history rolls by one,
/// and slot 0 is cleared.
class RolledHistory {
 public:
  explicit RolledHistory(const DelayedScale::Options& options)
      : options_(options), history_(static_cast<size_t>(options.history_length), 0.0f) {}
  float step(float amax) {
    history_[0] = amax;
    const float last = history_[0];
    std::rotate(history_.begin(), history_.begin() + 1, history_.end());
    float chosen = 0;
    for (const float each : history_) chosen = std::fmax(chosen, each);
    if (options_.choice == AmaxChoice::most_recent) chosen = last;
    history_[0] = 0;
    const float scaled_max = static_cast<float>(options_.format.max_finite()) *
                             std::pow(2.0f, -static_cast<float>(options_.margin));
    if (std::isfinite(chosen) && chosen > 0) scale_ = scaled_max / chosen;
    return scale_;
  }

 private:
  DelayedScale::Options options_;
  std::vector<float> history_;
  float scale_ = 1;
};

TEST(TensorScalingTest, DelayedScaleIsTransformerEngines) {
  std::mt19937 generator(4);
  for (const AmaxChoice choice : {AmaxChoice::max, AmaxChoice::most_recent}) {
    for (const int length : {2, 3, 16, 1024}) {
      const DelayedScale::Options options{.format = length == 16 ? kE5m2 : kE4m3fn,
                                          .history_length = length,
                                          .choice = choice,
                                          .margin = length % 4};
      DelayedScale scale(options);
      RolledHistory reference(options);
      EXPECT_EQ(scale.scale(), 1.0f);
      for (int step = 0; step < 2000; ++step) {
        float amax = std::ldexp(1.0f + static_cast<float>(generator() % 1000) / 1000,
                                static_cast<int>(generator() % 20) - 10);
        if (generator() % 20 == 0) amax = 0;
        if (generator() % 50 == 0) amax = kInf;
        scale.update(amax);
        ASSERT_EQ(scale.scale(), reference.step(amax)) << step;
      }
    }
  }
}

TEST(TensorScalingTest, DelayedScaleByHand) {
  DelayedScale scale(
      {.format = kE4m3fn, .history_length = 3, .choice = AmaxChoice::max, .margin = 1});
  scale.update(0);
  EXPECT_EQ(scale.scale(), 1.0f);
  scale.update(7);
  EXPECT_EQ(scale.scale(), 32.0f);
  scale.update(14);
  EXPECT_EQ(scale.scale(), 16.0f);
  EXPECT_EQ(scale.history(), (std::vector<float>{0, 7, 14}));
  scale.update(7);
  scale.update(7);
  EXPECT_EQ(scale.scale(), 16.0f) << "14 is two steps old";
  scale.update(7);
  EXPECT_EQ(scale.scale(), 32.0f);
  scale.update(kNan);
  EXPECT_EQ(scale.scale(), 32.0f);
  scale.update(kInf);
  scale.update(3.5f);
  scale.update(3.5f);
  EXPECT_EQ(scale.scale(), 32.0f) << "the infinity is still there";
  scale.update(3.5f);
  EXPECT_EQ(scale.scale(), 64.0f);
  EXPECT_THROW(DelayedScale({.history_length = 0}), Error);
}

}  // namespace
}  // namespace halfscope
