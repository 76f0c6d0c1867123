// SPDX-License-Identifier: MIT
// All formats: one number on the axis of every format's range, as bits below each other, and its
// error. A shift multiplies it by a power of two, as a loss scale does.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/lab/same_number.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kLowest = -150.0, kHighest = 130.0;  ///< of the axis, as powers of two

/// Columns in pixels from the left.
struct Columns {
  float axis = 0, axis_end = 0;
  float bits = 0, cell = 0;  ///< of the sign; width of a bit, 0: no bits
  float point = 0;           ///< between exponent and fraction
  float value = 0, error = 0;
};

ImU32 color_of(const LabFrame& frame, Fate fate) {
  switch (fate) {
    case Fate::exact:
    case Fate::rounded:
      return frame.theme.good;
    case Fate::subnormal:
      return frame.theme.warn;
    default:
      return frame.theme.lost;
  }
}

std::string error_text(const NumberIn& in) {
  switch (in.fate) {
    case Fate::exact:
      return "exact";
    case Fate::special:
    case Fate::overflow:
      return fate_name(in.fate);
    case Fate::underflow:
    case Fate::saturated:
    case Fate::subnormal:
      return fmt::format("{}, {}", fate_name(in.fate), percent(std::fabs(in.error)));
    case Fate::rounded:
      break;
  }
  return fmt::format("{}, {:.2f} ulp", percent(std::fabs(in.error)), std::fabs(in.error_ulps));
}

void draw_bits(const LabFrame& frame, const NumberIn& in, float left, const Columns& columns,
               float top, float height) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float gap = std::max(1.0f, std::floor(columns.cell * 0.12f));
  const int fraction = in.format.mantissa_bits, bits = in.format.bits();
  ImFont* font = frame.fonts.small;
  for (int bit = 0; bit < bits; ++bit) {
    float x = left + columns.point + columns.cell * static_cast<float>(fraction - 1 - bit);
    ImU32 color = frame.fraction_color();
    if (bit == bits - 1) {
      x = left + columns.bits;
      color = frame.sign_color();
    } else if (bit >= fraction) {
      x = left + columns.point - frame.px(6) -
          columns.cell * static_cast<float>(bit - fraction + 1);
      color = frame.exponent_color();
    }
    const bool on = (in.code >> bit & 1) != 0;
    const ImVec2 min{std::round(x), top}, max{std::round(x + columns.cell) - gap, top + height};
    list.AddRectFilled(min, max, on ? color : with_alpha(color, 0.15f), frame.px(2));
    if (columns.cell >= text_width(font, "0") + gap + 1.0f && height > font_size(*font)) {
      lab_centered(font, (min.x + max.x) / 2, top + (height - font_size(*font)) / 2,
                   on ? frame.theme.card : frame.theme.soft, on ? "1" : "0");
    }
  }
}

/// Draws the range of a format: normal numbers, subnormal ones, and nothing beyond.
void draw_range(const LabFrame& frame, const NumberIn& in, float left, const Columns& columns,
                double number, float top, float height) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto x_of = [&](double exponent) {
    const double part = std::clamp((exponent - kLowest) / (kHighest - kLowest), 0.0, 1.0);
    return left + columns.axis + (columns.axis_end - columns.axis) * static_cast<float>(part);
  };
  const FloatFormat& format = in.format;
  const float middle = std::round(top + height / 2), thick = std::round(height * 0.22f);
  list.AddLine({left + columns.axis, middle}, {left + columns.axis_end, middle}, frame.theme.grid,
               frame.scale);
  const float smallest = x_of(std::log2(format.min_subnormal()));
  const float normal = x_of(std::log2(format.min_normal()));
  const float largest = x_of(std::log2(format.max_finite()));
  list.AddRectFilled({smallest, middle - thick}, {normal, middle + thick}, frame.theme.subnormal);
  list.AddRectFilled({normal, middle - thick}, {std::max(largest, normal + 2.0f), middle + thick},
                     frame.theme.in_range);
  if (!std::isfinite(number) || number == 0.0) return;
  const float x = x_of(std::log2(std::fabs(number)));
  const ImU32 color = color_of(frame, in.fate);
  const float radius = frame.px(5);
  if (in.fate == Fate::overflow || in.fate == Fate::saturated) {
    list.AddTriangleFilled({x - radius, middle - radius}, {x + radius, middle},
                           {x - radius, middle + radius}, color);
  } else if (in.fate == Fate::underflow) {
    list.AddCircle({x, middle}, radius, color, 0, frame.px(2));
  } else {
    list.AddCircleFilled({x, middle}, radius, frame.theme.cursor);
  }
}

