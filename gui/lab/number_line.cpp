// SPDX-License-Identifier: MIT
#include "gui/lab/number_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr int64_t kMostTicks = 600;
constexpr int kMostBins = 120;

int64_t place_of(double x, const FloatFormat& format) {
  return detail::ulp_place(nearest_value(x, format), format);
}

}  // namespace

float LineAxis::x(double value) const {
  const double part = std::clamp((value - low) / (high - low), -1.0, 2.0);
  return left + static_cast<float>(part) * (right - left);
}

double LineAxis::at(float x) const {
  return low + static_cast<double>(x - left) / static_cast<double>(right - left) * (high - low);
}

float nearest_value(double x, const FloatFormat& format) {
  const double limited = std::clamp(x, -format.max_finite(), format.max_finite());
  return static_cast<float>(round_to_format(limited, format.without_options()).value);
}

void draw_values(const LabFrame& frame, const LineAxis& axis, const FloatFormat& format, float top,
                 float bottom) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  const int64_t first = place_of(axis.low, format), last = place_of(axis.high, format);
  const auto color_of = [&](float value) {
    const bool normal = std::fabs(static_cast<double>(value)) >= format.min_normal();
    return normal ? theme.in_range : theme.subnormal;
  };
  const auto is_flushed = [&](float value) {
    return format.flush_out && value != 0.0f &&
           std::fabs(static_cast<double>(value)) < format.min_normal();
  };
  if (last - first <= kMostTicks) {
    float value = nearest_value(axis.low, format);
    for (int64_t i = first; i <= last; ++i, value = neighbour(value, 1, format)) {
      const float x = std::round(axis.x(static_cast<double>(value)));
      if (x < axis.left || x > axis.right || is_flushed(value)) continue;
      const bool zero = value == 0.0f;
      list.AddRectFilled({x, zero ? top - frame.px(2) : top},
                         {x + std::max(1.0f, frame.scale), bottom},
                         zero ? theme.ink : color_of(value));
    }
    return;
  }
  // The more values per pixel, the brighter.
  for (float x = axis.left; x < axis.right; x += 1.0f) {
    const double from = axis.at(x);
    const int64_t count = place_of(axis.at(x + 1.0f), format) - place_of(from, format);
    if (count <= 0 || is_flushed(static_cast<float>(from))) continue;
    const float strength = std::min(1.0f, 0.35f + 0.2f * std::log2(static_cast<float>(count)));
    list.AddRectFilled({x, top}, {x + 1.0f, bottom},
                       with_alpha(color_of(static_cast<float>(from)), strength));
  }
}

void draw_line_scale(const LabFrame& frame, const LineAxis& axis, float top, float bottom) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* font = frame.fonts.small;
  const double span = axis.high - axis.low;
  double step = std::pow(10.0, std::floor(std::log10(span / 6.0)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (span / (step * factor) <= 9.0) {
      step *= factor;
      break;
    }
  }
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high; tick += step) {
    const float x = std::round(axis.x(tick));
    list.AddLine({x, top}, {x, bottom}, frame.theme.grid);
    const std::string text = std::fabs(tick) < step * 1e-6 ? "0" : fmt::format("{:.4g}", tick);
    const float width = text_width(font, text);
    list.AddText(font, font_size(*font),
                 {std::clamp(std::round(x - width / 2), axis.left, axis.right - width),
                  bottom + frame.px(2)},
                 frame.theme.soft, text.c_str());
  }
}

