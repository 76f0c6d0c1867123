// SPDX-License-Identifier: MIT
// Formats: range and precision of each, and every code of small ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/numeric/formats/codes.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr int kMapBits = 8, kMapColumns = 16;

void draw_table(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit |
                                     ImGuiTableFlags_NoSavedSettings | ImGuiTableFlags_ScrollX;
  std::vector<std::string> names = format_names();
  const std::string own = format_name(lab.shown());
  if (std::find(names.begin(), names.end(), own) == names.end()) names.push_back(own);
  const float height = (static_cast<float>(names.size()) + 1.0f) *
                           (font_size(*frame.fonts.text) + ImGui::GetStyle().CellPadding.y * 2) +
                       ImGui::GetStyle().ScrollbarSize + frame.px(4);
  if (!ImGui::BeginTable("lab/formats", 10, kFlags, {0, height})) return;
  struct Heading {
    const char* name;
    const char* tip;
  };
  constexpr std::array<Heading, 10> kHeadings{
      Heading{"format", "Click a row to select its format."},
      Heading{"bits", "Total number of bits, including the sign."},
      Heading{"exponent", "Number of exponent bits."},
      Heading{"fraction", "Bits of the significand, without the implicit leading 1."},
      Heading{"bias", "Subtracted from the exponent field."},
      Heading{"largest", "The largest finite number."},
      Heading{"smallest normal", "Smaller numbers are subnormal and have fewer significant bits."},
      Heading{"smallest", "The smallest positive number. Half of it becomes 0."},
      Heading{"epsilon", "The distance from 1 to the next number."},
      Heading{"special", "Special values, or saturation where there are none."}};
  for (const Heading& heading : kHeadings) {
    ImGui::TableSetupColumn(heading.name, ImGuiTableColumnFlags_WidthFixed);
  }
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  for (const Heading& heading : kHeadings) {
    ImGui::TableNextColumn();
    ImGui::TableHeader(heading.name);
    ImGui::PopStyleColor();
    ui::tip(heading.tip);
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  }
  ImGui::PopStyleColor();
  for (const std::string& name : names) {
    const FloatFormat format = parse_format(name).value_or(kFp32);
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    if (ui::selectable("lab/formats/" + name, name.c_str(), format == lab.shown(), {0, 0},
                       kLabRow)) {
      lab.set_format(format);
    }
    const auto cell = [](const std::string& text) {
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(text.c_str());
    };
    cell(std::to_string(format.bits()));
    cell(std::to_string(format.exponent_bits));
    cell(std::to_string(format.mantissa_bits));
    cell(std::to_string(format.bias));
    ImGui::TableNextColumn();
    ui::text("lab/formats/" + name + "/largest",
             value_text(static_cast<float>(format.max_finite()), format));
    cell(power_text(format.min_exponent()));
    cell(power_text(format.min_exponent() - format.mantissa_bits));
    cell(power_text(-format.mantissa_bits));
    cell(format.has_infinity() ? format.has_nan() ? "infinity, NaN" : "infinity"
         : format.has_nan()    ? "NaN"
                               : "saturates");
  }
  ImGui::EndTable();
}

ImU32 cell_color(const LabFrame& frame, float value, const FloatFormat& format) {
  const std::string kind = kind_text(value, format);
  if (kind == "NaN") return frame.theme.bad_soft;
  if (kind == "infinity") return frame.theme.zone_lost;
  if (kind == "zero") return frame.theme.axis;
  if (kind == "subnormal") return with_alpha(frame.theme.subnormal, 0.28f);
  return with_alpha(frame.theme.in_range, std::signbit(value) ? 0.16f : 0.30f);
}

/// Draws every code of a small format, 16 per row as in a memory dump.
void draw_map(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  const FloatFormat format = lab.shown();
  const uint32_t codes = 1u << format.bits();
  ImFont* font = frame.fonts.small;
  const float gutter = frame.px(34);
  const float each = std::floor(
      std::clamp((ImGui::GetContentRegionAvail().x - gutter) / static_cast<float>(kMapColumns),
                 frame.px(18), frame.px(96)));
  const float all = std::ceil(static_cast<float>(codes) / kMapColumns);
  const float height = std::round(std::clamp((lab_room(frame, 0) - frame.px(8)) / all,
                                             font_size(*font) + frame.px(6), frame.px(44)));
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  for (uint32_t code = 0; code < codes; ++code) {
    const float x = at.x + gutter + each * static_cast<float>(code % kMapColumns);
    const float y = at.y + height * std::floor(static_cast<float>(code) / kMapColumns);
    const ImVec2 min{x, y}, max{x + each - frame.scale, y + height - frame.scale};
    if (code % kMapColumns == 0) {
      list.AddText(font, font_size(*font), {at.x, std::round(y + (height - font_size(*font)) / 2)},
                   frame.theme.faint, code_text(code, format).c_str());
    }
    const float value = decode(code, format);
    ImGui::SetCursorScreenPos(min);
    ImGui::PushID(static_cast<int>(code));
    const bool clicked = ImGui::InvisibleButton("##code", {each - frame.scale, height});
    ImGui::PopID();
    // All digits of all codes take a millisecond, so compute them only for a tracker.
    if (tracker() != nullptr) track_item(fmt::format("lab/map/{}", code), exact_text(value));
    list.AddRectFilled(min, max, cell_color(frame, value, format), frame.px(2));
    if (code == lab.code) {
      list.AddRect(min, max, frame.theme.cursor, frame.px(2), 0, frame.px(1.5f));
    }
    std::string text = std::isnan(value) ? "NaN" : value_text(value, format);
    if (text_width(font, text) > each - frame.px(4)) {
      text = fmt::format("{:.2g}", static_cast<double>(value));
    }
    const float width = text_width(font, text);
    if (width <= each - frame.px(2)) {
      list.AddText(font, font_size(*font),
                   {std::round((min.x + max.x - width) / 2),
                    std::round(y + (height - font_size(*font)) / 2)},
                   frame.theme.ink, text.c_str());
    }
    if (ImGui::IsItemHovered()) {
      list.AddRect(min, max, frame.theme.accent, frame.px(2));
      ui::tip(fmt::format("{}: {}\n{}, {}\n\nClick to use its bits.", code_text(code, format),
                          exact_text(value), kind_text(value, format), formula_text(value, format))
                  .c_str());
    }
    if (clicked) {
      lab.set_code(code);
      lab.show(LabTab::bits);
    }
  }
  const float rows = std::ceil(static_cast<float>(codes) / kMapColumns);
  ImGui::SetCursorScreenPos({at.x, at.y + height * rows + frame.px(4)});
  ImGui::Dummy({0, 0});
}

