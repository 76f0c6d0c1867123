// SPDX-License-Identifier: MIT
// Losses through a lens against values that are really rounded, and the rows of a spectrum.
#include "analysis/spectrum/spectrum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "analysis/spectrum/groups.h"
#include "analysis/spectrum/ridge_outline.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/scaling/block_format.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<float> values_around(double exponent, double width, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> place(exponent, width);
  std::bernoulli_distribution negative(0.5);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(std::exp2(place(random))) * (negative(random) ? -1.0f : 1.0f);
  }
  return values;
}

TensorStats stats_in(const FloatFormat& format, std::vector<float> values) {
  std::vector<float> rounded(values.size());
  return measure(values, rounded, format);
}

/// Rounds each value times 2^shift and counts what is gone.
int64_t really_lost(const std::vector<float>& values, const FloatFormat& format, int shift) {
  int64_t lost = 0;
  for (const float value : values) {
    const double exact = std::ldexp(static_cast<double>(value), shift);
    if (exact == 0.0) continue;
    const double rounded = static_cast<double>(round_to_format(exact, format).value);
    lost += rounded == 0.0 || !std::isfinite(rounded) ||
            std::fabs(exact) > format.max_finite() * 1.0625;
  }
  return lost;
}

TEST(Lens, ParsesFormatsWithTheirScale) {
  EXPECT_EQ(parse_lens("")->format, std::nullopt);
  EXPECT_EQ(parse_lens("fp16")->format, kFp16);
  EXPECT_EQ(parse_lens("e5m3")->format->mantissa_bits, 3);
  EXPECT_EQ(*parse_lens("e4m3fn/tensor"), (Lens{kE4m3fn, LensScale::tensor, 0}));
  EXPECT_EQ(*parse_lens("mxfp8"), (Lens{kE4m3fn, LensScale::block, 32}));
  EXPECT_EQ(*parse_lens("nvfp4"), (Lens{kE2m1, LensScale::block, 16}));
  EXPECT_FALSE(parse_lens("fp17"));
  EXPECT_FALSE(parse_lens("nvfp4/tensor"));
}

TEST(Lens, BoundsHoldWhatRoundingLoses) {
  for (const FloatFormat& format : {kFp16, kE5m2, kE4m3fn, kE2m1, kBf16}) {
    for (const double exponent : {-30.0, -20.0, -8.0, 0.0, 9.0}) {
      const std::vector<float> values = values_around(exponent, 4.0, 4000, 7);
      const TensorStats stats = stats_in(kFp32, values);
      for (const int shift : {-6, 0, 5}) {
        const LossCount lost = lens_loss(stats, kFp32, {.format = format}, shift);
        const auto really = static_cast<double>(really_lost(values, format, shift));
        EXPECT_LE(lost.low, really) << format_name(format) << " " << exponent << " " << shift;
        EXPECT_GE(lost.high, really) << format_name(format) << " " << exponent << " " << shift;
        EXPECT_EQ(lost.values, 4000);
        EXPECT_TRUE(lost.estimate);
      }
    }
  }
}

TEST(Lens, ATensorsScaleBringsItsLargestValueToTheTop) {
  for (const FloatFormat& format : {kE4m3fn, kE5m2, kFp16, kE2m1}) {
    for (const float largest : {3.0e-9f, 0.7f, 447.0f, 449.0f, 6.0e12f}) {
      const TensorStats stats = stats_in(kFp32, {largest, largest / 3.0f});
      const int shift = lens_shift(stats, kFp32, {.format = format, .scale = LensScale::tensor});
      const double scaled = std::ldexp(static_cast<double>(largest), shift);
      EXPECT_LE(scaled, format.max_finite()) << format_name(format) << " " << largest;
      EXPECT_GT(2.0 * scaled, format.max_finite() / 2.0) << format_name(format) << " " << largest;
    }
  }
}

TEST(Lens, ATensorsScaleSavesWhatTheFormatAloneLoses) {
  const TensorStats stats = stats_in(kFp32, values_around(-40.0, 1.5, 4000, 3));
  EXPECT_DOUBLE_EQ(lens_loss(stats, kFp32, {.format = kE4m3fn}, 0.0).share(), 1.0);
  EXPECT_LT(lens_loss(stats, kFp32, {.format = kE4m3fn, .scale = LensScale::tensor}, 0.0).share(),
            0.01);
}

