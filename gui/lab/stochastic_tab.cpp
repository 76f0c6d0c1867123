// SPDX-License-Identifier: MIT
// Stochastic rounding as balls that fall from a value onto one of its two neighbors, and the mean
// that approaches the value.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/lab/lab_tabs.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr double kFall = 0.7;         ///< seconds of one ball in the air
constexpr double kPour = 2.0;         ///< seconds for many balls, apart from the last fall
constexpr double kBallsDrawn = 90.0;  ///< at most, at one time

/// Starts over after an edit.
void refresh(DropsState& drops, double value, const FloatFormat& format) {
  const std::string key = fmt::format("{}/{}/{}", value, format_name(format), drops.seed);
  if (drops.drops_of == key) return;
  drops.drops_of = key;
  drops.drops = StochasticDrops(value, format, drops.seed);
  drops.released = 0.0;
  drops.wanted = 0;
}

void drop_more(DropsState& drops, int64_t balls) {
  drops.wanted += balls;
  const double waiting = static_cast<double>(drops.wanted) - drops.released;
  drops.per_second = std::max(4.0, waiting / kPour);
}

/// Moves the balls on and returns how many are in the air.
double advance(const LabFrame& frame) {
  DropsState& drops = frame.lab.drops;
  const double flying = drops.per_second * kFall;
  const double end = static_cast<double>(drops.wanted) + flying;
  if (drops.drops.count() < drops.wanted) {
    drops.released = std::min(
        end, drops.released + drops.per_second * static_cast<double>(ImGui::GetIO().DeltaTime));
    const double landed = drops.released >= end ? static_cast<double>(drops.wanted)
                                                : std::floor(drops.released - flying);
    drops.drops.drop_to(std::max<int64_t>(0, static_cast<int64_t>(landed)));
    frame.lab.moving = true;
  } else {
    drops.released = static_cast<double>(drops.wanted);
  }
  return flying;
}

