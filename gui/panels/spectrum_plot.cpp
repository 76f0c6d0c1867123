// SPDX-License-Identifier: MIT
#include "gui/panels/spectrum_plot.h"

#include <algorithm>
#include <cmath>

#include "gui/widgets/plot_math.h"

namespace halfscope::gui {
namespace {

constexpr double kSample = 3.0;  ///< pixels between the points of a ridge

/// Returns points of an outline in pixels, with the row's base at `base`.
std::vector<ImVec2> in_pixels(const std::vector<RidgePoint>& points, const SpectrumPlot& plot,
                              float base, double moved) {
  std::vector<ImVec2> pixels;
  pixels.reserve(points.size());
  for (const RidgePoint& point : points) {
    pixels.push_back(
        {plot.x(static_cast<double>(point.x) + moved), base - point.y * plot.scale.height});
  }
  return pixels;
}

std::vector<RidgePoint> outline_of(const Ridge& ridge, const SpectrumPlot& plot) {
  return ridge_outline(
      ridge, std::clamp(static_cast<int>(std::ceil(plot.pixels_per_power() / kSample)), 1, 8));
}

ImU32 color_of(ZoneKind kind, const Theme& theme) {
  switch (kind) {
    case ZoneKind::lost:
      return theme.lost;
    case ZoneKind::subnormal:
      return theme.subnormal;
    case ZoneKind::normal:
      break;
  }
  return theme.in_range;
}

void draw_ridge(Canvas& canvas, const SpectrumPlot& plot, int row, const Theme& theme,
                float scale) {
  const Ridge& ridge = (*plot.ridges)[static_cast<size_t>(row)];
  if (ridge.shares.empty()) return;
  const float base = plot.scale.base(row);
  const std::vector<RidgePoint> outline = outline_of(ridge, plot);
  const bool lit = row == plot.lit || row == plot.selected;
  for (const RidgeZone& zone :
       ridge_zones(ridge, plot.window_shift, plot.range.low, plot.range.high)) {
    const std::vector<ImVec2> part =
        in_pixels(outline_part(outline, zone.from, zone.to), plot, base, 0.0);
    if (part.size() < 2) continue;
    const bool lost = zone.kind == ZoneKind::lost;
    const ImU32 color = color_of(zone.kind, theme);
    const double share = (lost ? 0.62 : 0.30) + (lit ? 0.18 : 0.0);
    canvas.area(part, base, with_alpha(mix(theme.plot, color, share), 0.93f));
    if (lost) canvas.polyline(part, with_alpha(color, 0.28f), 5.0f * scale);
    canvas.polyline(part, lit ? mix(color, theme.ink, 0.35) : color, (lit ? 2.0f : 1.25f) * scale);
  }
}

void draw_reference(Canvas& canvas, const SpectrumPlot& plot, int row, const Theme& theme,
                    float scale) {
  if (plot.reference == nullptr || static_cast<size_t>(row) >= plot.reference->size()) return;
  const Ridge& ridge = (*plot.reference)[static_cast<size_t>(row)];
  const double moved = plot.reference_shift;
  const std::vector<RidgePoint> part =
      outline_part(outline_of(ridge, plot), plot.range.low - moved, plot.range.high - moved);
  if (part.size() < 2) return;
  canvas.polyline(in_pixels(part, plot, plot.scale.base(row), moved), with_alpha(theme.ink, 0.42f),
                  1.0f * scale);
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
  const auto zones = zones_of(window, plot.range.low, plot.range.high);
  const auto names = zone_names(plot.format);
  for (size_t i = 0; i < zones.size(); ++i) {
    const float from = std::max(plot.x(zones[i].from), plot.shown_from);
    const float to = std::min(plot.x(zones[i].to), plot.shown_to);
    for (const std::string& text : {names[i].name, names[i].brief}) {
      const float width = text_size(font, text).x;
      if (width + 6.0f * scale > to - from) continue;
      canvas.text(font, {(from + to - width) / 2, plot.min.y - line_height - 3.0f * scale},
                  color_of(zones[i].kind, theme), text);
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

}  // namespace halfscope::gui
