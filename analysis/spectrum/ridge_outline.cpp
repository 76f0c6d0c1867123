// SPDX-License-Identifier: MIT
#include "analysis/spectrum/ridge_outline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace halfscope {
namespace {

constexpr double kRoom = 2.0;         ///< powers of two beside the values
constexpr double kFarEdge = 14.0;     ///< a window's edge further away is not shown
constexpr double kLeastWidth = 24.0;  ///< powers of two
constexpr size_t kFewRows = 5;        ///< up to one row in five may begin left of the chart
constexpr float kThinTail = 1e-4f;    ///< share of a tensor's values that may be off the chart

std::vector<float> slopes_of(const std::vector<float>& y) {
  std::vector<float> slopes(y.size(), 0.0f);
  for (size_t i = 1; i + 1 < y.size(); ++i) {
    const float before = y[i] - y[i - 1], after = y[i + 1] - y[i];
    if (before * after > 0.0f) slopes[i] = 2.0f * before * after / (before + after);
  }
  return slopes;
}

/// Widens the range to all but the thin tails of the ridge, and adds its low end to `lows`.
void include(const Ridge& ridge, ExponentRange& range, std::vector<double>& lows) {
  float below = 0.0f, above = 0.0f;
  size_t first = 0, last = ridge.shares.size();
  while (first < last && below + ridge.shares[first] < kThinTail) below += ridge.shares[first++];
  while (last > first && above + ridge.shares[last - 1] < kThinTail) above += ridge.shares[--last];
  if (first == last) return;
  lows.push_back(static_cast<double>(ridge.low) + static_cast<double>(first));
  range.low = std::min(range.low, lows.back());
  range.high = std::max(range.high, static_cast<double>(ridge.low) + static_cast<double>(last));
}

}  // namespace

std::vector<RidgePoint> ridge_outline(const Ridge& ridge, int points_per_bin) {
  std::vector<RidgePoint> line;
  if (ridge.shares.empty()) return line;
  std::vector<float> heights(ridge.shares.size() + 2, 0.0f);
  std::transform(ridge.shares.begin(), ridge.shares.end(), heights.begin() + 1,
                 [](float share) { return std::sqrt(std::clamp(share, 0.0f, 1.0f)); });
  const std::vector<float> slopes = slopes_of(heights);
  line.reserve(heights.size() * static_cast<size_t>(points_per_bin));
  const float start = static_cast<float>(ridge.low) - 0.5f;
  for (size_t i = 0; i + 1 < heights.size(); ++i) {
    for (int point = 0; point < points_per_bin; ++point) {
      const float t = static_cast<float>(point) / static_cast<float>(points_per_bin);
      const float u = 1.0f - t;
      const float y = heights[i] * (1.0f + 2.0f * t) * u * u + slopes[i] * t * u * u +
                      heights[i + 1] * t * t * (3.0f - 2.0f * t) - slopes[i + 1] * t * t * u;
      line.push_back({start + static_cast<float>(i) + t, std::max(y, 0.0f)});
    }
  }
  line.push_back({start + static_cast<float>(heights.size() - 1), 0.0f});
  return line;
}

std::vector<RidgePoint> outline_part(const std::vector<RidgePoint>& outline, double from,
                                     double to) {
  std::vector<RidgePoint> part;
  const auto low = static_cast<float>(from), high = static_cast<float>(to);
  if (!(low < high)) return part;
  const auto at = [](RidgePoint a, RidgePoint b, float x) {
    return RidgePoint{x, a.y + (x - a.x) / (b.x - a.x) * (b.y - a.y)};
  };
  for (size_t i = 0; i < outline.size(); ++i) {
    for (const float edge : {low, high}) {
      if (i > 0 && outline[i - 1].x < edge && outline[i].x > edge) {
        part.push_back(at(outline[i - 1], outline[i], edge));
      }
    }
    if (outline[i].x >= low && outline[i].x <= high) part.push_back(outline[i]);
  }
  return part;
}

std::array<RidgeZone, 4> zones_of(const ExponentWindow& window, double low, double high) noexcept {
  const auto inside = [&](double exponent) { return std::clamp(exponent, low, high); };
  const double flush = inside(window.flush), normal = inside(window.normal);
  const double overflow = inside(window.overflow);
  return {{{ZoneKind::lost, low, flush},
           {ZoneKind::subnormal, flush, normal},
           {ZoneKind::normal, normal, overflow},
           {ZoneKind::lost, overflow, high}}};
}

