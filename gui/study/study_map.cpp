// SPDX-License-Identifier: MIT
// The heat map of a study: a row for each group, a cell for each seed. A click selects a trial, a
// double click opens its run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "analysis/rules/text.h"
#include "analysis/study/study_words.h"
#include "gui/panels/step_plot.h"
#include "gui/study/study_page.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kRow = 26.0f, kMostRow = 40.0f, kLeastCell = 5.0f,
                kMostCell = 60.0f;    ///< at scale 1
constexpr float kMarkedCell = 11.0f;  ///< smaller cells have no cross, only their color
constexpr float kInterval = 76.0f;    ///< width of the bar of an interval
constexpr float kLeastWhy = 120.0f;   ///< less room is too little for reasons

/// Widths of the columns, left to right.
struct MapColumns {
  float names = 0.0f, counts = 0.0f, shares = 0.0f, cell = 0.0f;
  float cells_left = 0.0f;            ///< from the left edge
  float row = 0.0f;                   ///< height of a row
  float why_left = 0.0f, why = 0.0f;  ///< reasons, where cells leave room; else 0 wide
};

/// Draws what distinguishes a cell without color: a cross if it fails, a stroke if it could not be
/// trained, an outline if it waits.
void draw_cell(const StudyFrame& frame, Canvas& canvas, const TrialRow& trial, ImVec2 min,
               ImVec2 max) {
  canvas.fill(min, max, trial_color(frame, trial), 1.5f * frame.scale);
  if (trial.status == TrialStatus::waiting) {
    return canvas.outline(min, max, frame.theme.card_line, 1.0f, 1.5f * frame.scale);
  }
  if (max.x - min.x < kMarkedCell * frame.scale) return;
  const ImVec2 center{(min.x + max.x) / 2, (min.y + max.y) / 2};
  const float r = 3.5f * frame.scale;
  if (trial.status == TrialStatus::failed) {
    canvas.line({center.x - r, center.y + r}, {center.x + r, center.y - r}, frame.theme.ink,
                1.5f * frame.scale);
  } else if (trial.fails) {
    draw_mark(canvas, PlotMark::cross, center, r, frame.theme.plot);
  }
}

void draw_legend_of_map(const StudyFrame& frame) {
  struct Entry {
    const char* name;
    std::string text;
    TrialRow sample;
  };
  const double tolerance = frame.study.view().info().tolerance;
  const auto finished = [](double gap, bool fails, double loss) {
    TrialRow row;
    row.status = TrialStatus::done;
    row.gap = gap;
    row.fails = fails;
    row.loss = loss;
    return row;
  };
  TrialRow failed;
  failed.status = TrialStatus::failed;
  const bool compares = !frame.study.view().info().baseline.empty();
  const Entry entries[] = {
      {"ok", compares ? "gap up to " + percent(0.25 * tolerance) : "finished",
       finished(0.0, false, 1.0)},
      {"half", "up to " + percent(0.5 * tolerance), finished(0.5 * tolerance, false, 1.0)},
      {"limit", "up to " + percent(tolerance), finished(tolerance, false, 1.0)},
      {"fails", "fails: larger gap", finished(2.0 * tolerance, true, 1.0)},
      {"broken", "fails: not finite or stopped", finished(0.0, true, std::nan(""))},
      {"failed", "not trained", failed},
      {"waiting", "waiting", TrialRow{}}};
  Canvas canvas(frame.picture);
  const float unit = frame.scale, box = 13 * unit;
  bool first = true;
  for (const Entry& entry : entries) {
    const auto trials = frame.study.view().trials();
    const ImU32 color = trial_color(frame, entry.sample);
    if (std::none_of(trials.begin(), trials.end(), [&](const TrialRow& trial) {
          return trial_color(frame, trial) == color && trial.status == entry.sample.status;
        })) {
      continue;
    }
    const float width = box + 6 * unit + text_width(frame.fonts.small, entry.text);
    if (!first) flow(width, 14 * unit);
    first = false;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    draw_cell(frame, canvas, entry.sample, at, {at.x + box, at.y + box});
    canvas.text(*frame.fonts.small,
                {at.x + box + 6 * unit, at.y + (box - font_size(*frame.fonts.small)) / 2},
                frame.theme.soft, entry.text);
    ImGui::Dummy({width, box});
    track_item(std::string("study/key/") + entry.name, entry.text);
  }
  if (frame.facts().cheapest < 0) return;
  const std::string cheapest = "cheapest that never failed";
  const float width = box + 4 * unit + text_width(frame.fonts.small, cheapest);
  flow(width, 14 * unit);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  draw_mark(canvas, PlotMark::diamond, {at.x + box / 2, at.y + box / 2}, 4 * unit,
            frame.theme.good);
  canvas.text(*frame.fonts.small,
              {at.x + box + 4 * unit, at.y + (box - font_size(*frame.fonts.small)) / 2},
              frame.theme.soft, cheapest);
  ImGui::Dummy({width, box});
  track_item("study/key/cheapest", cheapest);
}

