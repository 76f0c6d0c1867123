// SPDX-License-Identifier: MIT
// Ranges of static scales: against sorted values, a search over all ranges, and the published form
// of the entropy method, written here a second time.
#include "core/numeric/scaling/range_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace halfscope {
namespace {

enum class Kind { normal, heavy, positive };

std::vector<float> some(Kind kind, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.3f);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<float> values(count);
  for (float& x : values) {
    x = normal(random);
    if (kind == Kind::positive) x = std::max(0.0f, x);
    if (kind == Kind::heavy && uniform(random) < 0.002f) x *= 40.0f;
  }
  return values;
}

MagnitudeHistogram histogram(std::span<const float> values) {
  MagnitudeHistogram seen;
  seen.add(values);
  return seen;
}

std::vector<float> sorted_magnitudes(std::vector<float> values) {
  for (float& x : values) x = std::fabs(x);
  std::sort(values.begin(), values.end());
  return values;
}

TEST(MagnitudeHistogram, CountsWhatItIsGiven) {
  const float inf = std::numeric_limits<float>::infinity();
  MagnitudeHistogram seen;
  seen.add(std::vector{0.0f, -0.0f, 1.0f, -1.0f, 1e-40f, inf, std::nanf("")});
  seen.add(std::vector{-3.5f, 3e38f});
  EXPECT_EQ(seen.count(), 7);
  EXPECT_EQ(seen.zeros(), 2);
  EXPECT_EQ(seen.not_finite(), 2);
  EXPECT_EQ(seen.largest(), 3e38f);
  int64_t inside = 0;
  float before = 0.0f;
  for (const MagnitudeHistogram::Bin& bin : seen.bins()) {
    EXPECT_LT(before, bin.smallest);
    EXPECT_LT(bin.smallest, bin.middle);
    EXPECT_LT(bin.middle, bin.largest);
    EXPECT_LE(static_cast<double>(bin.largest) / static_cast<double>(bin.smallest),
              bin.smallest < 1e-38f ? 2.0 : 1.0 + 1.0 / 2048);
    before = bin.largest;
    inside += bin.count;
  }
  EXPECT_EQ(inside, 5);
}

TEST(MagnitudeHistogram, ShareAboveIsThatOfTheValues) {
  const std::vector<float> values = some(Kind::normal, 20000, 3);
  const MagnitudeHistogram seen = histogram(values);
  for (const float range : {0.5f, 1.0f, 3.0f}) {
    const auto above =
        std::count_if(values.begin(), values.end(), [&](float x) { return std::fabs(x) > range; });
    EXPECT_NEAR(seen.share_above(range), static_cast<double>(above) / 20000.0, 1e-3);
  }
  EXPECT_EQ(seen.share_above(seen.largest()), 0.0);
}

TEST(RangeChoice, MaxAndPercentilesAreThoseOfTheSortedMagnitudes) {
  for (const Kind kind : {Kind::normal, Kind::heavy, Kind::positive}) {
    const std::vector<float> values = some(kind, 50000, 7);
    const std::vector<float> sorted = sorted_magnitudes(values);
    const MagnitudeHistogram seen = histogram(values);
    EXPECT_EQ(chosen_range(seen, {}, kInt8Format), sorted.back());
    for (const double percentile : {50.0, 99.0, 99.99, 100.0}) {
      const auto at = static_cast<size_t>(std::ceil(percentile / 100.0 * 50000.0)) - 1;
      const float range =
          chosen_range(seen, {RangeMethod::Kind::percentile, percentile}, kInt8Format);
      EXPECT_GE(range, sorted[at]);
      EXPECT_LE(range, sorted[at] * (1.0f + 1.0f / 2048));
    }
  }
}

/// Squared error of whole numbers up to `most`, in double.
double error_of(const std::vector<float>& values, double range, double most) {
  const double scale = range / most;
  double sum = 0.0;
  for (const float x : values) {
    const double code = std::clamp(std::nearbyint(static_cast<double>(x) / scale), -most, most);
    const double error = static_cast<double>(x) - code * scale;
    sum += error * error;
  }
  return sum;
}

TEST(RangeChoice, MseIsAsGoodAsTheBestOfAllRanges) {
  for (const Kind kind : {Kind::normal, Kind::heavy, Kind::positive}) {
    for (const auto& [format, most] : {std::pair{kInt8Format, 127.0}, {kInt4Format, 7.0}}) {
      const std::vector<float> values = some(kind, 20000, 5);
      const MagnitudeHistogram seen = histogram(values);
      double least = std::numeric_limits<double>::infinity();
      for (int i = 1; i <= 1000; ++i) {
        least = std::min(least, error_of(values, seen.largest() * i / 1000.0, most));
      }
      const float range = chosen_range(seen, {RangeMethod::Kind::mse}, format);
      EXPECT_LE(error_of(values, range, most), 1.01 * least);
    }
  }
}

