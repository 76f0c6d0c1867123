// SPDX-License-Identifier: MIT
// Number line: the values of several formats as ticks, or as shades where ticks are too dense. The
// wheel zooms, dragging pans.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr int64_t kMostTicks = 600;

struct LineAxis {
  double low, high;
  float left, right;
  /// Returns a pixel just beyond the ends for values far outside.
  float x(double value) const {
    const double part = std::clamp((value - low) / (high - low), -1.0, 2.0);
    return left + static_cast<float>(part) * (right - left);
  }
  double at(float x) const {
    return low + static_cast<double>(x - left) / static_cast<double>(right - left) * (high - low);
  }
};

/// Returns the format's value nearest to x; beyond its range, the last one.
float nearest_value(double x, const FloatFormat& format) {
  const double limited = std::clamp(x, -format.max_finite(), format.max_finite());
  return static_cast<float>(round_to_format(limited, format.without_options()).value);
}

int64_t place_of(double x, const FloatFormat& format) {
  return detail::ulp_place(nearest_value(x, format), format);
}

void draw_row(const LabFrame& frame, const LineAxis& axis, const FloatFormat& format, float top,
              float bottom) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  const int64_t first = place_of(axis.low, format), last = place_of(axis.high, format);
  const auto color_of = [&](float value) {
    const bool normal = std::fabs(static_cast<double>(value)) >= format.min_normal();
    return normal ? theme.in_range : theme.subnormal;
  };
  if (last - first <= kMostTicks) {
    float value = nearest_value(axis.low, format);
    for (int64_t i = first; i <= last; ++i, value = neighbour(value, 1, format)) {
      const float x = std::round(axis.x(static_cast<double>(value)));
      if (x < axis.left || x > axis.right) continue;
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
    if (count <= 0) continue;
    const float strength = std::min(1.0f, 0.35f + 0.2f * std::log2(static_cast<float>(count)));
    list.AddRectFilled({x, top}, {x + 1.0f, bottom},
                       with_alpha(color_of(static_cast<float>(from)), strength));
  }
}

void draw_scale(const LabFrame& frame, const LineAxis& axis, float top, float bottom) {
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

void navigate(FloatLab& lab, const LineAxis& axis) {
  const ImGuiIO& io = ImGui::GetIO();
  constexpr double kMostSpan = 1e39, kLeastSpan = 1e-44;
  if (ImGui::IsItemHovered() && io.MouseWheel != 0.0f) {
    const double factor = std::pow(0.8, static_cast<double>(io.MouseWheel));
    const double at = axis.at(io.MousePos.x);
    const double span = (axis.high - axis.low) * factor;
    if (span < kMostSpan && span > kLeastSpan) {
      lab.line_low = at - (at - axis.low) * factor;
      lab.line_high = at + (axis.high - at) * factor;
    }
  }
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(0, 3.0f)) {
    const double moved = static_cast<double>(io.MouseDelta.x) /
                         static_cast<double>(axis.right - axis.left) * (axis.high - axis.low);
    lab.line_low -= moved;
    lab.line_high -= moved;
  }
}

}  // namespace

void draw_line_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  lab_format(frame);
  const auto look = [&](const char* path, const char* name, double low, double high) {
    if (lab_button(frame, path, name)) {
      lab.line_low = low;
      lab.line_high = high;
    }
  };
  const double number = static_cast<double>(lab.number());
  const double gap = std::isfinite(number) ? ulp_size(number, lab.shown()) : 0.0;
  const double small = lab.shown().min_normal() * 2.0, large = lab.shown().max_finite();
  look("lab/line/all", "-8 to 8", -8.0, 8.0);
  look("lab/line/zero", "around zero", -small, small);
  look("lab/line/max", "the whole format", -1.05 * large, 1.05 * large);
  if (gap > 0.0) look("lab/line/number", "the number", number - 8.0 * gap, number + 8.0 * gap);

  std::vector<FloatFormat> formats;  // from few bits to many; the dense ones are solid lines
  for (const NamedFormat& each : named_formats()) {
    if (each.format.bits() <= 16) formats.insert(formats.begin(), each.format);
  }
  if (std::find(formats.begin(), formats.end(), lab.shown()) == formats.end()) {
    formats.push_back(lab.shown());
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float gutter = frame.px(62);
  const LineAxis axis{lab.line_low, lab.line_high, at.x + gutter,
                      at.x + std::max(ImGui::GetContentRegionAvail().x, frame.px(200))};
  const float row = frame.px(20), below = font_size(*frame.fonts.small) + frame.px(4);
  const float bottom = at.y + row * static_cast<float>(formats.size());
  ImGui::SetCursorScreenPos({axis.left, at.y});
  ImGui::InvisibleButton("lab/line", {axis.right - axis.left, bottom - at.y + below});
  take_wheel();
  track_item("lab/line", fmt::format("{:g} {:g}", lab.line_low, lab.line_high));
  const bool hovered = ImGui::IsItemHovered();
  const bool clicked =
      ImGui::IsItemDeactivated() && ImGui::GetIO().MouseDragMaxDistanceSqr[0] < 9.0f;
  navigate(lab, axis);

  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled({axis.left, at.y}, {axis.right, bottom}, frame.theme.plot);
  draw_scale(frame, axis, at.y, bottom);
  list.PushClipRect({axis.left, at.y}, {axis.right, bottom}, true);
  for (size_t i = 0; i < formats.size(); ++i) {
    const float top = at.y + row * static_cast<float>(i);
    draw_row(frame, axis, formats[i], top + frame.px(4), top + row - frame.px(3));
  }
  if (std::isfinite(number)) {
    const float x = axis.x(number);
    list.AddLine({x, at.y}, {x, bottom}, with_alpha(frame.theme.cursor, 0.8f), frame.scale);
  }
  list.PopClipRect();
  ImFont* font = frame.fonts.small;
  for (size_t i = 0; i < formats.size(); ++i) {
    const bool active = formats[i] == lab.shown();
    list.AddText(
        font, font_size(*font),
        {at.x, std::round(at.y + row * (static_cast<float>(i) + 0.5f) - font_size(*font) / 2)},
        active ? frame.theme.ink : frame.theme.soft,
        fitted(format_name(formats[i]), font, gutter - frame.px(6)).c_str());
  }
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const float over = (mouse.y - at.y) / row;
  if ((hovered || clicked) && over >= 0.0f && over < static_cast<float>(formats.size())) {
    const FloatFormat& format = formats[static_cast<size_t>(over)];
    const float value = nearest_value(axis.at(mouse.x), format);
    if (clicked) {
      lab.set_format(format);
      lab.set_code(detail::code_of_value(value, format));
    }
    ui::tip(fmt::format("{} {}\n{}\none ulp here: {}\n\nClick to use it, wheel to zoom, drag to "
                        "pan.",
                        format_name(format),
                        code_text(detail::code_of_value(value, format), format),
                        value_text(value, format),
                        power_text(std::log2(ulp_size(static_cast<double>(value), format))))
                .c_str());
  }
  label("lab/line/key",
        "Blue: normal numbers. Yellow: subnormal numbers. White: zero and the entered number.",
        frame.fonts.small, frame.theme.soft);
}

}  // namespace halfscope::gui