void show_cell_tip(const StudyFrame& frame, const TrialRow& trial) {
  PlotTip tip(trial_name(frame.study.view(), frame.facts(), trial));
  tip.row("result", trial_word(trial), trial_color(frame, trial));
  if (trial.fails) tip.row("why", fail_reason(trial));
  if (!trial.error.empty()) tip.row("error", trial.error);
  if (trial.done()) {
    if (!trial.baseline) tip.row("gap", study_gap_text(trial_gap(trial)));
    tip.row("loss", short_number(trial.loss));
    tip.note("Double-click opens the run.");
  }
  tip.show(frame.look(), "study/map/tip");
}

/// Draws the columns of a row before its cells.
void draw_row_head(const StudyFrame& frame, Canvas& canvas, int index, ImVec2 at,
                   const MapColumns& columns) {
  const StudyGroup& group = frame.group(index);
  const Theme& theme = frame.theme;
  const float unit = frame.scale, row = columns.row;
  const float middle = at.y + row / 2;
  const bool cheapest = index == frame.facts().cheapest;
  ImFont& font = group.baseline ? *frame.fonts.text : *frame.fonts.bold;
  const std::string name = fitted(group.name, &font, columns.names - 16 * unit);
  canvas.text(font, {at.x, middle - font_size(font) / 2}, group.baseline ? theme.soft : theme.ink,
              name);
  if (cheapest) {
    draw_mark(canvas, PlotMark::diamond, {at.x + columns.names - 9 * unit, middle}, 4 * unit,
              theme.good);
  }
  track_rect(fmt::format("study/row/{}", index), at, {at.x + columns.names, at.y + row},
             group.name);
  const std::string count =
      group.finished == 0 ? "-" : fmt::format("{} of {}", group.failing, group.finished);
  ImFont& small = *frame.fonts.small;
  const float count_right = at.x + columns.names + columns.counts - 10 * unit;
  canvas.text(small, {count_right - text_width(&small, count), middle - font_size(small) / 2},
              group.failing > 0 ? theme.bad : theme.soft, count);
  track_rect(fmt::format("study/count/{}", index), {at.x + columns.names, at.y},
             {count_right, at.y + row}, count);
  if (columns.shares <= 0.0f || group.finished == 0) return;
  const float left = at.x + columns.names + columns.counts, width = kInterval * unit;
  const auto x_of = [&](double share) { return left + static_cast<float>(share) * width; };
  canvas.fill({left, middle - 2 * unit}, {left + width, middle + 2 * unit}, theme.card_line,
              2 * unit);
  canvas.fill({x_of(group.interval.low), middle - 2 * unit},
              {x_of(group.interval.high), middle + 2 * unit}, theme.in_range, 2 * unit);
  const float share = x_of(group.failing_share());
  canvas.fill({share - unit, middle - 5 * unit}, {share + unit, middle + 5 * unit}, theme.ink);
  track_rect(fmt::format("study/share/{}", index), {left, at.y}, {left + width, at.y + row},
             study_words::share_text(group));
}