void draw_board(const LabFrame& frame, float width, float height, double flying) {
  const DropsState& state = frame.lab.drops;
  const StochasticDrops& drops = state.drops;
  const FloatFormat& format = frame.lab.shown();
  const Theme& theme = frame.theme;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = frame.fonts.text;
  const float line = font_size(*font) + frame.px(4);
  list.AddRectFilled(at, {at.x + width, at.y + height}, theme.plot);
  // A negative value has its neighbor away from zero on the left.
  const bool mirrored = drops.place().above < drops.place().below;
  const double part = mirrored ? 1.0 - drops.place().fraction : drops.place().fraction;
  const float left = at.x + width * 0.16f, right = at.x + width * 0.84f;
  const float top = at.y + line + frame.px(12), rail = at.y + height * 0.42f;
  const float floor = at.y + height - line * 2.0f - frame.px(8),
              x = left + (right - left) * static_cast<float>(part);
  const float bin = width * 0.13f;

  // The two neighbors, the value between them, and its peg.
  list.AddLine({left, rail}, {right, rail}, theme.axis, frame.px(2));
  for (int i = 0; i <= 10; ++i) {
    const float tick = left + (right - left) * static_cast<float>(i) / 10.0f;
    list.AddLine({tick, rail - frame.px(i % 5 == 0 ? 5 : 3)}, {tick, rail}, theme.axis,
                 frame.scale);
  }
  list.AddTriangleFilled({x, rail - frame.px(9)}, {x + frame.px(7), rail + frame.px(3)},
                         {x - frame.px(7), rail + frame.px(3)}, theme.cursor);
  lab_centered(font, x, at.y + frame.px(5), theme.ink,
               fmt::format("{} is {} of the way", brief_text(drops.value(), 9), percent(part)));
  list.AddLine({x, top}, {x, rail - frame.px(9)}, with_alpha(theme.cursor, 0.25f), frame.scale);

  const int64_t count = drops.count();
  const double shares[2] = {1.0 - part, part};
  const int64_t away = drops.away(), near = count - away;
  const int64_t counts[2] = {mirrored ? away : near, mirrored ? near : away};
  const float values[2] = {mirrored ? drops.place().above : drops.place().below,
                           mirrored ? drops.place().below : drops.place().above};
  const float centers[2] = {left, right};
  const float full = floor - rail - frame.px(26);
  for (int side = 0; side < 2; ++side) {
    const float center = centers[side];
    const ImU32 color = side == 0 ? theme.lines[2] : theme.lines[1];
    const double share =
        count > 0 ? static_cast<double>(counts[side]) / static_cast<double>(count) : 0.0;
    const float y = floor - full * static_cast<float>(share);
    list.AddRectFilled({center - bin, y}, {center + bin, floor}, with_alpha(color, 0.55f));
    for (const float wall : {center - bin, center + bin}) {
      list.AddLine({wall, rail + frame.px(22)}, {wall, floor}, theme.axis, frame.px(1.5f));
    }
    list.AddLine({center - bin, floor}, {center + bin, floor}, theme.axis, frame.px(1.5f));
    // Dashes at the exact share.
    const float expected = floor - full * static_cast<float>(shares[side]);
    for (float dash = center - bin; dash < center + bin; dash += frame.px(10)) {
      list.AddLine({dash, expected}, {std::min(dash + frame.px(6), center + bin), expected},
                   theme.ink, frame.px(1.5f));
    }
    lab_centered(font, center, floor + frame.px(4), theme.ink, value_text(values[side], format));
    const std::string text = fmt::format("{} ({}, exactly {})", grouped(counts[side]),
                                         count > 0 ? percent(share) : "-", percent(shares[side]));
    lab_centered(frame.fonts.small, center, floor + frame.px(4) + line, theme.soft,
                 fitted(text, frame.fonts.small, width * 0.46f));
    track_rect(side == 0 ? "lab/drops/left" : "lab/drops/right", {center - bin, rail},
               {center + bin, floor}, std::to_string(counts[side]));
  }
  // The balls in the air: down to the peg, then in an arc into a bin.
  const double first = static_cast<double>(drops.count());
  const double step = std::max(1.0, std::ceil(flying / kBallsDrawn));
  for (double ball = first; ball < std::min(state.released, static_cast<double>(state.wanted));
       ball += step) {
    const double age = (state.released - ball) / std::max(flying, 1e-9);
    if (age < 0.0 || age > 1.0) continue;
    const bool goes_right = drops.goes_away(static_cast<int64_t>(ball)) != mirrored;
    const float target = goes_right ? right : left;
    constexpr float kPeg = 0.45f;
    const float t = static_cast<float>(age);
    ImVec2 place{
        x, top + (rail - frame.px(12) - top) * std::min(t / kPeg, 1.0f) * std::min(t / kPeg, 1.0f)};
    if (t > kPeg) {
      const float u = (t - kPeg) / (1.0f - kPeg);
      place = {x + (target - x) * u,
               rail - frame.px(12) - frame.px(26) * 4 * u * (1 - u) + (floor - rail) * u * u};
    }
    list.AddCircleFilled(place, frame.px(4), goes_right ? theme.lines[1] : theme.lines[2]);
  }
  ImGui::Dummy({width, height});
  track_item("lab/drops/board", fmt::format("{} balls", count));
  ui::tip(
      "Every ball is the same value, rounded with its own random number. The dashed lines are "
      "the shares that probability promises.");
}

/// Draws the mean over the number of balls, with one standard deviation around the value.
void draw_mean(const LabFrame& frame, float width, float height) {
  const StochasticDrops& drops = frame.lab.drops.drops;
  const Theme& theme = frame.theme;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* font = frame.fonts.small;
  const float line = font_size(*font) + frame.px(4);
  const ImVec2 min{at.x + frame.px(70), at.y + line}, max{at.x + width, at.y + height - line};
  list.AddText(font, font_size(*font), {min.x, at.y}, theme.soft,
               "mean of all balls so far (band: one standard deviation)");
  list.AddRectFilled(min, max, theme.plot);
  const double low =
      std::min(static_cast<double>(drops.place().below), static_cast<double>(drops.place().above));
  const double high =
      std::max(static_cast<double>(drops.place().below), static_cast<double>(drops.place().above));
  const double last = std::max(100.0, static_cast<double>(drops.count()));
  const auto place = [&](double count, double value) {
    const double part = std::log10(count) / std::log10(last);
    const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
    return ImVec2(min.x + (max.x - min.x) * static_cast<float>(part),
                  max.y - (max.y - min.y) * static_cast<float>(0.06 + 0.88 * share));
  };
  list.PushClipRect(min, max, true);
  for (float x = min.x; x < max.x; x += frame.px(1)) {
    const double count = std::pow(last, static_cast<double>((x - min.x) / (max.x - min.x)));
    const double off = drops.deviation() / std::sqrt(count);
    list.AddRectFilled({x, place(count, drops.value() + off).y},
                       {x + frame.px(1), place(count, drops.value() - off).y},
                       with_alpha(theme.accent, 0.16f));
  }
  const float middle = place(1.0, drops.value()).y;
  list.AddLine({min.x, middle}, {max.x, middle}, theme.cursor, frame.scale);
  std::vector<ImVec2> points;
  for (const StochasticDrops::Point& point : drops.history()) {
    points.push_back(place(static_cast<double>(point.count), point.mean));
  }
  list.AddPolyline(points.data(), static_cast<int>(points.size()), theme.lines[1], 0, frame.px(2));
  list.PopClipRect();
  for (const double value : {low, drops.value(), high}) {
    const std::string text = brief_text(value, 6);
    list.AddText(font, font_size(*font),
                 {min.x - frame.px(6) - text_width(font, text),
                  std::round(place(1.0, value).y - font_size(*font) / 2)},
                 value == drops.value() ? theme.ink : theme.soft, text.c_str());
  }
  for (double count = 1.0; count <= last; count *= 10.0) {
    const float x = place(count, low).x;
    const std::string text = grouped(static_cast<int64_t>(count));
    list.AddLine({x, max.y - frame.px(4)}, {x, max.y}, theme.axis);
    list.AddText(font, font_size(*font),
                 {std::min(x, max.x - text_width(font, text)), max.y + frame.px(2)}, theme.soft,
                 text.c_str());
  }
  ImGui::Dummy({width, height});
  track_item("lab/drops/mean_chart", fmt::format("{} points", points.size()));
}

}  // namespace

