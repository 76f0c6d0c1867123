// SPDX-License-Identifier: MIT
// The command palette: actions, layers, lanes, formats, tabs and bookmarks, found by some of their
// letters.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "core/numeric/formats/float_format.h"
#include "gui/app/app.h"
#include "gui/data/fuzzy.h"
#include "gui/panels/spectrum.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr size_t kShownEntries = 14;

struct Entry {
  std::string path, text, shortcut;
  std::function<void(App&)> run;
  int layer = -1;  ///< the layer it selects
  int score = 0;
  std::vector<size_t> letters{};
};

std::vector<Entry> entries_of(App& app, const RunModel* run, const Selection& at) {
  std::vector<Entry> entries;
  for (const AppAction& action : app_actions()) {
    if (!app.has(action.needs)) continue;
    entries.push_back({fmt::format("palette/{}", action.name),
                       fmt::format("{}: {}", action.menu, action.name), action.shortcut,
                       action.run});
  }
  if (run == nullptr) return entries;
  const std::vector<Bookmark>& bookmarks = app.view().bookmarks;
  for (size_t i = 0; i < bookmarks.size(); ++i) {
    entries.push_back({fmt::format("palette/bookmark/{}", i), "Bookmark: " + bookmarks[i].name, "",
                       [i](App& user) { user.go_to_bookmark(i); }});
  }
  for (const Note& note : app.view().notes) {
    entries.push_back({fmt::format("palette/note/{}", note.step),
                       fmt::format("Note on step {}: {}", grouped(note.step), note.text), "",
                       [step = note.step](App& user) { user.view().cursor = step; }});
  }
#define HALFSCOPE_TAB(panel, name, title, shorter) \
  entries.push_back(                               \
      {"palette/tab/" name, "Tab: " title, "", [](App& user) { user.show_tab(Tab::panel); }});
#include "gui/state/tabs.inc"
#undef HALFSCOPE_TAB
  for (const SpectrumChart chart : kAllSpectrumCharts) {
    const std::string name = spectrum_chart_name(chart);
    entries.push_back({"palette/chart/" + name, "Show or hide the chart: " + name, "",
                       [chart](App& user) { toggle_chart(user.view(), chart); }});
  }
  for (const SpectrumWindow& window : spectrum_windows()) {
    entries.push_back({fmt::format("palette/format/{}", window.name),
                       fmt::format("Format of the Spectrum: {}", window.name), "",
                       [window](App& user) {
                         user.view().window = window.lens;
                         user.view().screen = Screen::spectrum;
                       }});
  }
  for (const NamedFormat& format : named_formats()) {
    const std::string name(format.name);
    entries.push_back(
        {"palette/lens/" + name, "Format of the histogram: " + name, "", [name](App& user) {
           user.view().lens = name;
           user.view().screen = Screen::details;
         }});
  }
  for (int lane = 0; lane < run->lane_count(); ++lane) {
    const std::string& name = run->view().lane(lane).name;
    entries.push_back({"palette/lane/" + name, "Lane: " + name, "",
                       [name](App& user) { user.view().lane = name; }});
  }
  if (at.lane < 0) return entries;
  const std::vector<LayerModel>& layers = run->lane(at.lane).layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    entries.push_back({"palette/layer/" + layers[i].path, "Layer: " + layers[i].path, "",
                       [path = layers[i].path](App& user) {
                         user.view().layer = path;
                         user.view().site.clear();
                       },
                       static_cast<int>(i)});
  }
  return entries;
}

/// Returns what the layer's worst tensor loses in the whole run: "overflow 38%", or "".
std::string harm_of(const RunModel& run, const Selection& at, int layer, Metric metric) {
  const double share = run.worst_share(at.lane, layer, RoleView::all, metric);
  return share > 0.0 ? fmt::format("{} {}", metric_name(metric), percent(share)) : "";
}