std::vector<RidgeZone> ridge_zones(const Ridge& ridge, double shift, double low, double high) {
  std::vector<RidgeZone> zones;
  const size_t bins = ridge.shares.size();
  const auto edge = [&](size_t bin) {
    return std::clamp(static_cast<double>(ridge.low) + static_cast<double>(bin), low, high);
  };
  for (size_t begin = 0, end = 0; begin < bins; begin = end) {
    const uint8_t which = ridge.window_of[begin];
    ExponentWindow window = ridge.windows[which];
    window = {window.flush - shift, window.normal - shift, window.overflow - shift};
    bool below = false, above = false;
    for (; end < bins && (ridge.window_of[end] == which || ridge.shares[end] == 0.0f); ++end) {
      const double middle = static_cast<double>(ridge.low) + static_cast<double>(end) + 0.5;
      if (ridge.shares[end] == 0.0f) continue;
      below = below || middle < window.flush;
      above = above || middle > window.overflow;
    }
    std::array<RidgeZone, 4> parts =
        zones_of(window, begin == 0 ? low : edge(begin), end == bins ? high : edge(end));
    const bool integers = window.flush == window.normal;
    if (!below) parts[0].kind = parts[integers ? 2 : 1].kind;
    if (!above) parts[3].kind = parts[2].kind;
    for (const RidgeZone& part : parts) {
      if (part.from < part.to) zones.push_back(part);
    }
  }
  return zones;
}

std::array<ZoneName, 4> zone_names(const FloatFormat& format) {
  const std::string name = format_name(format);
  const bool integers = format.evenly_spaced();
  return {{{"becomes zero", "zero"},
           {"subnormal", "sub."},
           {integers ? name + " codes" : name + " normal range", name},
           {integers ? "clipped" : "overflows", integers ? "clip" : "over"}}};
}

std::vector<int> rows_to_label(const std::vector<double>& weights, float pitch, float line_height) {
  std::vector<int> order(weights.size()), chosen;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return weights[static_cast<size_t>(a)] > weights[static_cast<size_t>(b)];
  });
  const int apart = std::max(1, static_cast<int>(std::ceil(line_height / pitch)));
  std::vector<bool> taken(weights.size(), false);
  for (const int row : order) {
    if (!(weights[static_cast<size_t>(row)] > 0.0)) break;
    const int from = std::max(0, row - apart + 1);
    const int to = std::min(static_cast<int>(weights.size()) - 1, row + apart - 1);
    if (std::any_of(taken.begin() + from, taken.begin() + to + 1, [](bool on) { return on; })) {
      continue;
    }
    taken[static_cast<size_t>(row)] = true;
    chosen.push_back(row);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

ExponentRange fit_range(const Spectrum& spectrum, SpectrumChart chart, const Lens& lens,
                        const ExponentWindow& window) {
  ExponentRange range{1e9, -1e9};
  std::vector<double> lows;
  for (size_t layer = 0; layer < spectrum.layers.size(); ++layer) {
    const int one[] = {static_cast<int>(layer)};
    include(make_ridge(spectrum, one, chart, lens, 0.0), range, lows);
  }
  // Few rows with far smaller values than the others would press all others together. Values that
  // are far below the window are lost wherever they are.
  std::sort(lows.begin(), lows.end());
  if (!lows.empty()) {
    const double common = lows[lows.size() / kFewRows];
    range.low = std::max(range.low, std::min(common, window.flush - kFarEdge));
  }
  if (range.low > range.high) {
    range = {std::max(window.flush, -30.0), std::min(window.overflow, 20.0)};
  }
  for (const double edge : {window.flush - kRoom, window.overflow + kRoom}) {
    if (edge < range.low && range.low - edge < kFarEdge) range.low = edge;
    if (edge > range.high && edge - range.high < kFarEdge) range.high = edge;
  }
  const double missing = std::max(0.0, kLeastWidth - (range.high - range.low));
  return {range.low - kRoom - missing / 2.0, range.high + kRoom + missing / 2.0};
}

}  // namespace halfscope
