// SPDX-License-Identifier: MIT
// Rounding: one value in all modes, its two neighbours, and the bits that decide.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

void draw_modes(const LabFrame& frame, double value) {
  const FloatFormat& format = frame.lab.shown();
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (!ImGui::BeginTable("lab/modes", 5, kFlags)) return;
  for (const char* name : {"mode", "result", "code", "error, ulp"}) {
    ImGui::TableSetupColumn(name, ImGuiTableColumnFlags_WidthFixed);
  }
  ImGui::TableSetupColumn("flags", ImGuiTableColumnFlags_WidthStretch);
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ImGui::TableHeadersRow();
  ImGui::PopStyleColor();
  for (const RoundingMode mode : kAllRoundingModes) {
    const std::string name(rounding_mode_name(mode));
    const Rounded<double> rounded =
        round_to_format(value, format, Rounding{.mode = mode, .random = frame.lab.random});
    const float result = static_cast<float>(rounded.value);
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ui::text("lab/mode/" + name, name);
    if (mode == RoundingMode::stochastic) {
      ui::tip(
          "Rounds up with a probability equal to the distance from the lower neighbour in ulps. "
          "Dice draws new random bits.");
    }
    ImGui::PushFont(frame.fonts.mono);
    ImGui::TableNextColumn();
    ui::text("lab/mode/" + name + "/result", value_text(result, format));
    ImGui::TableNextColumn();
    ImGui::TextUnformatted(code_text(detail::code_of_value(result, format), format).c_str());
    ImGui::TableNextColumn();
    const double error = (rounded.value - value) / ulp_size(value, format);
    const std::string ulps = std::isfinite(error) ? fmt::format("{:+.4g}", error) : "-";
    ui::text("lab/mode/" + name + "/error", error == 0.0 ? "0" : ulps);
    ImGui::PopFont();
    ImGui::TableNextColumn();
    ImGui::PushStyleColor(ImGuiCol_Text,
                          rounded.flags == kExact ? frame.theme.soft : frame.theme.warn);
    ui::text("lab/mode/" + name + "/flags", flags_text(rounded.flags));
    ImGui::PopStyleColor();
  }
  ImGui::EndTable();
}

/// Draws "1.0000000000 | 1 | 0 | 1" with a name for each part.
void draw_bits(const LabFrame& frame, const RoundingPlace& place) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = frame.fonts.mono;
  ImFont* small = frame.fonts.small;
  const float height = std::round(font_size(*font) + frame.px(10));
  float x = at.x;
  const auto box = [&](const char* path, const std::string& text, const char* name, ImU32 color) {
    const float name_width = text_width(small, name);
    const float width = std::max(text_width(font, text) + frame.px(14), name_width + frame.px(4));
    const ImVec2 max{x + width, at.y + height};
    list.AddRectFilled({x, at.y}, max, with_alpha(color, 0.16f), frame.px(3));
    list.AddRect({x, at.y}, max, color, frame.px(3), 0, frame.scale);
    list.AddText(font, font_size(*font),
                 {std::round((x + max.x - text_width(font, text)) / 2), at.y + frame.px(5)},
                 frame.theme.ink, text.c_str());
    list.AddText(small, font_size(*small),
                 {std::round((x + max.x - name_width) / 2), max.y + frame.px(2)}, frame.theme.soft,
                 name);
    track_rect(path, {x, at.y}, max, text);
    x = max.x + frame.px(6);
  };
  box("lab/kept", place.kept, "kept", frame.fraction_color());
  box("lab/guard", place.guard ? "1" : "0", "guard", frame.exponent_color());
  box("lab/round", place.round ? "1" : "0", "round", frame.exponent_color());
  box("lab/sticky", place.sticky ? "1" : "0", "sticky", frame.sign_color());
  ImGui::Dummy({x - at.x, height + font_size(*small) + frame.px(6)});
  ui::tip(
      "The bits after the last kept bit. Guard is worth half of it, round a quarter, and sticky "
      "is 1 if any lower bit is set. Nearest even rounds up if guard is 1 and round, sticky or "
      "the last kept bit is 1.");
}

/// Returns the names of the modes that round the value to `target`, with commas.
std::string modes_to(const LabFrame& frame, double value, float target) {
  std::string names;
  for (const RoundingMode mode : kAllRoundingModes) {
    const double rounded = round_to_format(value, frame.lab.shown(),
                                           Rounding{.mode = mode, .random = frame.lab.random})
                               .value;
    if (static_cast<float>(rounded) != target) continue;
    if (!names.empty()) names += ", ";
    names += rounding_mode_name(mode);
  }
  return names;
}