TEST(Lens, BlocksAreEstimatedNearWhatQuantizingThemLoses) {
  const BlockFormat formats[] = {kMxfp8E4m3, kMxfp4};
  for (const BlockFormat& format : formats) {
    for (const double width : {1.0, 3.0, 6.0}) {
      std::vector<float> values = values_around(-12.0, width, 32 * 2048, 11);
      const TensorStats stats = stats_in(kFp32, values);
      std::vector<float> quantized(values.size());
      std::vector<float> scales(values.size() / 32);
      quantize(values, 2048, 32, format, quantized, scales);
      double zeros = 0.0;
      for (const float value : quantized) zeros += value == 0.0f;
      const Lens lens{format.element, LensScale::block, format.block_size};
      const double share = lens_loss(stats, kFp32, lens, 0.0).share();
      const double really = zeros / static_cast<double>(values.size());
      EXPECT_NEAR(share, really, 0.02 + 0.1 * really) << block_format_name(format) << " " << width;
    }
  }
}

TEST(Lens, WithoutAFormatItReportsTheRecordedCounters) {
  const TensorStats stats = stats_in(kFp16, {1e-9f, 1e-9f, 1.0f, 1e6f, 0.0f});
  const LossCount lost = lens_loss(stats, kFp16, {}, 0.0);
  EXPECT_EQ(lost.values, 4);
  EXPECT_EQ(lost.low, 3.0);
  EXPECT_EQ(lost.high, 3.0);
  EXPECT_EQ(lost.overflow, 1.0);
  EXPECT_FALSE(lost.estimate);
}

/// A lane with one layer of an activation and two gradients, over four steps.
RunView small_run() {
  RunInfo info;
  LaneInfo lane;
  lane.name = "half";
  lane.backend = "emulated";
  const auto add = [&](const char* path, const char* tensor, Role role, Phase phase) {
    lane.sites.push_back({.path = path,
                          .tensor = tensor,
                          .role = role,
                          .phase = phase,
                          .op = "Gemm",
                          .format = kFp16,
                          .shape = {4},
                          .order = static_cast<int>(lane.sites.size())});
  };
  add("a/one", "activation", Role::activation, Phase::forward);
  add("a/two", "activation", Role::activation, Phase::forward);
  add("a/two", "activation_grad", Role::activation_grad, Phase::backward);
  add("a/one", "weight_grad", Role::weight_grad, Phase::backward);
  info.lanes.push_back(lane);
  RunView run(info, RunStatus::complete);
  for (int64_t step = 0; step < 4; ++step) {
    run.add_step(0, {.step = step, .loss = 1.0});
    const float small = std::ldexp(1.0f, -20 - static_cast<int>(step));
    run.add_window(0, 0, {step, 1, stats_in(kFp16, {1.0f, 2.0f, 2.0f, 4.0f})});
    run.add_window(0, 1, {step, 1, stats_in(kFp16, {0.5f, 0.0f})});
    run.add_window(0, 2, {step, 1, stats_in(kFp16, {1e-9f, 1.0f})});
    run.add_window(0, 3, {step, 1, stats_in(kFp16, {small, 1e-9f, 1e-9f, 1e-9f})});
  }
  return run;
}

TEST(Spectrum, ARidgeHasTheLargestShareOfItsTensors) {
  const RunView run = small_run();
  const std::vector<std::string> paths{"a/one", "a/two"};
  const Spectrum spectrum = make_spectrum(run, 0, paths, kAllSpectrumCharts, 2, 2);
  const std::vector<int> one{0}, both{0, 1};
  const Ridge alone = make_ridge(spectrum, one, SpectrumChart::activations, {}, 0.0);
  EXPECT_EQ(alone.low, 0);
  EXPECT_THAT(alone.shares, ElementsAre(0.25f, 0.5f, 0.25f));
  const Ridge folded = make_ridge(spectrum, both, SpectrumChart::activations, {}, 0.0);
  EXPECT_EQ(folded.low, -1);
  EXPECT_THAT(folded.shares, ElementsAre(1.0f, 0.25f, 0.5f, 0.25f));
  // The worst of the two gradients names the loss.
  const Ridge gradients = make_ridge(spectrum, both, SpectrumChart::gradients, {}, 0.0);
  EXPECT_EQ(gradients.worst, 3);
  EXPECT_DOUBLE_EQ(gradients.lost.share(), 0.75);
  EXPECT_DOUBLE_EQ(total_loss(spectrum, SpectrumChart::gradients, {}, 0.0).share(), 4.0 / 6.0);
}

