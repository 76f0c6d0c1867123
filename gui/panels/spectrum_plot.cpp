// SPDX-License-Identifier: MIT
#include "gui/panels/spectrum_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "gui/widgets/plot_math.h"

namespace halfscope::gui {
namespace {

constexpr float kSample = 3.0f;  ///< pixels between the points of a ridge

/// Returns the height of a share, 0 to 1. The square root lets one value in ten thousand still be
/// seen.
float height_of(float share) { return std::sqrt(std::clamp(share, 0.0f, 1.0f)); }

/// Slopes of a curve through points at distance 1 that never leaves the range of its neighbours
/// (Fritsch and Carlson, "Monotone piecewise cubic interpolation", 1980).
std::vector<float> slopes_of(const std::vector<float>& y) {
  std::vector<float> slopes(y.size(), 0.0f);
  for (size_t i = 1; i + 1 < y.size(); ++i) {
    const float before = y[i] - y[i - 1], after = y[i + 1] - y[i];
    if (before * after > 0.0f) slopes[i] = 2.0f * before * after / (before + after);
  }
  return slopes;
}

/// Returns the outline of a ridge from left to right, with heights above its base in pixels. Bins
/// have their height in the middle; the curve ends at 0 half a bin outside.
std::vector<ImVec2> outline_of(const Ridge& ridge, const SpectrumPlot& plot) {
  std::vector<float> heights(ridge.shares.size() + 2, 0.0f);
  std::transform(ridge.shares.begin(), ridge.shares.end(), heights.begin() + 1, height_of);
  const std::vector<float> slopes = slopes_of(heights);
  const auto pixels = static_cast<float>(plot.pixels_per_power());
  const int pieces = std::clamp(static_cast<int>(std::ceil(pixels / kSample)), 1, 8);
  std::vector<ImVec2> line;
  line.reserve(heights.size() * static_cast<size_t>(pieces));
  for (size_t i = 0; i + 1 < heights.size(); ++i) {
    for (int piece = 0; piece < pieces; ++piece) {
      const float t = static_cast<float>(piece) / static_cast<float>(pieces);
      const float u = 1.0f - t;
      const float y = heights[i] * (1.0f + 2.0f * t) * u * u + slopes[i] * t * u * u +
                      heights[i + 1] * t * t * (3.0f - 2.0f * t) - slopes[i + 1] * t * t * u;
      const double exponent = ridge.low - 0.5 + static_cast<double>(i) + static_cast<double>(t);
      line.push_back({plot.x(exponent), std::max(y, 0.0f) * plot.scale.height});
    }
  }
  line.push_back({plot.x(ridge.low - 0.5 + static_cast<double>(heights.size() - 1)), 0.0f});
  return line;
}

/// Returns the part of the line between two positions, cut there.
std::vector<ImVec2> part_of(const std::vector<ImVec2>& line, float from, float to) {
  std::vector<ImVec2> part;
  if (line.empty() || !(from < to)) return part;
  const auto at = [](ImVec2 a, ImVec2 b, float x) {
    const float t = b.x > a.x ? (x - a.x) / (b.x - a.x) : 0.0f;
    return ImVec2{x, a.y + t * (b.y - a.y)};
  };
  for (size_t i = 0; i < line.size(); ++i) {
    if (i > 0 && line[i - 1].x < from && line[i].x > from) {
      part.push_back(at(line[i - 1], line[i], from));
    }
    if (i > 0 && line[i - 1].x < to && line[i].x > to) part.push_back(at(line[i - 1], line[i], to));
    if (line[i].x >= from && line[i].x <= to) part.push_back(line[i]);
  }
  return part;
}

struct Zone {
  double from, to;
  ImU32 color;
  bool lost;
};

std::array<Zone, 4> zones_of(const SpectrumPlot& plot, const Theme& theme) {
  const ExponentWindow& window = plot.window;
  return {{{-1e6, window.flush, theme.lost, true},
           {window.flush, window.normal, theme.subnormal, false},
           {window.normal, window.overflow, theme.in_range, false},
           {window.overflow, 1e6, theme.lost, true}}};
}

void draw_ridge(Canvas& canvas, const SpectrumPlot& plot, int row, const Theme& theme,
                float scale) {
  const Ridge& ridge = (*plot.ridges)[static_cast<size_t>(row)];
  if (ridge.shares.empty()) return;
  const float base = plot.scale.base(row);
  std::vector<ImVec2> line = outline_of(ridge, plot);
  for (ImVec2& point : line) point.y = base - point.y;
  const bool lit = row == plot.lit || row == plot.selected;
  for (const Zone& zone : zones_of(plot, theme)) {
    const float from = std::max(plot.min.x, plot.x(std::max(zone.from, plot.range.low)));
    const float to = std::min(plot.max.x, plot.x(std::min(zone.to, plot.range.high)));
    const std::vector<ImVec2> part = part_of(line, from, to);
    if (part.size() < 2) continue;
    const double share = (zone.lost ? 0.62 : 0.30) + (lit ? 0.18 : 0.0);
    canvas.area(part, base, with_alpha(mix(theme.plot, zone.color, share), 0.93f));
    if (zone.lost) canvas.polyline(part, with_alpha(zone.color, 0.28f), 5.0f * scale);
    canvas.polyline(part, lit ? mix(zone.color, theme.ink, 0.35) : zone.color,
                    (lit ? 2.0f : 1.25f) * scale);
  }
}

void draw_reference(Canvas& canvas, const SpectrumPlot& plot, int row, const Theme& theme,
                    float scale) {
  if (plot.reference == nullptr || static_cast<size_t>(row) >= plot.reference->size()) return;
  const Ridge& ridge = (*plot.reference)[static_cast<size_t>(row)];
  if (ridge.shares.empty()) return;
  const float base = plot.scale.base(row);
  std::vector<ImVec2> line = outline_of(ridge, plot);
  const auto moved = static_cast<float>(plot.reference_shift * plot.pixels_per_power());
  for (ImVec2& point : line) point = {point.x + moved, base - point.y};
  const std::vector<ImVec2> part = part_of(line, plot.min.x, plot.max.x);
  if (part.size() > 1) canvas.polyline(part, with_alpha(theme.ink, 0.42f), 1.0f * scale);
}

}  // namespace

int RowScale::row_at(float y) const noexcept {
  return static_cast<int>(
      std::ceil(static_cast<double>(y - top - height) / static_cast<double>(pitch) + scroll));
}

void draw_window(Canvas& canvas, const SpectrumPlot& plot, const Theme& theme, const Fonts& fonts,
                 float scale) {
  const ExponentWindow& window = plot.window;
  const auto inside = [&](double exponent) {
    return std::clamp(plot.x(exponent), plot.min.x, plot.max.x);
  };
  const float flush = inside(window.flush), normal = inside(window.normal);
  const float overflow = inside(window.overflow);
  canvas.fill(plot.min, plot.max, theme.plot);
  const float dark = theme.dark ? 1.0f : 0.75f;
  if (overflow > normal) {
    canvas.gradient({normal, plot.min.y}, {overflow, plot.max.y},
                    with_alpha(theme.in_range, 0.30f * dark),
                    with_alpha(theme.in_range, 0.14f * dark));
  }
  if (normal > flush) {
    canvas.gradient({flush, plot.min.y}, {normal, plot.max.y},
                    with_alpha(theme.subnormal, 0.26f * dark),
                    with_alpha(theme.subnormal, 0.12f * dark));
  }
  const Axis axis{.scale = AxisScale::exponent,
                  .low = plot.range.low,
                  .high = plot.range.high,
                  .from = plot.min.x,
                  .to = plot.max.x};
  ImFont& font = *fonts.small;
  const float line_height = text_size(font, "2").y;
  for (const Tick& tick : ticks_of(axis, 62.0 * static_cast<double>(scale), fonts.unicode)) {
    const float x = axis.pixel(tick.value);
    canvas.line({x, plot.max.y}, {x, plot.max.y + 4.0f * scale}, theme.axis);
    const float width = text_size(font, tick.text).x;
    canvas.text(font, {x - width / 2, plot.max.y + 5.0f * scale}, theme.soft, tick.text);
  }
  for (const double edge : {window.flush, window.normal, window.overflow}) {
    if (edge <= plot.range.low || edge >= plot.range.high) continue;
    const ImU32 color =
        edge == window.normal || edge == window.overflow ? theme.in_range : theme.subnormal;
    canvas.line({plot.x(edge), plot.min.y}, {plot.x(edge), plot.max.y}, with_alpha(color, 0.75f),
                scale);
  }
  struct Label {
    float from, to;
    std::vector<std::string> texts;  ///< the longest first
    ImU32 color;
  };
  const Label labels[] = {
      {plot.min.x, flush, {"becomes zero", "zero"}, theme.lost},
      {flush, normal, {"subnormal", "sub."}, theme.subnormal},
      {normal, overflow, {plot.format + " normal range", plot.format}, theme.in_range},
      {overflow, plot.max.x, {"overflows", "over"}, theme.lost}};
  for (const Label& label : labels) {
    for (const std::string& text : label.texts) {
      const float width = text_size(font, text).x;
      if (width + 6.0f * scale > label.to - label.from) continue;
      canvas.text(font,
                  {(label.from + label.to - width) / 2, plot.min.y - line_height - 3.0f * scale},
                  label.color, text);
      break;
    }
  }
}

void draw_ridges(Canvas& canvas, const SpectrumPlot& plot, const Theme& theme, float scale) {
  if (plot.ridges == nullptr) return;
  canvas.push_clip(plot.min, {plot.max.x, plot.max.y + 1.0f});
  const int count = static_cast<int>(plot.ridges->size());
  for (int row = 0; row < count; ++row) {
    const float base = plot.scale.base(row);
    if (base < plot.min.y || base - plot.scale.height > plot.max.y) continue;
    canvas.line({plot.min.x, base}, {plot.max.x, base},
                with_alpha(theme.ink, row == plot.lit || row == plot.selected ? 0.35f : 0.06f));
    draw_ridge(canvas, plot, row, theme, scale);
    draw_reference(canvas, plot, row, theme, scale);
  }
  canvas.pop_clip();
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

}  // namespace halfscope::gui