MapColumns columns_of(const StudyFrame& frame, float room, float height) {
  const float unit = frame.scale;
  MapColumns columns;
  columns.row = std::clamp(height / static_cast<float>(frame.facts().groups.size()), kRow * unit,
                           kMostRow * unit);
  for (const StudyGroup& group : frame.facts().groups) {
    ImFont* font = group.baseline ? frame.fonts.text : frame.fonts.bold;
    columns.names = std::max(columns.names, text_width(font, group.name) + 26 * unit);
  }
  columns.counts = text_width(frame.fonts.small, "1000 of 1000") + 10 * unit;
  columns.shares = room > 560 * unit ? (kInterval + 16) * unit : 0.0f;
  const auto count = static_cast<float>(frame.facts().columns.size());
  // Names that are cut look alike, so they get the room that cells and reasons leave.
  const float others =
      columns.counts + columns.shares + (count * kMostCell + kLeastWhy + 30) * unit;
  columns.names = std::min(columns.names, std::max(room * 0.3f, room - others));
  columns.cells_left = columns.names + columns.counts + columns.shares;
  columns.cell = std::clamp((room - columns.cells_left - 14 * unit) / count, kLeastCell * unit,
                            kMostCell * unit);
  columns.why_left = columns.cells_left + count * columns.cell + 14 * unit;
  const float rest = room - columns.why_left - 8 * unit;
  columns.why = rest > kLeastWhy * unit ? rest : 0.0f;
  return columns;
}

/// Draws the heads of the columns; seeds as far as they fit.
void draw_map_head(const StudyFrame& frame, Canvas& canvas, ImVec2 at, const MapColumns& columns) {
  ImFont& small = *frame.fonts.small;
  const auto write = [&](float x, std::string_view text) {
    canvas.text(small, {at.x + x, at.y}, frame.theme.soft, text);
  };
  write(0, frame.facts().noun);
  const char* counts = "failing";
  write(columns.names + columns.counts - 10 * frame.scale - text_width(&small, counts), counts);
  if (columns.shares > 0.0f) write(columns.names + columns.counts, "95% interval");
  if (columns.why > 0.0f) write(columns.why_left, "why");
  if (frame.facts().seed_axis < 0) return write(columns.cells_left, "trial");
  const std::vector<std::string>& seeds = frame.facts().columns;
  float free_from = -1.0f;
  for (size_t i = 0; i < seeds.size(); ++i) {
    const std::string text = i == 0 ? "seed " + seeds[0] : seeds[i];
    const float width = text_width(&small, text);
    const float left =
        i == 0 ? columns.cells_left
               : columns.cells_left + (static_cast<float>(i) + 0.5f) * columns.cell - width / 2;
    if (left < free_from) continue;
    write(left, text);
    free_from = left + width + 10 * frame.scale;
  }
}

/// Draws the context menu: the trials as text or picture.
void offer_map_data(const StudyFrame& frame, bool hovered) {
  if (hovered && ImGui::IsMouseReleased(ImGuiMouseButton_Right)) ImGui::OpenPopup("##menu");
  if (!ImGui::BeginPopup("##menu")) return;
  const PlotAction action = draw_data_menu("study/map");
  // As in the report, also on the clipboard.
  const auto table = [&frame](char) { return study_csv(frame.study.view(), frame.facts()); };
  hand_out(frame.requests, action, table, "study-trials", PanelPicture::study_map);
  ImGui::EndPopup();
}

}  // namespace