TEST(Spectrum, OnlyGradientsFollowTheLossScale) {
  const RunView run = small_run();
  const std::vector<std::string> paths{"a/one", "a/two"};
  const Spectrum spectrum = make_spectrum(run, 0, paths, kAllSpectrumCharts, 2, 2);
  EXPECT_EQ(total_loss(spectrum, SpectrumChart::gradients, {}, 10.0).high, 0.0);
  EXPECT_EQ(total_loss(spectrum, SpectrumChart::activations, {}, 40.0).high, 0.0);
  const int best = best_loss_scale_shift(spectrum, {});
  EXPECT_EQ(total_loss(spectrum, SpectrumChart::gradients, {}, best).high, 0.0);
  EXPECT_EQ(best, 10);  // 1e-9 is kept from 2^5 on, and 1 overflows from 2^16 on
}

TEST(Spectrum, ARangeOfStepsShowsTheLargestShareOfEachStep) {
  const RunView run = small_run();
  const std::vector<std::string> paths{"a/one", "a/two"};
  const Spectrum range = make_spectrum(run, 0, paths, kAllSpectrumCharts, 1, 3);
  EXPECT_EQ(range.windows, 3);
  EXPECT_EQ(range.measured, 3);
  const std::vector<int> one{0};
  const Ridge ridge = make_ridge(range, one, SpectrumChart::gradients, {}, 0.0);
  EXPECT_EQ(ridge.low, -30);  // 1e-9
  EXPECT_FLOAT_EQ(ridge.shares.front(), 0.75f);
  // Each of the three steps has a quarter of its values at its own exponent.
  EXPECT_FLOAT_EQ(ridge.shares[30 - 21], 0.25f);
  EXPECT_FLOAT_EQ(ridge.shares[30 - 22], 0.25f);
  EXPECT_FLOAT_EQ(ridge.shares[30 - 23], 0.25f);
}

TEST(Spectrum, TheWindowIsTheNarrowestCommonFormat) {
  const RunView run = small_run();
  const std::vector<std::string> paths{"a/one", "a/two"};
  EXPECT_EQ(main_format(make_spectrum(run, 0, paths, kAllSpectrumCharts, 0, 0)), kFp16);
}

TEST(RidgeOutline, GoesThroughTheMiddleOfEachBin) {
  const Ridge ridge{.low = -2, .shares = {0.25f, 0.0f, 1.0f, 0.04f}};
  const std::vector<RidgePoint> line = ridge_outline(ridge, 4);
  const auto height_at = [&](float x) {
    for (const RidgePoint& point : line) {
      if (point.x == x) return point.y;
    }
    return -1.0f;
  };
  EXPECT_EQ(line.front().x, -2.5f);
  EXPECT_EQ(line.front().y, 0.0f);
  EXPECT_EQ(height_at(-1.5f), 0.5f);
  EXPECT_EQ(height_at(-0.5f), 0.0f);
  EXPECT_EQ(height_at(0.5f), 1.0f);
  EXPECT_FLOAT_EQ(height_at(1.5f), 0.2f);
  EXPECT_EQ(line.back().x, 2.5f);
  for (const RidgePoint& point : line) {
    EXPECT_GE(point.y, 0.0f);
    EXPECT_LE(point.y, 1.0f) << "it must not overshoot";
  }
}

TEST(RidgeOutline, IsCutAtTheEdgesOfZones) {
  const std::vector<RidgePoint> line{{0, 0}, {2, 1}, {4, 0}};
  const std::vector<RidgePoint> part = outline_part(line, 1.0, 3.0);
  ASSERT_EQ(part.size(), 3u);
  EXPECT_EQ(part[0].x, 1.0f);
  EXPECT_EQ(part[0].y, 0.5f);
  EXPECT_EQ(part[1].y, 1.0f);
  EXPECT_EQ(part[2].x, 3.0f);
  EXPECT_TRUE(outline_part(line, 5.0, 9.0).empty());
  EXPECT_EQ(outline_part(line, 0.5, 1.5).size(), 2u) << "both cuts in one piece";
}

/// A spectrum of layers with one activation each, whose four values have these exponents.
Spectrum spectrum_at(const std::vector<int>& exponents) {
  Spectrum spectrum;
  for (const int exponent : exponents) {
    const float value = std::ldexp(1.0f, exponent);
    SpectrumLayer layer{.path = std::to_string(spectrum.layers.size())};
    layer.charts[0].push_back({.site = static_cast<int>(spectrum.layers.size()),
                               .format = kFp16,
                               .stats = stats_in(kFp16, {value, value, value, value})});
    spectrum.layers.push_back(std::move(layer));
  }
  return spectrum;
}