void draw_stochastic_tab(const LabFrame& frame) {
  FloatLab& lab = frame.lab;
  DropsState& state = lab.drops;
  lab_format(frame);
  lab_field(frame, "lab/drops/value", "value", &state.value, frame.px(140), frame.px(16));
  const std::optional<double> value = read_double(state.value);
  if (!value) {
    label("lab/drops/problem", "'" + state.value + "' is not a number", frame.fonts.text,
          frame.theme.bad);
    return;
  }
  refresh(state, *value, lab.shown());
  if (lab_button(frame, "lab/drops/one", "Drop 1")) drop_more(state, 1);
  if (lab_button(frame, "lab/drops/many", "Drop 1000")) drop_more(state, 1000);
  if (lab_button(frame, "lab/drops/again", "Other seed")) {
    ++state.seed;
    refresh(state, *value, lab.shown());
  }
  ui::tip("Starts over with other random numbers. The same seed always gives the same balls.");
  flow(frame.px(70), frame.px(10));
  ImGui::AlignTextToFramePadding();
  label("lab/drops/seed", fmt::format("seed {}", state.seed), frame.fonts.text, frame.theme.soft);
  if (!state.drops.valid()) {
    label(
        "lab/drops/problem",
        std::isfinite(*value) && std::fabs(*value) <= lab.shown().max_finite()
            ? fmt::format("{} is a number of {}: nothing to round. Enter one between two numbers.",
                          state.value, format_name(lab.shown()))
            : "There are no two neighbors here. Enter a smaller number.",
        frame.fonts.text, frame.theme.bad);
    return;
  }
  const double flying = advance(frame);
  const StochasticDrops& drops = state.drops;
  const float room = std::max(ImGui::GetContentRegionAvail().x, frame.px(300));
  const bool beside = room > frame.px(860);
  const float text = 3.0f * (font_size(*frame.fonts.text) + frame.px(5));
  const float height = lab_room(frame, beside ? 260 : 420, frame.px(8));
  const float board = beside ? std::floor(room * 0.55f) : room;
  const float mean = beside ? room - board - frame.px(20) : room;
  draw_board(frame, board, beside ? height : std::floor(height * 0.55f), flying);
  if (beside) ImGui::SameLine(0, frame.px(20));
  ImGui::BeginGroup();
  const std::string mean_text =
      drops.count() == 0
          ? "No balls yet."
          : fmt::format("{}: mean {}, {} off the value.", counted(drops.count(), "ball"),
                        brief_text(drops.mean(), 9), brief_text(drops.mean() - drops.value(), 3));
  lab_sentence("lab/drops/mean", mean_text, frame.theme.ink, mean);
  lab_sentence(
      "lab/drops/law",
      fmt::format("Round to nearest is always {} off. The mean of stochastic rounding is "
                  "off by about {} / sqrt(balls), and has no bias.",
                  brief_text(std::min(drops.place().fraction, 1.0 - drops.place().fraction) *
                                 std::fabs(static_cast<double>(drops.place().above) -
                                           static_cast<double>(drops.place().below)),
                             3),
                  brief_text(drops.deviation(), 3)),
      frame.theme.soft, mean);
  draw_mean(frame, mean,
            beside ? std::max(height - text - frame.px(6), frame.px(120))
                   : std::max(std::floor(height * 0.45f) - text, frame.px(130)));
  ImGui::EndGroup();
}

}  // namespace halfscope::gui
