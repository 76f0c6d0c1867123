// SPDX-License-Identifier: MIT
// The histogram's picture: bars, zones, outlines and tooltips.
#include "gui/panels/histogram_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"

namespace halfscope::gui {
namespace {

/// log2 of the ends of a format's range.
struct Zones {
  double flush, normal, overflow;
  explicit Zones(const FloatFormat& format) {
    const RangeLimits limits = range_limits(format);
    flush = std::log2(limits.flush);
    normal = std::log2(limits.normal);
    overflow = std::log2(limits.overflow);
  }
};

/// Heights of bars, 0 to 1.
class Heights {
 public:
  Heights(const HistogramPlot& plot, double highest)
      : log_(plot.log_counts), highest_(highest), least_(std::min(1e-6, highest * 0.1)) {
    // One element of the tensor is the lower end of the logarithmic axis.
    if (plot.stats.n > 0) {
      least_ = std::min(0.5 / static_cast<double>(plot.stats.n), highest * 0.1);
    }
  }
  float of(double share) const noexcept {
    if (!(share > 0.0) || !(highest_ > 0.0)) return 0.0f;
    if (!log_) return static_cast<float>(share / highest_);
    return static_cast<float>(
        std::max(0.0, std::log10(share / least_) / std::log10(highest_ / least_)));
  }
  bool log() const noexcept { return log_; }
  double least() const noexcept { return least_; }