void draw_study_map(const StudyFrame& frame) {
  const float unit = frame.scale;
  const StudyFacts& facts = frame.facts();
  const std::string title = fmt::format("{} by {}", facts.noun == "plan" ? "Plans" : "Combinations",
                                        facts.seed_axis >= 0 ? "seeds" : "trial");
  draw_part_title(frame, "study/map/title", title);
  draw_legend_of_map(frame);
  ImGui::BeginChild("rows", {0, 0}, false, ImGuiWindowFlags_HorizontalScrollbar);
  const float head = ImGui::GetTextLineHeight() + 2 * unit;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const MapColumns columns = columns_of(frame, room.x, room.y - head - 2 * unit);
  const float row = columns.row;
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const auto groups = static_cast<float>(facts.groups.size());
  const auto seeds = static_cast<float>(facts.columns.size());
  const float cells_right = columns.cells_left + seeds * columns.cell + 2 * unit;
  const ImVec2 size{columns.why > 0.0f ? columns.why_left + columns.why : cells_right,
                    head + groups * row};
  ImGui::InvisibleButton("##map", size);
  track_item("study/map", title);
  const bool over = ImGui::IsItemHovered();
  Canvas canvas(frame.picture);
  draw_map_head(frame, canvas, start, columns);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const auto pointed_at = [over](float place, float size) {
    return over ? static_cast<int>(std::floor(place / size)) : -1;
  };
  const int pointed_row = pointed_at(mouse.y - start.y - head, row);
  const int pointed_column = pointed_at(mouse.x - start.x - columns.cells_left, columns.cell);
  const int selected = frame.picture != nullptr ? -1 : frame.selected();
  const ImVec2 clip_min = ImGui::GetWindowPos();
  const ImVec2 clip_max{clip_min.x + ImGui::GetWindowWidth(),
                        clip_min.y + ImGui::GetWindowHeight()};
  int pointed = -1;
  for (int g = 0; g < static_cast<int>(facts.groups.size()); ++g) {
    const ImVec2 at{start.x, start.y + head + static_cast<float>(g) * row};
    const std::vector<int>& trials = facts.groups[static_cast<size_t>(g)].trials;
    const bool has_selected =
        selected >= 0 && std::find(trials.begin(), trials.end(), selected) != trials.end();
    if (has_selected && frame.state.scrolled_to != frame.trial(selected).hash) {
      frame.state.scrolled_to = frame.trial(selected).hash;
      if (at.y < clip_min.y || at.y + row > clip_max.y) {
        ImGui::SetScrollFromPosY(at.y - clip_min.y);
      }
    }
    if (at.y > clip_max.y || at.y + row < clip_min.y) continue;
    if (has_selected) {
      canvas.fill({at.x - 4 * unit, at.y}, {at.x + size.x, at.y + row}, frame.theme.selection,
                  3 * unit);
    }
    draw_row_head(frame, canvas, g, at, columns);
    if (columns.why > 0.0f) {
      const std::string why = study_words::reasons_text(facts.groups[static_cast<size_t>(g)]);
      ImFont& small = *frame.fonts.small;
      canvas.text(small, {at.x + columns.why_left, at.y + (row - font_size(small)) / 2},
                  frame.theme.soft, fitted(why, &small, columns.why));
    }
    for (int c = 0; c < static_cast<int>(trials.size()); ++c) {
      const float left = at.x + columns.cells_left + static_cast<float>(c) * columns.cell;
      const int index = trials[static_cast<size_t>(c)];
      if (index < 0 || left > clip_max.x || left + columns.cell < clip_min.x) continue;
      const TrialRow& trial = frame.trial(index);
      const float hair = columns.cell > 8 * unit ? 2 * unit : 1.0f;
      const ImVec2 min{std::round(left), std::round(at.y + 3 * unit)};
      const ImVec2 max{std::round(left + columns.cell - hair), std::round(at.y + row - 3 * unit)};
      draw_cell(frame, canvas, trial, min, max);
      const bool here = over && g == pointed_row && c == pointed_column;
      if (here) pointed = index;
      if (index == selected || here) {
        canvas.outline({min.x - unit, min.y - unit}, {max.x + unit, max.y + unit},
                       index == selected ? frame.theme.ink : frame.theme.accent, 2 * unit,
                       2 * unit);
      }
      if (tracker() != nullptr) {
        track_rect(fmt::format("study/cell/{}/{}", g, c), min, max, trial_word(trial));
      }
    }
  }
  if (pointed >= 0) {
    show_cell_tip(frame, frame.trial(pointed));
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) frame.select(pointed);
    if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) frame.open(pointed);
  } else if (over && pointed_row >= 0 && (pointed_column < 0 || mouse.x > start.x + cells_right) &&
             pointed_row < static_cast<int>(facts.groups.size())) {
    const StudyGroup& group = facts.groups[static_cast<size_t>(pointed_row)];
    PlotTip tip(group.name);
    tip.row("failing", seeds_text(facts, group.failing, group.finished));
    tip.row("share, 95% interval", study_words::share_text(group));
    if (!group.reasons.empty()) tip.row("why", study_words::reasons_text(group));
    if (group.gap && !group.baseline) tip.row("median gap", study_gap_text(group.gap));
    if (group.bits) tip.row("bits per number", short_number(*group.bits));
    if (pointed_row == facts.cheapest) tip.note("The cheapest that never failed.");
    tip.show(frame.look(), "study/map/tip");
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) frame.select_group(pointed_row);
  }
  offer_map_data(frame, over);
  ImGui::EndChild();
}

ImVec2 study_map_size(const StudyFacts& facts) {
  constexpr float kHead = 96.0f;  // title, legend, heads of columns
  const auto rows = static_cast<float>(facts.groups.size());
  const auto columns = static_cast<float>(facts.columns.size());
  return {std::clamp(560.0f + 26.0f * columns, 900.0f, 1600.0f), kHead + kRow * rows};
}

}  // namespace halfscope::gui
