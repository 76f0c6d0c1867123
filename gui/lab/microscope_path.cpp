// SPDX-License-Identifier: MIT
// The way of the weight through the step: a card per station, in rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/lab/microscope_parts.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kCardWidth = 108.0f, kCardGap = 11.0f;

const char* short_loss(StationLoss loss) {
  switch (loss) {
    case StationLoss::none:
    case StationLoss::rounded:
      return "";
    case StationLoss::subnormal:
      return "few bits";
    case StationLoss::flushed:
      return "to zero";
    case StationLoss::overflow:
      return "overflow";
    case StationLoss::swamped:
      return "lost";
    case StationLoss::broken:
      return "inf, NaN";
    case StationLoss::skipped:
      return "skipped";
  }
  return "";
}

ImU32 part_color(const Theme& theme, StationPart part) {
  constexpr std::array<size_t, 4> kLines{1, 4, 3, 5};
  return theme.lines[kLines[static_cast<size_t>(part)]];
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return fmt::format("{:.4g}", value + 0.0);  // a negative zero becomes 0
}

void draw_card(const LabFrame& frame, const Station& station, ImVec2 min, ImVec2 max, bool selected,
               bool hovered) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  ImFont* const small = frame.fonts.small;
  ImFont* const mono = frame.fonts.mono;
  const bool harm = is_harm(station.loss);
  const ImU32 color = loss_color(theme, station.loss);
  const ImU32 ground = selected ? theme.selection
                       : harm   ? mix(theme.card, color, 0.22)
                                : mix(theme.card, theme.ink, hovered ? 0.09 : 0.045);
  list.AddRectFilled(min, max, ground, frame.px(4));
  list.AddRectFilled(min, {max.x, min.y + frame.px(3)}, part_color(theme, station.part),
                     frame.px(4), ImDrawFlags_RoundCornersTop);
  if (selected || harm) {
    list.AddRect(min, max, selected ? theme.accent : color, frame.px(4), 0,
                 frame.scale * (selected ? 2.0f : 1.0f));
  }
  const float inset = frame.px(7), width = max.x - min.x - 2 * inset;
  const std::string name = fitted(station.name, small, width);
  list.AddText(small, font_size(*small), {min.x + inset, min.y + frame.px(6)},
               selected ? theme.ink : theme.soft, name.c_str());
  const float y = max.y - font_size(*mono) - frame.px(5);
  const std::string value = number_text(station.stored);
  list.AddText(mono, font_size(*mono), {min.x + inset, y}, theme.ink, value.c_str());
  const char* const word = short_loss(station.loss);
  const float word_width = text_width(small, word);
  if (text_width(mono, value) + word_width + frame.px(4) <= width) {
    list.AddText(small, font_size(*small),
                 {max.x - inset - word_width, max.y - font_size(*small) - frame.px(5)}, color,
                 word);
  } else if (harm) {
    draw_severity(list, {max.x - frame.px(12), y + font_size(*mono) / 2}, frame.px(5),
                  station.loss == StationLoss::subnormal ? Severity::warning : Severity::error,
                  color);
  }
}

/// Moves the selection with the arrow keys, while the pointer is over the tab or it is a popup.
void use_keys(FloatLab& lab, const Microscope& microscope) {
  const bool popup = (ImGui::GetCurrentWindow()->RootWindow->Flags & ImGuiWindowFlags_Popup) != 0;
  const bool over = ImGui::IsWindowHovered(ImGuiHoveredFlags_RootAndChildWindows |
                                           ImGuiHoveredFlags_AllowWhenBlockedByActiveItem);
  const ImGuiIO& io = ImGui::GetIO();
  if ((!popup && !over) || io.WantTextInput || ImGui::IsAnyItemActive() || io.KeyCtrl ||
      io.KeyAlt || io.KeyShift)
    return;
  const int by = (named_key_pressed(ImGuiKey_RightArrow, true) ? 1 : 0) -
                 (named_key_pressed(ImGuiKey_LeftArrow, true) ? 1 : 0);
  if (by == 0) return;
  const std::vector<Station>& all = microscope.stations;
  int64_t at = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].key == lab.desk.selected) at = static_cast<int64_t>(i);
  }
  at = std::clamp<int64_t>(at + by, 0, static_cast<int64_t>(all.size()) - 1);
  lab.desk.selected = all[static_cast<size_t>(at)].key;
}

}  // namespace

