// SPDX-License-Identifier: MIT
#include "gui/study/study_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/study/study_words.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kWide = 960.0f;  ///< narrower windows, at scale 1, show one part at a time
constexpr float kHigh = 430.0f;

using Part = void (*)(const StudyFrame&);

struct NamedPart {
  const char* name;
  Part draw;
};
constexpr NamedPart kParts[] = {{"Map", draw_study_map},
                                {"Trial", draw_study_trial},
                                {"Cost", draw_study_cost},
                                {"Losses", draw_study_fan},
                                {"Layers", draw_study_layers}};

void draw_part(const StudyFrame& frame, const char* name, ImVec2 size, Part draw) {
  ImGui::BeginChild(name, size, true);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {8 * frame.scale, 5 * frame.scale});
  draw(frame);
  ImGui::PopStyleVar();
  ImGui::EndChild();
}

/// Moves the selection over the map, and opens the selected trial.
void take_keys(const StudyFrame& frame) {
  if (!frame.takes_keys || ImGui::GetIO().WantTextInput) return;
  const ImGuiIO& io = ImGui::GetIO();
  if (io.KeyCtrl || io.KeyAlt || io.KeyShift) return;
  const int selected = frame.selected();
  if (selected < 0) return;
  if (named_key_pressed(ImGuiKey_Enter)) frame.open(selected);
  const int row =
      named_key_pressed(ImGuiKey_DownArrow, true) - named_key_pressed(ImGuiKey_UpArrow, true);
  const int column =
      named_key_pressed(ImGuiKey_RightArrow, true) - named_key_pressed(ImGuiKey_LeftArrow, true);
  if (row == 0 && column == 0) return;
  const std::vector<StudyGroup>& groups = frame.facts().groups;
  const int group = frame.facts().group_of(selected);
  const std::vector<int>& here = frame.group(group).trials;
  const auto at = static_cast<int>(std::find(here.begin(), here.end(), selected) - here.begin());
  // Cells without a trial are passed over.
  for (int g = group + row, c = at + column;
       g >= 0 && g < static_cast<int>(groups.size()) && c >= 0 && c < static_cast<int>(here.size());
       g += row, c += column) {
    const int next = frame.group(g).trials[static_cast<size_t>(c)];
    if (next < 0) continue;
    frame.select(next);
    return;
  }
}

}  // namespace

int StudyFrame::selected() const {
  const int known = study.find(state.trial);
  if (known >= 0) return known;
  int best = -1, best_rank = -1;
  for (const TrialRow& each : study.view().trials()) {
    const int rank = each.fails && !each.baseline ? 3 : each.fails ? 2 : each.done() ? 1 : 0;
    if (rank > best_rank) {
      best = each.trial;
      best_rank = rank;
    }
  }
  return best;
}

void StudyFrame::select_group(int group) const {
  int best = -1, best_rank = -1;
  for (const int index : this->group(group).trials) {
    if (index < 0) continue;
    const int rank = trial(index).fails ? 2 : trial(index).done() ? 1 : 0;
    if (rank > best_rank) {
      best = index;
      best_rank = rank;
    }
  }
  if (best >= 0) select(best);
}

void StudyFrame::open(int index) const {
  if (!trial(index).done()) return;
  requests.push_back({.kind = Request::Kind::open_file, .text = study.run_file(trial(index))});
}

ImU32 trial_color(const StudyFrame& frame, const TrialRow& trial) {
  const Theme& theme = frame.theme;
  if (trial.status == TrialStatus::waiting) return theme.plot;
  if (trial.status == TrialStatus::failed) return mix(theme.plot, theme.soft, 0.45);
  if (trial.fails) {
    return std::isfinite(trial.loss) && trial.error.empty() ? theme.lost : theme.bad;
  }
  const double tolerance = frame.study.view().info().tolerance;
  const double share = std::isnan(trial.gap) || tolerance <= 0.0 ? 0.0 : trial.gap / tolerance;
  return mix(theme.plot, theme.in_range, share <= 0.25 ? 0.34 : share <= 0.5 ? 0.62 : 1.0);
}

void draw_part_title(const StudyFrame& frame, const char* path, const std::string& title) {
  if (frame.picture != nullptr) return picture_text(frame.look(), title, true);
  label(path, title, frame.fonts.bold, frame.theme.ink);
}