void draw_bins(const LabFrame& frame, std::string_view path, const BinPicture& picture, float width,
               float height) {
  const FloatFormat& format = frame.lab.shown();
  const Theme& theme = frame.theme;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = height > frame.px(160) ? frame.fonts.text : frame.fonts.small;
  const float line = font_size(*font) + frame.px(3);
  list.AddRectFilled(at, {at.x + width, at.y + height}, theme.plot);
  const double center = picture.from.value_or(static_cast<double>(picture.chosen));
  const float middle = nearest_value(center, format);
  double gap = std::max(static_cast<double>(neighbour(middle, 1, format)) - center,
                        center - static_cast<double>(neighbour(middle, -1, format)));
  if (std::isinf(gap)) gap = ulp_size(center, format);  // next to infinity
  int bins = 0;
  if (std::isfinite(center) && std::isfinite(picture.exact) && gap > 0.0) {
    const double reach = std::max(3.2 * gap, 1.25 * std::fabs(picture.exact - center));
    const LineAxis axis{center - reach, center + reach, at.x, at.x + width};
    const float rail = at.y + std::round(std::max(height * 0.5f, height - frame.px(90))),
                top = at.y + line + frame.px(8);
    list.PushClipRect(at, {at.x + width, at.y + height}, true);
    float value = middle;
    for (int i = 0; i < kMostBins / 2 && static_cast<double>(value) > axis.low; ++i) {
      const float next = neighbour(value, -1, format);
      if (next == value || std::isinf(next)) break;
      value = next;
    }
    float label_end = at.x;
    for (; bins < kMostBins && static_cast<double>(value) < axis.high; ++bins) {
      const double here = static_cast<double>(value);
      const double before = static_cast<double>(neighbour(value, -1, format));
      const double after = static_cast<double>(neighbour(value, +1, format));
      const float x = std::round(axis.x(here));
      const float from = std::isfinite(before) ? axis.x((before + here) / 2.0) : x;
      const float to = std::isfinite(after) ? axis.x((here + after) / 2.0) : x;
      const bool target = value == picture.chosen;
      const ImU32 fill = target ? with_alpha(theme.accent, 0.32f)
                                : with_alpha(theme.soft, bins % 2 == 0 ? 0.10f : 0.20f);
      list.AddRectFilled({from, top}, {to, rail}, fill);
      list.AddLine({x, top}, {x, rail}, target ? theme.accent : theme.axis,
                   target ? frame.px(2) : frame.scale);
      const std::string text = brief_text(here, 6);
      const float half = text_width(font, text) / 2;
      if (x - half > label_end + frame.px(6) && x + half < at.x + width) {
        lab_centered(font, x, at.y + frame.px(4), target ? theme.ink : theme.soft, text);
        label_end = x + half;
      }
      if (after == here || std::isinf(after)) {
        ++bins;
        break;
      }
      value = static_cast<float>(after);
    }
    const float end = axis.x(picture.exact), y = rail + frame.px(14);
    const ImU32 color = theme.lines[2];
    const auto inside = [&](float x, std::string_view text) {
      const float half = text_width(font, text) / 2 + frame.px(4);
      return std::clamp(x, at.x + half, std::max(at.x + half, at.x + width - half));
    };
    list.AddLine({end, top}, {end, y}, with_alpha(color, 0.9f), frame.px(1.5f));
    float label_y = y + frame.px(8);
    float label_x = end;
    if (picture.from) {
      const float x = axis.x(*picture.from);
      const float tip = end >= x ? -frame.px(6) : frame.px(6);
      list.AddCircleFilled({x, y}, frame.px(5), theme.lines[1]);
      lab_centered(font, inside(x, "sum"), label_y, theme.ink, "sum");
      list.AddLine({x, y}, {end, y}, color, frame.px(2.5f));
      list.AddTriangleFilled({end, y}, {end + tip, y - frame.px(4)}, {end + tip, y + frame.px(4)},
                             color);
      label_x = (x + end) / 2;
      label_y += line;
    } else {
      list.AddTriangleFilled({end, rail}, {end + frame.px(6), y}, {end - frame.px(6), y}, color);
    }
    lab_centered(font, inside(label_x, picture.label), label_y, color, picture.label);
    list.PopClipRect();
  } else {
    lab_centered(font, at.x + width / 2, at.y + (height - line) / 2, theme.soft,
                 "Not a finite number: there are no neighbors to draw.");
  }
  ImGui::Dummy({width, height});
  track_item(path, fmt::format("{} bins", bins));
  ui::tip(
      "Numbers of the format, to scale. Every exact result in a shaded bin is rounded to the "
      "number in its middle.");
}

}  // namespace halfscope::gui