 private:
  bool log_;
  double highest_, least_;
};

double share_of(const TensorStats& stats, int bin) noexcept {
  return stats.n > 0 ? static_cast<double>(stats.exponents[static_cast<size_t>(bin)]) /
                           static_cast<double>(stats.n)
                     : 0.0;
}

double highest_share(const TensorStats& stats) noexcept {
  const int64_t most = *std::max_element(stats.exponents.begin(), stats.exponents.end());
  return stats.n > 0 ? static_cast<double>(most) / static_cast<double>(stats.n) : 0.0;
}

/// Draws a line along the tops of the bars.
void draw_outline(Canvas& canvas, const ExponentAxis& axis, float top, float bottom,
                  const TensorStats& stats, double shift, const Heights& heights, ImU32 color,
                  float thickness) {
  std::vector<ImVec2> points;
  const auto flush = [&] {
    if (points.size() > 1) {
      canvas.polyline(points, color, thickness);
    }
    points.clear();
  };
  for (int bin = 0; bin < kExponentBins; ++bin) {
    const double from = bin + kMinExponentBin + shift;
    const double share = share_of(stats, bin);
    if (share == 0.0 || from + 1.0 <= axis.low || from >= axis.high) {
      if (!points.empty()) points.push_back({points.back().x, bottom});
      flush();
      continue;
    }
    const float y = bottom - (bottom - top) * heights.of(share);
    if (points.empty()) points.push_back({axis.x(from), bottom});
    points.push_back({axis.x(from), y});
    points.push_back({axis.x(from + 1.0), y});
  }
  flush();
}

void draw_zone(Canvas& canvas, const ExponentAxis& axis, double from, double to, ImVec2 min,
               ImVec2 max, ImU32 color) {
  const float left = axis.x(from), right = axis.x(to);
  if (right > left) canvas.fill({left, min.y}, {right, max.y}, color);
}

void zone_name(Canvas& canvas, const ExponentAxis& axis, double from, double to, float y,
               const char* text, ImU32 color, ImFont* font, float scale) {
  const float left = axis.x(from), right = axis.x(to);
  const float width = text_width(font, text);
  if (right - left < width + 8.0f * scale) return;
  canvas.text(*font, {(left + right - width) / 2, y}, color, text);
}

void draw_axis(Canvas& canvas, const ExponentAxis& axis, ImVec2 min, ImVec2 max, const Theme& theme,
               const Fonts& fonts, float scale) {
  const double pixels = axis.pixels_per_power();
  int step = 1;
  for (const int each : {1, 2, 4, 8, 16, 32, 64}) {
    step = each;
    if (each * pixels >= 34.0 * static_cast<double>(scale)) break;
  }
  ImFont* font = fonts.small;
  const int first = static_cast<int>(std::ceil(axis.low / step)) * step;
  for (int e = first; e <= static_cast<int>(axis.high); e += step) {
    const float x = std::round(axis.x(e));
    canvas.line({x, min.y}, {x, max.y}, theme.grid);
    canvas.line({x, max.y}, {x, max.y + 3.0f * scale}, theme.axis);
    const std::string text = std::to_string(e);
    const float width = text_width(font, text);
    const float place = std::clamp(x - width / 2, min.x, max.x - width);
    canvas.text(*font, {place, max.y + 4.0f * scale}, theme.soft, text);
  }
}

}  // namespace

float ExponentAxis::x(double exponent) const noexcept {
  const double place = (std::clamp(exponent, low, high) - low) * pixels_per_power();
  return left + static_cast<float>(place);
}

ExponentAxis fit_exponents(const TensorStats& stats, double shift) {
  ExponentAxis axis;
  int64_t total = 0, seen = 0;
  for (const int64_t count : stats.exponents) total += count;
  for (int bin = 0; bin < kExponentBins; ++bin) {
    const int64_t count = stats.exponents[static_cast<size_t>(bin)];
    if (count == 0) continue;
    const double exponent = bin + kMinExponentBin;
    seen += count;
    if (static_cast<double>(seen) >= 0.001 * static_cast<double>(total)) {
      axis.low = std::min({axis.low, exponent - 1.0, exponent + shift - 1.0});
    }
    axis.high = std::max({axis.high, exponent + 2.0, exponent + shift + 2.0});
  }
  axis.low = std::floor(std::max(axis.low, -152.0));
  axis.high = std::ceil(std::min(axis.high, 160.0));
  return axis;
}

void draw_band(Canvas& canvas, const ExponentAxis& axis, ImVec2 min, ImVec2 max,
               const FloatFormat& format, bool active, const Theme& theme) {
  const Zones zones(format);
  const ImU32 color = active ? theme.in_range : theme.axis;
  const float height = max.y - min.y;
  const float inset = std::round(height * 0.22f);
  const float middle = std::round(height * 0.36f);
  canvas.fill({axis.x(zones.flush), min.y + middle}, {axis.x(zones.normal), max.y - middle},
              active ? theme.subnormal : with_alpha(theme.outline, 0.30f));
  const float left = axis.x(zones.normal), right = axis.x(zones.overflow);
  canvas.fill({left, min.y + inset}, {right, max.y - inset}, color, height * 0.12f);
  // The range continues beyond the axis.
  const float tip = (max.y - min.y) * 0.28f, y = (min.y + max.y) / 2;
  if (zones.normal < axis.low) {
    const float x = axis.left + tip;
    const ImVec2 points[] = {{x, y}, {x + tip, y - tip}, {x + tip, y + tip}};
    canvas.polygon(points, theme.plot);
  }
  if (zones.overflow > axis.high) {
    const float x = axis.right - tip;
    const ImVec2 points[] = {{x, y}, {x - tip, y + tip}, {x - tip, y - tip}};
    canvas.polygon(points, theme.plot);
  }
}

void draw_bars(Canvas& canvas, const ExponentAxis& axis, ImVec2 min, ImVec2 max,
               const HistogramPlot& plot, const Theme& theme, const Fonts& fonts, float scale) {
  const Zones zones(plot.lens);
  canvas.fill(min, max, theme.plot);
  draw_zone(canvas, axis, axis.low, zones.flush, min, max, theme.zone_lost);
  draw_zone(canvas, axis, zones.flush, zones.normal, min, max, theme.zone_subnormal);
  draw_zone(canvas, axis, zones.overflow, axis.high, min, max, theme.zone_lost);
  draw_axis(canvas, axis, min, max, theme, fonts, scale);

  double highest = highest_share(plot.stats);
  if (plot.other != nullptr) highest = std::max(highest, highest_share(*plot.other));
  const Heights heights(plot, highest);
  const float name_row = font_size(*fonts.small) + 4.0f * scale;
  const float top = min.y + name_row, bottom = max.y;

  canvas.push_clip(min, max);
  const Axis exponents{.scale = AxisScale::exponent,
                       .low = axis.low,
                       .high = axis.high,
                       .from = axis.left,
                       .to = axis.right};
  const Axis shares{.scale = heights.log() ? AxisScale::log10 : AxisScale::linear,
                    .low = heights.log() ? heights.least() : 0.0,
                    .high = highest,
                    .from = bottom,
                    .to = top};
  canvas.begin_group("values/bars", &exponents, &shares);
  const float gap = axis.pixels_per_power() >= 4.0 ? std::floor(scale + 0.25f) : 0.0f;
  for (int bin = 0; bin < kExponentBins; ++bin) {
    const double share = share_of(plot.stats, bin);
    const double from = bin + kMinExponentBin + plot.shift, to = from + 1.0;
    if (share == 0.0 || to <= axis.low || from >= axis.high) continue;
    const float height = std::max((bottom - top) * heights.of(share), scale);
    // Split the bar where a zone begins inside the bin.
    struct Part {
      double end;
      ImU32 color;
    };
    const std::array<Part, 4> parts{Part{zones.flush, theme.lost},
                                    Part{zones.normal, theme.subnormal},
                                    Part{zones.overflow, theme.in_range}, Part{1e9, theme.lost}};
    double start = from;
    for (const Part& part : parts) {
      const double end = std::min(part.end, to);
      if (end <= start) continue;
      float right = axis.x(end);
      if (end == to) right = std::max(right - gap, axis.x(start) + 0.5f);
      canvas.fill({axis.x(start), bottom - height}, {right, bottom}, part.color);
      start = end;
    }
  }
  canvas.end_group();
  if (plot.shift != 0.0) {
    draw_outline(canvas, axis, top, bottom, plot.stats, 0.0, heights, theme.outline, scale);
  }
  if (plot.other != nullptr) {
    draw_outline(canvas, axis, top, bottom, *plot.other, plot.other_shift, heights,
                 plot.other_color, 1.5f * scale);
  }
  for (const double edge : {zones.flush, zones.normal, zones.overflow}) {
    if (edge <= axis.low || edge >= axis.high) continue;
    const float x = std::round(axis.x(edge)) + 0.5f;
    canvas.line({x, min.y}, {x, max.y}, theme.axis, scale);
  }
  const float y = min.y + 2.0f * scale;
  zone_name(canvas, axis, axis.low, zones.flush, y, "becomes 0", theme.bad, fonts.small, scale);
  zone_name(canvas, axis, zones.flush, zones.normal, y, "subnormal", theme.warn, fonts.small,
            scale);
  zone_name(canvas, axis, zones.normal, zones.overflow, y, "in range", theme.accent, fonts.small,
            scale);
  zone_name(canvas, axis, zones.overflow, axis.high, y,
            plot.lens.saturates() ? "saturates" : "overflow", theme.bad, fonts.small, scale);
  canvas.pop_clip();
  canvas.line({min.x, max.y}, {max.x, max.y}, theme.axis, scale);

  if (highest > 0.0) {  // the share of the highest bar, left of the plot
    const std::string most = percent(highest);
    const float width = text_width(fonts.small, most);
    canvas.text(*fonts.small, {min.x - width - 6.0f * scale, top - font_size(*fonts.small) * 0.5f},
                theme.soft, most);
    const std::string least = heights.log() ? percent(heights.least()) : "0";
    const float least_width = text_width(fonts.small, least);
    canvas.text(*fonts.small,
                {min.x - least_width - 6.0f * scale, bottom - font_size(*fonts.small)}, theme.soft,
                least);
    if (heights.log()) {
      const char* text = "log";
      canvas.text(*fonts.small,
                  {min.x - text_width(fonts.small, text) - 6.0f * scale,
                   (top + bottom - font_size(*fonts.small)) / 2},
                  theme.faint, text);
    }
  }
}

namespace {

/// Returns how the lens format represents values from 2^from to 2^(from + 1).
std::string fate_text(const FloatFormat& lens, double from) {
  const Zones zones(lens);
  const std::string name = format_name(lens);
  const double to = from + 1.0;
  if (to <= zones.flush) return "rounded to zero in " + name;
  if (from >= zones.overflow) return "beyond the largest number of " + name;
  if (from < zones.flush) return "partly rounded to zero in " + name;
  if (to > zones.overflow + 0.01) return "partly beyond the largest number of " + name;
  if (from >= lens.min_exponent()) return "normal in " + name;
  const int lost = lens.min_exponent() - static_cast<int>(std::floor(from));
  return fmt::format("subnormal in {}: {} significant bits instead of {}", name,
                     std::max(1, lens.mantissa_bits + 1 - lost), lens.mantissa_bits + 1);
}

}  // namespace

std::string bin_text(const HistogramPlot& plot, double exponent) {
  const int bin = static_cast<int>(std::floor(exponent - plot.shift)) - kMinExponentBin;
  if (bin < 0 || bin >= kExponentBins) return "";
  const double from = bin + kMinExponentBin + plot.shift;
  const int64_t count = plot.stats.exponents[static_cast<size_t>(bin)];
  std::string text =
      fmt::format("{} to {}\n{} elements, {}", power_text(from), power_text(from + 1.0),
                  grouped(count), percent(share_of(plot.stats, bin)));
  text += "\n" + fate_text(plot.lens, from);
  if (plot.shift != 0.0) {
    text += fmt::format("\nrecorded as {} to {}", power_text(bin + kMinExponentBin),
                        power_text(bin + kMinExponentBin + 1));
  }
  return text;
}

}  // namespace halfscope::gui