ImU32 loss_color(const Theme& theme, StationLoss loss) noexcept {
  switch (loss) {
    case StationLoss::none:
    case StationLoss::rounded:
      return theme.soft;
    case StationLoss::subnormal:
      return theme.warn;
    case StationLoss::flushed:
    case StationLoss::swamped:
      return theme.lost;
    case StationLoss::overflow:
    case StationLoss::broken:
    case StationLoss::skipped:
      return theme.bad;
  }
  return theme.soft;
}

void draw_station_path(const LabFrame& frame, const Microscope& microscope) {
  MicroscopeDesk& desk = frame.lab.desk;
  if (microscope.stations.empty()) return;
  use_keys(frame.lab, microscope);
  const float gap = frame.px(kCardGap);
  const float room = ImGui::GetContentRegionAvail().x;
  const int columns = std::max(1, static_cast<int>((room + gap) / (frame.px(kCardWidth) + gap)));
  const float width = std::floor((room + gap) / static_cast<float>(columns)) - gap;
  const float height =
      std::round(font_size(*frame.fonts.small) + font_size(*frame.fonts.mono) + frame.px(15));
  const float row_gap = frame.px(6);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const size_t count = microscope.stations.size();
  const size_t rows = (count + static_cast<size_t>(columns) - 1) / static_cast<size_t>(columns);
  for (size_t i = 0; i < count; ++i) {
    const Station& station = microscope.stations[i];
    const size_t row = i / static_cast<size_t>(columns), column = i % static_cast<size_t>(columns);
    const ImVec2 min{at.x + static_cast<float>(column) * (width + gap),
                     at.y + static_cast<float>(row) * (height + row_gap)};
    const ImVec2 max{min.x + width, min.y + height};
    ImGui::SetCursorScreenPos(min);
    ImGui::PushID(station.key.c_str());
    if (ImGui::InvisibleButton("card", {width, height})) desk.selected = station.key;
    std::string path = "lab/station/" + station.key;
    std::replace(path.begin(), path.end(), ' ', '_');  // scripts separate words by blanks
    track_item(path, station.name);
    ui::tip(fmt::format("{}: {}", station_part_name(station.part), station_loss_name(station.loss))
                .c_str());
    ImGui::PopID();
    draw_card(frame, station, min, max, station.key == desk.selected, ImGui::IsItemHovered());
    // An arrow to the next card, but not beyond the end of the row.
    if (i + 1 < count && column + 1 < static_cast<size_t>(columns)) {
      const float y = std::round((min.y + max.y) / 2), x = max.x + frame.px(3);
      list.AddTriangleFilled({x, y - frame.px(4)}, {x, y + frame.px(4)}, {x + frame.px(6), y},
                             frame.theme.faint);
    }
  }
  ImGui::SetCursorScreenPos(at);
  ImGui::Dummy({room, static_cast<float>(rows) * (height + row_gap) - row_gap});
  // The legend of the colors at the top of the cards.
  ImFont* const small = frame.fonts.small;
  ImVec2 legend = ImGui::GetCursorScreenPos();
  const float start = legend.x;
  for (const StationPart part :
       {StationPart::forward, StationPart::backward, StationPart::ranks, StationPart::update}) {
    const bool has = std::any_of(microscope.stations.begin(), microscope.stations.end(),
                                 [part](const Station& each) { return each.part == part; });
    if (!has) continue;
    const char* const name = station_part_name(part);
    const float y = std::round(legend.y + font_size(*small) / 2);
    list.AddRectFilled({legend.x, y - frame.px(1.5f)},
                       {legend.x + frame.px(14), y + frame.px(1.5f)},
                       part_color(frame.theme, part));
    list.AddText(small, font_size(*small), {legend.x + frame.px(19), legend.y}, frame.theme.soft,
                 name);
    legend.x += frame.px(19) + text_width(small, name) + frame.px(16);
  }
  const char* const keys = "Left and Right select the next station";
  if (legend.x - start + text_width(small, keys) < room) {
    list.AddText(small, font_size(*small), {at.x + room - text_width(small, keys), legend.y},
                 frame.theme.faint, keys);
  }
  ImGui::Dummy({room, font_size(*small) + frame.px(2)});
}

}  // namespace halfscope::gui