TEST(FitRange, FewSmallTensorsDoNotPressTheOthersTogether) {
  const ExponentWindow window = exponent_window(kFp16);
  const auto fit = [&](const std::vector<int>& exponents) {
    return fit_range(spectrum_at(exponents), SpectrumChart::activations, {}, window);
  };
  const std::vector<int> most(20, -3);
  std::vector<int> with_tiny = most, with_huge = most;
  with_tiny[7] = -140;
  with_huge[7] = 100;
  EXPECT_GT(fit(with_tiny).low, -45.0) << "it is lost wherever it is";
  EXPECT_LT(fit(with_tiny).low, -36.0) << "but there is room where it is lost";
  EXPECT_GT(fit(with_huge).high, 100.0) << "one overflow is the whole story";
  EXPECT_LT(fit(std::vector<int>(20, -140)).low, -140.0) << "most tensors are never off the chart";
}

TEST(RidgeOutline, ZonesFollowTheWindow) {
  const auto zones = zones_of(exponent_window(kFp16), -30.0, 10.0);
  EXPECT_EQ(zones[0].to, -25.0);
  EXPECT_EQ(zones[1].to, -14.0);
  EXPECT_EQ(zones[2].to, 10.0);
  EXPECT_EQ(zones[3].from, zones[3].to) << "overflow is off the chart";
}

std::vector<std::string> names_of(const std::vector<LayerRow>& rows) {
  std::vector<std::string> names;
  for (const LayerRow& row : rows) names.push_back(row.name + (row.folded ? " +" : ""));
  return names;
}

// The outline reaches half a power of two beyond the largest value, also where nothing overflows.
TEST(RidgeOutline, OnlyValuesOutsideTheWindowAreDrawnAsLost) {
  const ExponentWindow window = exponent_window(kFp16);
  const auto kinds = [&](int low, size_t bins) {
    Ridge ridge{.low = low};
    ridge.shares.assign(bins, 1.0f / static_cast<float>(bins));
    ridge.window_of.assign(bins, 0);
    ridge.windows = {window};
    const auto zones = ridge_zones(ridge, 0.0, -40.0, 30.0);
    return std::pair(zones.front().kind, zones.back().kind);
  };
  EXPECT_EQ(kinds(14, 2), std::pair(ZoneKind::subnormal, ZoneKind::normal)) << "up to 65504";
  EXPECT_EQ(kinds(15, 2), std::pair(ZoneKind::subnormal, ZoneKind::lost));
  EXPECT_EQ(kinds(-25, 3), std::pair(ZoneKind::subnormal, ZoneKind::normal));
  EXPECT_EQ(kinds(-26, 3), std::pair(ZoneKind::lost, ZoneKind::normal));
}

// A layer that reads int8 codes and writes fp32: only what the codes lose is drawn as lost.
TEST(RidgeOutline, EveryPartIsDrawnByTheWindowOfItsOwnTensor) {
  Spectrum spectrum;
  SpectrumLayer layer{.path = "fc"};
  const float tiny = std::ldexp(1.0f, -20), code = std::ldexp(1.0f, 5), zero = std::ldexp(1.0f, -3);
  layer.charts[0].push_back(
      {.site = 0, .format = kFp32, .stats = stats_in(kFp32, {tiny, tiny, tiny, tiny})});
  layer.charts[0].push_back(
      {.site = 1, .format = kInt8Format, .stats = stats_in(kInt8Format, {zero, code, code, code})});
  spectrum.layers.push_back(std::move(layer));
  const int only[] = {0};
  const Ridge ridge = make_ridge(spectrum, only, SpectrumChart::activations, {}, 0.0);
  const auto kind_at = [&](const Ridge& of, double exponent) {
    for (const RidgeZone& zone : ridge_zones(of, 0.0, -40.0, 30.0)) {
      if (zone.from <= exponent && exponent < zone.to) return zone.kind;
    }
    throw std::runtime_error("no zone");
  };
  EXPECT_EQ(kind_at(ridge, -19.5), ZoneKind::normal) << "fp32 can represent it";
  EXPECT_EQ(kind_at(ridge, -2.5), ZoneKind::lost) << "an eighth of a step";
  EXPECT_EQ(kind_at(ridge, 5.5), ZoneKind::normal);
  EXPECT_EQ(kind_at(ridge, 1.5), ZoneKind::normal) << "integers have no subnormal numbers";
  const Ridge as_codes =
      make_ridge(spectrum, only, SpectrumChart::activations, *parse_lens("int8"), 0.0);
  EXPECT_EQ(kind_at(as_codes, -19.5), ZoneKind::lost);
}