/// Draws the value between its neighbours, as a triangle to drag, and which modes choose which.
void draw_between(const LabFrame& frame, double value, const RoundingPlace& place, float height) {
  FloatLab& lab = frame.lab;
  const FloatFormat& format = lab.shown();
  const Theme& theme = frame.theme;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(240));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* small = frame.fonts.text;
  ImFont* font = frame.fonts.text;
  const float left = at.x + frame.px(40), right = at.x + width - frame.px(40);
  const float y = std::round(at.y + height * 0.5f);
  list.AddRectFilled(at, {at.x + width, at.y + height}, theme.plot, frame.px(3));
  ImGui::SetCursorScreenPos(at);
  ImGui::InvisibleButton("##between", {width, height});
  const std::string below = value_text(place.below, format);
  const bool beyond = std::fabs(static_cast<double>(place.above)) > format.max_finite();
  const std::string above = beyond ? "beyond the largest" : value_text(place.above, format);
  track_item("lab/between", fmt::format("{} to {}", below, above));
  if (ImGui::IsItemActive() && std::isfinite(place.above)) {
    const double part = std::clamp(
        static_cast<double>((ImGui::GetIO().MousePos.x - left) / (right - left)), 0.0, 0.995);
    const double low = static_cast<double>(place.below), high = static_cast<double>(place.above);
    // Steps of 1/64 ulp are exact and keep the text short.
    const double moved = low + (high - low) * std::round(part * 64.0) / 64.0;
    if (moved != high && moved != 0.0) lab.value = fmt::format("{}", moved);
  }
  list.AddLine({left, y}, {right, y}, theme.axis, frame.px(2));
  for (int i = 1; i < 8; ++i) {
    const float x = left + (right - left) * static_cast<float>(i) / 8.0f;
    const float size = frame.px(i == 4 ? 7 : 4);
    list.AddLine({x, y - size}, {x, y + size}, theme.axis, frame.scale);
  }
  lab_centered(small, (left + right) / 2, y + frame.px(9), theme.soft, "halfway");
  const float x = left + (right - left) * static_cast<float>(place.fraction);
  const bool up = static_cast<float>(round_to_format(value, format).value) == place.above;
  list.AddLine({up ? x : left, y}, {up ? right : x, y}, with_alpha(theme.accent, 0.8f),
               frame.px(3));
  for (const float end : {left, right}) {
    list.AddCircleFilled({end, y}, frame.px(6), frame.fraction_color());
  }
  list.AddTriangleFilled({x, y - frame.px(2)}, {x - frame.px(7), y - frame.px(15)},
                         {x + frame.px(7), y - frame.px(15)}, theme.cursor);
  const std::string part = fmt::format("{:.4g} ulp", place.fraction);
  const float half = text_width(font, part) / 2 + frame.px(4);
  lab_centered(font, std::clamp(x, at.x + half, at.x + width - half),
               y - frame.px(19) - font_size(*font), theme.ink, part);
  const float name_y = y + frame.px(12), modes_y = name_y + font_size(*font) + frame.px(6);
  list.AddText(font, font_size(*font), {left - frame.px(6), name_y}, theme.ink, below.c_str());
  list.AddText(font, font_size(*font), {right + frame.px(6) - text_width(font, above), name_y},
               beyond ? theme.lost : theme.ink, above.c_str());
  const std::string down_modes = fitted(modes_to(frame, value, place.below), small, width * 0.46f);
  const std::string up_modes = fitted(modes_to(frame, value, place.above), small, width * 0.46f);
  list.AddText(small, font_size(*small), {left - frame.px(6), modes_y}, theme.soft,
               down_modes.c_str());
  list.AddText(small, font_size(*small),
               {right + frame.px(6) - text_width(small, up_modes), modes_y}, theme.soft,
               up_modes.c_str());
}

}  // namespace

void draw_rounding_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  lab_format(frame);
  lab_field(frame, "lab/value", "value", &lab.value, frame.px(190), frame.px(16));
  ui::tip("A decimal (converted to the nearest double first) or a hexadecimal float.");
  if (lab_button(frame, "lab/dice", "Dice")) {
    lab.random = static_cast<uint32_t>(splitmix64(lab.random));
  }
  ui::tip("Draws new random bits for stochastic rounding.");
  const std::optional<double> value = read_double(lab.value);
  if (!value) {
    label("lab/value/problem", "'" + lab.value + "' is not a number", frame.fonts.text,
          frame.theme.bad);
    return;
  }
  ImGui::Dummy({0, frame.px(2)});
  if (const std::optional<RoundingPlace> place = rounding_place(*value, lab.shown())) {
    draw_bits(frame, *place);
    const float table =
        9.0f * (font_size(*frame.fonts.text) + 2.0f * ImGui::GetStyle().CellPadding.y);
    draw_between(frame, *value, *place,
                 std::min(lab_room(frame, 130, table + frame.px(8)), frame.px(330)));
  } else {
    label("lab/value/special",
          std::isnan(*value) || std::isinf(*value) || *value == 0.0
              ? "Zeros, infinities and NaN are not rounded."
              : "Far beyond the largest value: no neighbours to choose from.",
          frame.fonts.text, frame.theme.soft);
  }
  draw_modes(frame, *value);
}

}  // namespace halfscope::gui
