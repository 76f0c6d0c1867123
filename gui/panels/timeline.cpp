// SPDX-License-Identifier: MIT
// The timeline: a play button, and all steps with their events on one line to scrub.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/panels/events.h"
#include "gui/panels/spectrum.h"
#include "gui/panels/step_plot.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kMostSeconds = 12.0;       ///< a whole run plays in this time or less
constexpr double kColumnsPerSecond = 12.0;  ///< of a short run

PlotMark mark_of(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::bad:
      return PlotMark::cross;
    case Event::Kind::skipped:
    case Event::Kind::scale_down:
      return PlotMark::triangle_down;
    case Event::Kind::scale_up:
      return PlotMark::diamond;
    case Event::Kind::finding:
      break;
  }
  return PlotMark::dot;
}

}  // namespace

void toggle_playing(ViewState& view, const RunModel& run) {
  if (run.step_count() < 2) return;
  view.playing = !view.playing;
  const bool at_end = view.cursor < 0 || view.cursor >= run.step_count() - 1;
  if (view.playing && at_end) view.cursor = 0;
}

void play(ViewState& view, const RunModel& run, double seconds, double& clock) {
  if (!view.playing) {
    clock = 0.0;
    return;
  }
  const auto columns = static_cast<double>(run.columns().size());
  if (columns < 1.0) {
    view.playing = false;
    return;
  }
  const double rate = std::max(kColumnsPerSecond, columns / kMostSeconds);
  clock += seconds * rate;
  const auto advance = static_cast<int64_t>(clock);
  if (advance < 1) return;
  clock -= static_cast<double>(advance);
  const int64_t last = static_cast<int64_t>(run.columns().size()) - 1;
  const int64_t now = view.cursor < 0 ? last : std::max(run.column_of(view.cursor), 0);
  const int64_t next = std::min(last, now + advance);
  view.cursor = run.columns()[static_cast<size_t>(next)].step;
  if (next == last && !run.live()) view.playing = false;
}

void draw_timeline(const Frame& frame) {
  ViewState& view = frame.view;
  const float unit = frame.scale;
  const int64_t count = frame.run.step_count();
  const float height = ImGui::GetFrameHeight();
  const bool playing = view.playing;
  const char* sign =
      frame.fonts.unicode ? (playing ? "\u25a0" : "\u25b6") : (playing ? "stop" : "play");
  ImGui::BeginDisabled(count < 2);
  if (ui::button("timeline/play", sign, {34.0f * unit, height})) toggle_playing(view, frame.run);
  ImGui::EndDisabled();
  ui::tip("Plays the training (Space).");
  ImGui::SameLine();
  ImGui::AlignTextToFramePadding();
  const int64_t step = std::max<int64_t>(frame.at.step, 0);
  ui::text("timeline/step", count == 0
                                ? std::string("no steps yet")
                                : fmt::format("step {} of {}", grouped(step), grouped(count - 1)));
  const float text_end = ImGui::GetItemRectMax().x - ImGui::GetWindowPos().x;
  const float left =
      std::max(text_end, text_width(frame.fonts.text, "step 100,000 of 100,000") + 50.0f * unit);
  ImGui::SameLine(left + 10.0f * unit);
  const float width = std::max(ImGui::GetContentRegionAvail().x - 8.0f * unit, 40.0f * unit);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::PushID("timeline/track");
  ImGui::InvisibleButton("##track", {width, height});
  ImGui::PopID();
  track_item("timeline/track", grouped(step));
  const double most = static_cast<double>(std::max<int64_t>(count - 1, 1));
  const auto x_of = [&](double value) { return at.x + static_cast<float>(value / most) * width; };
  if (ImGui::IsItemActive() && ImGui::IsMousePosValid() && count > 0) {
    const double place = static_cast<double>((ImGui::GetIO().MousePos.x - at.x) / width) * most;
    view.cursor = std::clamp<int64_t>(std::llround(place), 0, count - 1);
    view.playing = false;
  }
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float middle = at.y + height * 0.68f;
  draw.AddRectFilled({at.x, middle - 2 * unit}, {at.x + width, middle + 2 * unit}, frame.theme.axis,
                     2 * unit);
  const float here = x_of(static_cast<double>(step));
  if (view.merge_steps && !view.range.all()) {
    draw.AddRectFilled({x_of(view.range.first), middle - 2 * unit},
                       {x_of(view.range.last), middle + 2 * unit}, frame.theme.accent);
  } else if (view.merge_steps) {
    draw.AddRectFilled({at.x, middle - 2 * unit}, {at.x + width, middle + 2 * unit},
                       frame.theme.accent, 2 * unit);
  } else {
    draw.AddRectFilled({at.x, middle - 2 * unit}, {here, middle + 2 * unit}, frame.theme.accent,
                       2 * unit);
  }
  const std::vector<Event>& events = lane_events(frame);
  Canvas canvas;
  float free_from = -1e9f;
  for (const Event& event : events) {
    const float x = x_of(static_cast<double>(event.step));
    if (x < free_from) continue;
    draw_mark(canvas, mark_of(event.kind), {x, at.y + 5.0f * unit}, 4.0f * unit,
              event_color(frame.theme, event.kind));
    free_from = x + 3.0f * unit;
  }
  for (const Note& note : view.notes) {
    if (note.step >= count) continue;
    const float x = x_of(static_cast<double>(note.step));
    draw_mark(canvas, PlotMark::flag, {x, at.y + 5.0f * unit}, 5.0f * unit, frame.theme.accent);
    track_rect(fmt::format("timeline/note/{}", note.step), {x - 4.0f * unit, at.y},
               {x + 4.0f * unit, at.y + 10.0f * unit}, note.text);
  }
  draw.AddCircleFilled({here, middle}, 6.0f * unit, frame.theme.cursor);
  if (ImGui::IsItemHovered() && !ImGui::IsItemActive() && count > 0) {
    const double pointed = static_cast<double>((ImGui::GetIO().MousePos.x - at.x) / width) * most;
    const double near_by = 5.0 * static_cast<double>(unit) / static_cast<double>(width) * most;
    const int64_t under = std::clamp<int64_t>(std::llround(pointed), 0, count - 1);
    view.hovered_step = under;
    PlotTip tip("Step " + grouped(under));
    for (const Note& note : view.notes) {
      if (std::fabs(static_cast<double>(note.step) - pointed) > near_by) continue;
      tip.row(grouped(note.step) + ": note", note.text, frame.theme.accent);
    }
    size_t listed = 0;
    for (const Event& event : events) {
      if (std::fabs(static_cast<double>(event.step) - pointed) > near_by || listed == 6) continue;
      tip.row(fmt::format("{}: {}", grouped(event.step), event_name(event.kind)), event.text,
              event_color(frame.theme, event.kind));
      ++listed;
    }
    tip.show(look_of(frame), "timeline/tip");
  }
}

}  // namespace halfscope::gui
