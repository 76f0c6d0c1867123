// SPDX-License-Identifier: MIT
// Number line: the values of several formats as ticks, or as shades where ticks are too dense. The
// wheel zooms, dragging pans.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/statistics/ulp.h"
#include "gui/lab/number_line.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

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
  const float gutter = frame.px(96);
  const LineAxis axis{lab.line_low, lab.line_high, at.x + gutter,
                      at.x + std::max(ImGui::GetContentRegionAvail().x, frame.px(200))};
  const float below = font_size(*frame.fonts.small) + frame.px(4);
  const float row = std::floor(std::clamp(
      (lab_room(frame, 0) - 2.0f * below - frame.px(8)) / static_cast<float>(formats.size()),
      frame.px(20), frame.px(60)));
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
  draw_line_scale(frame, axis, at.y, bottom);
  list.PushClipRect({axis.left, at.y}, {axis.right, bottom}, true);
  for (size_t i = 0; i < formats.size(); ++i) {
    const float top = at.y + row * static_cast<float>(i);
    draw_values(frame, axis, formats[i], top + frame.px(4), top + row - frame.px(4));
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
        "Blue: normal numbers. Yellow: subnormal numbers. The line through all rows: the entered "
        "number.",
        frame.fonts.small, frame.theme.soft);
}

}  // namespace halfscope::gui