/// Draws every format as a point: powers of two in its range, and significant bits.
void draw_plane(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  constexpr double kMostRange = 320.0, kLeastRange = 2.0, kMostBits = 26.0;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* font = frame.fonts.small;
  const float line = font_size(*font) + frame.px(4);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(240));
  const float height = lab_room(frame, 180, frame.px(4));
  const ImVec2 min{at.x + frame.px(34), at.y}, max{at.x + width, at.y + height - line};
  list.AddRectFilled(min, max, frame.theme.plot);
  const auto x_of = [&](double range) {
    const double part = std::log(range / kLeastRange) / std::log(kMostRange / kLeastRange);
    return min.x + (max.x - min.x) * static_cast<float>(std::clamp(part, 0.0, 1.0));
  };
  const auto y_of = [&](double bits) {
    return max.y - (max.y - min.y) * static_cast<float>(bits / kMostBits);
  };
  for (const double range : {5.0, 10.0, 20.0, 50.0, 100.0, 200.0}) {
    list.AddLine({x_of(range), min.y}, {x_of(range), max.y}, frame.theme.grid);
    lab_centered(font, x_of(range), max.y + frame.px(2), frame.theme.soft,
                 fmt::format("{}", range));
  }
  for (const double bits : {4.0, 8.0, 12.0, 16.0, 20.0, 24.0}) {
    list.AddLine({min.x, y_of(bits)}, {max.x, y_of(bits)}, frame.theme.grid);
    const std::string text = fmt::format("{}", bits);
    list.AddText(font, font_size(*font),
                 {min.x - frame.px(6) - text_width(font, text),
                  std::round(y_of(bits) - font_size(*font) / 2)},
                 frame.theme.soft, text.c_str());
  }
  const std::string range_name = "powers of two in the range";
  list.AddText(font, font_size(*font), {min.x + frame.px(6), min.y + frame.px(4)}, frame.theme.soft,
               "significant bits");
  list.AddText(font, font_size(*font),
               {max.x - frame.px(6) - text_width(font, range_name), max.y - line}, frame.theme.soft,
               range_name.c_str());
  std::vector<std::string> names = format_names();
  const std::string own = format_name(lab.shown());
  if (std::find(names.begin(), names.end(), own) == names.end()) names.push_back(own);
  // Formats at the same place share one label.
  std::vector<std::pair<ImVec2, std::string>> labels;
  for (const std::string& name : names) {
    const FloatFormat format = parse_format(name).value_or(kFp32);
    const bool chosen = format == lab.shown();
    const ImVec2 place{x_of(std::log2(format.max_finite() / format.min_subnormal())),
                       y_of(format.mantissa_bits + 1.0)};
    const float radius = frame.px(chosen ? 7 : 5);
    list.AddCircleFilled(place, radius, chosen ? frame.theme.accent : frame.theme.in_range);
    if (chosen) list.AddCircle(place, radius + frame.px(3), frame.theme.cursor, 0, frame.px(1.5f));
    const auto same = std::find_if(labels.begin(), labels.end(), [&](const auto& each) {
      return std::fabs(each.first.x - place.x) < frame.px(60) &&
             std::fabs(each.first.y - place.y) < line;
    });
    if (same == labels.end()) {
      labels.emplace_back(place, name);
    } else {
      same->first.x = std::max(same->first.x, place.x);
      same->second += ", " + name;
    }
  }
  for (const auto& [place, text] : labels) {
    const float wide = text_width(font, text);
    const bool left = place.x + wide + frame.px(14) > max.x;
    list.AddText(font, font_size(*font),
                 {left ? place.x - wide - frame.px(14) : place.x + frame.px(14),
                  std::round(place.y - font_size(*font) / 2)},
                 frame.theme.ink, text.c_str());
  }
  ImGui::Dummy({width, height});
  track_item("lab/plane", fmt::format("{} formats", names.size()));
}

}  // namespace

void draw_formats_tab(const LabFrame& frame) {
  lab_format(frame);
  ImGui::SameLine(0, frame.px(12));
  ImGui::AlignTextToFramePadding();
  label("lab/facts/line", format_facts(frame.lab.shown()), frame.fonts.text, frame.theme.soft);
  draw_table(frame);
  ImGui::Dummy({0, frame.px(4)});
  if (frame.lab.shown().bits() > kMapBits) {
    label("lab/map/none",
          "Range and precision. Choose a format of at most 8 bits to see a map of all its codes.",
          frame.fonts.text, frame.theme.soft);
    draw_plane(frame);
    return;
  }
  draw_map(frame);
}

}  // namespace halfscope::gui