void draw_study_head(const StudyFrame& frame) {
  const StudyFacts& facts = frame.facts();
  const Theme& theme = frame.theme;
  const float scale = frame.scale, pad = 12 * scale;
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const std::string headline = plain_text(facts.verdict.headline);
  std::string more = plain_text(facts.verdict.more);
  // The bar says the same.
  if (const std::string said = study_words::progress_text(facts);
      !said.empty() && more.starts_with(said)) {
    more.erase(0, std::min(more.size(), said.size() + 1));
  }
  const char* badge = verdict_badge(facts.verdict.state, false, frame.fonts.unicode);
  const bool unfinished = facts.waiting() > 0;
  const std::string progress =
      fmt::format("{} of {} trials finished", facts.finished, facts.planned);
  const float progress_width = unfinished ? text_width(frame.fonts.text, progress) + 2 * pad : 0.0f;
  const float text_x = start.x + 2.5f * pad + text_width(frame.fonts.bold, badge);
  const float room = std::max(start.x + width - pad - progress_width - text_x, 120 * scale);
  ImGui::PushFont(frame.fonts.bold);
  const ImVec2 head = ImGui::CalcTextSize(headline.c_str(), nullptr, false, room);
  ImGui::PopFont();
  const ImVec2 rest =
      more.empty() ? ImVec2{0, 0} : ImGui::CalcTextSize(more.c_str(), nullptr, false, room);
  const float gap = more.empty() ? 0.0f : 3 * scale;
  const float height =
      std::max(head.y + gap + rest.y, unfinished ? ImGui::GetTextLineHeight() + 12 * scale : 0.0f) +
      2 * (pad - 3 * scale);
  const ImU32 ink = theme.verdict(facts.verdict.state);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 end{start.x + width, start.y + height};
  draw.AddRectFilled(start, end, theme.verdict_soft(facts.verdict.state), 5 * scale);
  draw.AddRectFilled(start, {start.x + 5 * scale, end.y}, ink, 5 * scale,
                     ImDrawFlags_RoundCornersLeft);
  const float top = start.y + pad - 3 * scale;
  const auto write = [&](const char* path, const std::string& text, ImFont* font, ImU32 color,
                         float x, float y) {
    ImGui::SetCursorScreenPos({x, y});
    ImGui::PushFont(font);
    ImGui::PushStyleColor(ImGuiCol_Text, color);
    ImGui::PushTextWrapPos(x + room - ImGui::GetWindowPos().x);
    ui::text(path, text);
    ImGui::PopTextWrapPos();
    ImGui::PopStyleColor();
    ImGui::PopFont();
  };
  write("study/state", badge, frame.fonts.bold, ink, start.x + pad + 4 * scale, top);
  write("study/headline", headline, frame.fonts.bold, theme.ink, text_x, top);
  if (!more.empty()) {
    write("study/more", more, frame.fonts.text, theme.soft, text_x, top + head.y + gap);
  }
  if (unfinished) {
    const float left = end.x - progress_width + pad / 2, bar_width = progress_width - 1.5f * pad;
    write("study/progress", progress, frame.fonts.text, theme.ink, left, top);
    const float bar = top + ImGui::GetTextLineHeight() + 5 * scale;
    const float done = static_cast<float>(facts.finished) / static_cast<float>(facts.planned);
    draw.AddRectFilled({left, bar}, {left + bar_width, bar + 5 * scale}, theme.card_line,
                       2.5f * scale);
    if (done > 0.0f) {
      draw.AddRectFilled({left, bar}, {left + bar_width * done, bar + 5 * scale}, theme.accent,
                         2.5f * scale);
    }
  }
  ImGui::SetCursorScreenPos({start.x, end.y + ImGui::GetStyle().ItemSpacing.y});
  ImGui::Dummy({0, 0});
}

void draw_study(const StudyFrame& frame) {
  draw_study_head(frame);
  if (frame.study.view().trials().empty()) {
    return empty_note("study/empty", "Add values to the axes of the study file.", frame.theme);
  }
  take_keys(frame);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float unit = frame.scale, gap = 6 * unit;
  if (room.x < kWide * unit || room.y < kHigh * unit) {
    for (int i = 0; i < static_cast<int>(std::size(kParts)); ++i) {
      if (i > 0) ImGui::SameLine(0, 3 * unit);
      if (ui::segment(fmt::format("study/part/{}", kParts[i].name), kParts[i].name,
                      frame.state.page == i)) {
        frame.state.page = i;
      }
    }
    const NamedPart& part = kParts[std::clamp<int>(frame.state.page, 0, std::size(kParts) - 1)];
    return draw_part(frame, part.name, ImGui::GetContentRegionAvail(), part.draw);
  }
  // The map takes what its rows need, at most six tenths of the height.
  const float rows = static_cast<float>(frame.facts().groups.size()) * 26 * unit + 96 * unit;
  const float top = std::clamp(rows, std::min(300 * unit, room.y * 0.5f), room.y * 0.6f);
  const float bottom = room.y - top - gap;
  const float details = std::clamp(room.x * 0.27f, 320 * unit, 460 * unit);
  const float third = std::floor((room.x - 2 * gap) / 3);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {gap, gap});
  draw_part(frame, "map", {room.x - details - gap, top}, draw_study_map);
  ImGui::SameLine(0, gap);
  draw_part(frame, "trial", {details, top}, draw_study_trial);
  draw_part(frame, "cost", {third, bottom}, draw_study_cost);
  ImGui::SameLine(0, gap);
  draw_part(frame, "losses", {third, bottom}, draw_study_fan);
  ImGui::SameLine(0, gap);
  draw_part(frame, "layers", {room.x - 2 * third - 2 * gap, bottom}, draw_study_layers);
  ImGui::PopStyleVar();
}

}  // namespace halfscope::gui