TEST(FoldLayers, OpensGroupsAsFarAsTheyFit) {
  const std::vector<std::string> paths{"stem",    "l1/a/conv", "l1/a/bn", "l1/b/conv",
                                       "l1/b/bn", "l2/conv",   "l2/bn",   "head"};
  EXPECT_THAT(names_of(fold_layers(paths, 8, {}, {})),
              ElementsAre("stem", "l1/a/conv", "l1/a/bn", "l1/b/conv", "l1/b/bn", "l2/conv",
                          "l2/bn", "head"));
  EXPECT_THAT(names_of(fold_layers(paths, 7, {}, {})),
              ElementsAre("stem", "l1/a +", "l1/b +", "l2/conv", "l2/bn", "head"));
  EXPECT_THAT(names_of(fold_layers(paths, 4, {}, {})), ElementsAre("stem", "l1 +", "l2 +", "head"));
}

TEST(FoldLayers, ChoicesWinOverTheHeight) {
  const std::vector<std::string> paths{"a/x", "a/y", "b/x", "b/y"};
  const std::vector<std::string> opened{"a"}, closed{"b"};
  const std::vector<LayerRow> rows = fold_layers(paths, 2, opened, {});
  EXPECT_THAT(names_of(rows), ElementsAre("a/x", "a/y", "b +"));
  EXPECT_THAT(rows[0].groups, ElementsAre("a"));
  EXPECT_THAT(rows[2].groups, IsEmpty());
  EXPECT_THAT(names_of(fold_layers(paths, 9, {}, closed)), ElementsAre("a/x", "a/y", "b +"));
}

TEST(FoldLayers, AListWithoutGroupsFoldsIntoStretches) {
  std::vector<std::string> paths;
  for (int i = 0; i < 1000; ++i) paths.push_back("dense" + std::to_string(i));
  const std::vector<LayerRow> rows = fold_layers(paths, 100, {}, {});
  ASSERT_EQ(rows.size(), 100u);
  EXPECT_EQ(rows[0].name, "dense0 to dense9");
  size_t layers = 0;
  for (const LayerRow& row : rows) layers += row.layers.size();
  EXPECT_EQ(layers, 1000u);
  const std::vector<std::string> opened{rows[1].name};
  const std::vector<LayerRow> open = fold_layers(paths, 100, opened, {});
  EXPECT_EQ(open.size(), 109u);
  EXPECT_EQ(open[1].name, "dense10");
  EXPECT_THAT(open[1].groups, ElementsAre(rows[1].name));
}

TEST(FoldLayers, ManyGroupsFoldIntoStretches) {
  std::vector<std::string> paths;
  for (int i = 0; i < 1000; ++i)
    paths.push_back("block" + std::to_string(i / 10) + "/fc" + std::to_string(i % 10));
  const std::vector<LayerRow> rows = fold_layers(paths, 60, {}, {});
  ASSERT_EQ(rows.size(), 50u);
  EXPECT_EQ(rows[1].name, "block2 to block3");
  EXPECT_EQ(rows[1].layers.size(), 20u);
  const std::vector<std::string> opened{rows[1].name};
  const std::vector<LayerRow> open = fold_layers(paths, 60, opened, {});
  ASSERT_EQ(open.size(), 51u);
  EXPECT_EQ(open[1].name, "block2");
  EXPECT_TRUE(open[1].folded);
  EXPECT_THAT(open[1].groups, ElementsAre(rows[1].name));
}

TEST(FoldLayers, EveryLayerIsInOneRow) {
  const std::vector<std::string> paths{"/m/a/Conv", "/m/a/Relu", "/m.0/b", "x.y.z", "x.y", "x"};
  for (const size_t most : {1u, 2u, 3u, 4u, 6u, 20u}) {
    std::vector<int> seen;
    for (const LayerRow& row : fold_layers(paths, most, {}, {})) {
      seen.insert(seen.end(), row.layers.begin(), row.layers.end());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5)) << most;
  }
  EXPECT_THAT(fold_layers({}, 10, {}, {}), IsEmpty());
}

}  // namespace
}  // namespace halfscope