/// Draws the text with the matching letters emphasised.
void draw_text(const Entry& entry, ImVec2 at, const Fonts& fonts, const Theme& theme) {
  std::vector<bool> hit(entry.text.size(), false);
  for (const size_t letter : entry.letters) hit[letter] = true;
  for (size_t begin = 0; begin < hit.size();) {
    const auto end = static_cast<size_t>(
        std::find(hit.begin() + static_cast<std::ptrdiff_t>(begin), hit.end(), !hit[begin]) -
        hit.begin());
    ImFont& font = hit[begin] ? *fonts.bold : *fonts.text;
    const std::string part = entry.text.substr(begin, end - begin);
    ImGui::GetWindowDrawList()->AddText(&font, font_size(font), at,
                                        hit[begin] ? theme.accent : theme.ink, part.c_str());
    at.x += text_size(font, part).x;
    begin = end;
  }
}

}  // namespace

void App::draw_palette() {
  const bool opens = !focus_popup_;
  if (opens) {
    palette_text_.clear();
    palette_row_ = 0;
  }
  if (!begin_popup("palette", {620 * scale(), 0}, opens)) return close_popup();
  if (opens) ImGui::SetKeyboardFocusHere();
  focus_popup_ = true;
  if (ui::input_text("palette/text", "a command, layer, lane, format or tab", &palette_text_, -1)) {
    palette_row_ = 0;
  }
  std::vector<Entry> found;
  for (Entry& entry : entries_of(*this, has_run() ? run_.get() : nullptr, selection())) {
    std::optional<FuzzyMatch> match = fuzzy_match(entry.text, palette_text_);
    if (!match) continue;
    entry.score = match->score;
    entry.letters = std::move(match->letters);
    found.push_back(std::move(entry));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Entry& a, const Entry& b) { return a.score > b.score; });
  const int count = static_cast<int>(found.size());
  if (named_key_pressed(ImGuiKey_DownArrow, true)) ++palette_row_;
  if (named_key_pressed(ImGuiKey_UpArrow, true)) --palette_row_;
  palette_row_ = count == 0 ? 0 : (palette_row_ + count) % count;
  const Entry* chosen = nullptr;
  if (found.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme_->soft);
    ui::text("palette/nothing", "Nothing found.");
    ImGui::PopStyleColor();
  } else if (named_key_pressed(ImGuiKey_Enter)) {
    chosen = &found[static_cast<size_t>(palette_row_)];
  }
  const size_t first =
      static_cast<size_t>(std::max(0, palette_row_ - static_cast<int>(kShownEntries) + 1));
  for (size_t i = first; i < std::min(found.size(), first + kShownEntries); ++i) {
    const Entry& entry = found[i];
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const bool current = static_cast<int>(i) == palette_row_;
    ImGui::PushStyleColor(ImGuiCol_Text, 0);  // drawn below, with its letters emphasised
    if (ui::selectable(entry.path, entry.text.c_str(), current)) chosen = &entry;
    ImGui::PopStyleColor();
    draw_text(entry, at, fonts_, *theme_);
    const std::string right =
        entry.layer < 0 ? entry.shortcut : harm_of(*run_, selection(), entry.layer, view_.metric);
    const float key_width = ImGui::CalcTextSize(right.c_str()).x;
    ImGui::GetWindowDrawList()->AddText({at.x + width - key_width, at.y}, theme_->soft,
                                        right.c_str());
    if (!right.empty()) {
      track_rect(entry.path + "/right", {at.x + width - key_width, at.y},
                 {at.x + width, at.y + ImGui::GetTextLineHeight()}, right);
    }
  }
  if (found.size() > kShownEntries) {
    ImGui::PushStyleColor(ImGuiCol_Text, theme_->soft);
    ui::text("palette/more", fmt::format("{} more: type to narrow down, arrow keys move.",
                                         found.size() - kShownEntries));
    ImGui::PopStyleColor();
  }
  const std::function<void(App&)> run = chosen != nullptr ? chosen->run : nullptr;
  if (run) {
    ImGui::CloseCurrentPopup();
    close_popup();
  }
  ImGui::EndPopup();
  if (run) run(*this);
}

}  // namespace halfscope::gui