/// As in S. Migacz's slides: 2048 bins, 128 levels of as many bins each. Returns the divergence by
/// the number of bins that are kept.
std::vector<double> divergences(const std::vector<float>& values) {
  constexpr size_t kBins = 2048, kLevels = 128;
  const std::vector<float> sorted = sorted_magnitudes(values);
  std::vector<double> bins(kBins);
  for (const float x : sorted) {
    if (x == 0.0f) continue;
    bins[std::min(kBins - 1, static_cast<size_t>(x / sorted.back() * kBins))] += 1.0;
  }
  std::vector<double> all(kBins + 1, std::numeric_limits<double>::infinity());
  for (size_t i = kLevels; i <= kBins; ++i) {
    std::vector<double> p(bins.begin(), bins.begin() + static_cast<int64_t>(i)), q(i);
    p.back() += std::accumulate(bins.begin() + static_cast<int64_t>(i), bins.end(), 0.0);
    for (size_t level = 0; level < kLevels; ++level) {
      const size_t first = level * i / kLevels, end = (level + 1) * i / kLevels;
      double sum = 0.0, used = 0.0;
      for (size_t j = first; j < end; ++j) {
        sum += bins[j];
        used += bins[j] > 0.0 ? 1.0 : 0.0;
      }
      for (size_t j = first; j < end; ++j) q[j] = bins[j] > 0.0 ? sum / used : 0.0;
    }
    const double all_p = std::accumulate(p.begin(), p.end(), 0.0);
    const double all_q = std::accumulate(q.begin(), q.end(), 0.0);
    double divergence = 0.0;
    for (size_t j = 0; j < i; ++j) {
      if (p[j] == 0.0) continue;
      divergence += q[j] == 0.0 ? std::numeric_limits<double>::infinity()
                                : p[j] / all_p * std::log(p[j] / all_p / (q[j] / all_q));
    }
    all[i] = divergence;
  }
  return all;
}

TEST(RangeChoice, EntropyIsThatOfThePublishedMethod) {
  for (const Kind kind : {Kind::normal, Kind::heavy, Kind::positive}) {
    const std::vector<float> values = some(kind, 200000, 11);
    const MagnitudeHistogram seen = histogram(values);
    const float range = chosen_range(seen, {RangeMethod::Kind::entropy}, kInt8Format);
    const std::vector<double> published = divergences(values);
    const auto kept = static_cast<size_t>(std::lround(2048.0f * range / seen.largest()));
    // Codes are rounded to nearest here and cut into equal parts there, and the minimum is flat.
    const double least = *std::min_element(published.begin(), published.end());
    EXPECT_LE(published.at(kept), 1.1 * least + 1e-4);
    // Else any range would do.
    if (kind == Kind::heavy) {
      EXPECT_GT(published.at(2048), 2.0 * least);
    }
  }
  // Few large values far away are given up.
  const std::vector<float> heavy = some(Kind::heavy, 200000, 11);
  const MagnitudeHistogram seen = histogram(heavy);
  EXPECT_LT(chosen_range(seen, {RangeMethod::Kind::entropy}, kInt8Format), 0.5f * seen.largest());
}

TEST(RangeChoice, ZerosHaveAScaleOfOne) {
  const MagnitudeHistogram zeros = histogram(std::vector<float>(10));
  for (const char* method : {"max", "percentile", "mse", "entropy"}) {
    const float range = chosen_range(zeros, parse_range_method(method).value(), kInt8Format);
    EXPECT_EQ(range, 0.0f) << method;
  }
  EXPECT_EQ(static_scale(0.0f, kInt8Format), 1.0f);
  EXPECT_EQ(static_scale(127.0f, kInt8Format), 1.0f);
  EXPECT_EQ(static_scale(448.0f, kE4m3fn), 1.0f);
  EXPECT_EQ(static_scale(1e-44f, kInt8Format), std::numeric_limits<float>::min());
}

TEST(RangeChoice, MethodsHaveTexts) {
  for (const char* text : {"max", "percentile:99.9", "percentile:100", "mse", "entropy"}) {
    EXPECT_EQ(range_method_name(parse_range_method(text).value()), text);
  }
  EXPECT_EQ(range_method_name(parse_range_method("percentile").value()), "percentile:99.99");
  for (const char* text : {"", "min", "percentile:", "percentile:0", "percentile:101",
                           "percentile:9x", "mse:2", "entropy:", "Max"}) {
    EXPECT_FALSE(parse_range_method(text)) << text;
  }
}

}  // namespace
}  // namespace halfscope