Columns arrange(const LabFrame& frame, float width) {
  Columns columns;
  const bool narrow = width < frame.px(540);
  const float name = frame.px(narrow ? 90 : 112), value = frame.px(narrow ? 84 : 122);
  const float error = frame.px(narrow ? 130 : 160);
  const float room = width - name - value - error - frame.px(36);
  const bool bits = room > frame.px(420);
  columns.axis = name;
  // Sign, 8 exponent and 23 fraction bits.
  columns.cell = bits ? std::min(std::floor(room * 0.6f / 32.5f), frame.px(17)) : 0.0f;
  const float all_bits = bits ? columns.cell * 32.0f + frame.px(14) : 0.0f;
  columns.axis_end = name + std::max(room - all_bits, frame.px(40));
  columns.bits = columns.axis_end + frame.px(14);
  columns.point = columns.bits + columns.cell * 9.0f + frame.px(12);
  columns.value = columns.bits + (bits ? all_bits + frame.px(12) : 0.0f);
  columns.error = columns.value + value;
  return columns;
}

}  // namespace

void draw_same_number_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  if (lab_field(frame, "lab/entry", "number", &lab.entry, frame.px(170), 0)) lab.entry_edited();
  ui::tip("A decimal, inf, nan, a hexadecimal float, or a code of the lab's format.");
  flow(frame.px(360), frame.px(16));
  ImGui::AlignTextToFramePadding();
  label("lab/shift/text",
        lab.shift == 0.0
            ? "times 1 (no scale)"
            : fmt::format("times 2^{} = {}", lab.shift, brief_text(std::exp2(lab.shift), 6)),
        frame.fonts.text, frame.theme.soft, frame.px(160));
  ImGui::SameLine(0, frame.px(6));
  if (ui::slider("lab/shift", &lab.shift, -24.0, 24.0, "", frame.px(180))) {
    lab.shift = std::round(lab.shift);
  }
  ui::tip("Multiplies the number by a power of two, as loss scaling does with gradients.");
  if (!lab.entry_problem().empty()) {
    label("lab/entry/problem", lab.entry_problem(), frame.fonts.text, frame.theme.bad);
    return;
  }
  const double entered =
      lab.typed() ? lab.typed()->approximate() : static_cast<double>(lab.number());
  const double number = std::ldexp(entered, static_cast<int>(lab.shift));
  const std::vector<NumberIn> all = same_number(number);

  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(380));
  const Columns columns = arrange(frame, width);
  ImFont* font = frame.fonts.small;
  ImFont* text_font = frame.fonts.text;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float head = font_size(*font) + frame.px(6);
  const float scale_height = font_size(*font) + frame.px(6);
  const float each = std::floor(std::clamp(
      (lab_room(frame, 0) - head - 2 * scale_height - frame.px(8)) / static_cast<float>(all.size()),
      frame.px(20), frame.px(48)));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float body = at.y + head, bottom = body + each * static_cast<float>(all.size());
  const auto heading = [&](float x, const char* text) {
    list.AddText(font, font_size(*font), {at.x + x, at.y}, frame.theme.soft, text);
  };
  heading(columns.axis, "range, as powers of two");
  if (columns.cell > 0.0f) {
    heading(columns.bits, "sign and exponent");
    heading(columns.point, "fraction");
  }
  heading(columns.value, "stored");
  heading(columns.error, "error");

  // Dragging along the axis changes the number, rows select a format.
  ImGui::SetCursorScreenPos({at.x + columns.axis, body});
  ImGui::InvisibleButton("##axis", {columns.axis_end - columns.axis, bottom - body});
  track_item("lab/same/axis", fmt::format("{}", number));
  if (ImGui::IsItemActive()) {
    const double part =
        std::clamp(static_cast<double>((ImGui::GetIO().MousePos.x - at.x - columns.axis) /
                                       (columns.axis_end - columns.axis)),
                   0.0, 1.0);
    lab.entry = fmt::format("{:.3g}", std::exp2(kLowest + part * (kHighest - kLowest) - lab.shift));
    lab.entry_edited();
  }
  for (const double power : {-126.0, -64.0, -24.0, 0.0, 16.0, 64.0, 127.0}) {
    const float x = at.x + columns.axis +
                    (columns.axis_end - columns.axis) *
                        static_cast<float>((power - kLowest) / (kHighest - kLowest));
    const std::string text = fmt::format("{:.0f}", power);
    list.AddLine({x, body}, {x, bottom}, frame.theme.grid, frame.scale);
    if (columns.axis_end - columns.axis < frame.px(240) && power != -126.0 && power != 0.0 &&
        power != 127.0) {
      continue;
    }
    lab_centered(font, x, bottom + frame.px(3), frame.theme.soft, text);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const NumberIn& in = all[i];
    const float top = body + each * static_cast<float>(i);
    const float text_y = std::round(top + (each - font_size(*text_font)) / 2);
    const std::string path = "lab/same/" + std::string(in.name);
    const bool chosen = in.format == lab.shown();
    if (chosen) {
      list.AddRectFilled({at.x, top}, {at.x + width, top + each},
                         with_alpha(frame.theme.selection, 0.5f));
    }
    ImGui::SetCursorScreenPos({at.x, top});
    ImGui::PushID(static_cast<int>(i));
    const bool clicked = ImGui::InvisibleButton("##row", {columns.axis - frame.px(4), each});
    ImGui::PopID();
    track_item(path, fate_name(in.fate));
    ui::tip((format_facts(in.format) + "\n\nClick to select the format.").c_str());
    list.AddText(text_font, font_size(*text_font), {at.x + frame.px(4), text_y}, frame.theme.ink,
                 std::string(in.name).c_str());
    draw_range(frame, in, at.x, columns, number, top, each);
    if (columns.cell > 0.0f) {
      const float cell = std::min(each - frame.px(4), frame.px(22));
      draw_bits(frame, in, at.x, columns, std::round(top + (each - cell) / 2), cell);
    }
    // More digits than read back: 0.1 in e5m2 is 0.09375, not 0.09.
    const std::string value = brief_text(static_cast<double>(in.value), 8);
    list.AddText(
        frame.fonts.mono, font_size(*frame.fonts.mono), {at.x + columns.value, text_y},
        frame.theme.ink,
        fitted(value, frame.fonts.mono, columns.error - columns.value - frame.px(6)).c_str());
    const std::string error = error_text(in);
    list.AddText(text_font, font_size(*text_font), {at.x + columns.error, text_y},
                 color_of(frame, in.fate), fitted(error, text_font, width - columns.error).c_str());
    track_rect(path + "/value", {at.x + columns.value, top}, {at.x + columns.error, top + each},
               value);
    track_rect(path + "/error", {at.x + columns.error, top}, {at.x + width, top + each}, error);
    if (clicked) lab.set_format(in.format);
  }
  ImGui::SetCursorScreenPos({at.x, bottom + scale_height});
  ImGui::Dummy({width, 0});
  label("lab/same/key",
        "Blue: normal numbers. Yellow: subnormal numbers, with fewer bits. Dot: stored. Ring: "
        "becomes 0. Triangle: too large.",
        font, frame.theme.soft);
}

}  // namespace halfscope::gui
