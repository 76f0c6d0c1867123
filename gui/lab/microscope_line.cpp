// SPDX-License-Identifier: MIT
// One rounding, to scale: the format's values as ticks, the exact value, the stored one, and
// fp32's. Below it the bits that are kept and thrown away.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/lab/number_text.h"
#include "gui/lab/microscope_parts.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// The part of the real line that is drawn.
struct Span {
  double low = 0.0, high = 1.0;
  float left = 0.0f, right = 1.0f;
  bool has(double value) const { return value >= low && value <= high; }
  float x(double value) const {
    const double part = std::clamp((value - low) / (high - low), -1.0, 2.0);
    return left + static_cast<float>(part) * (right - left);
  }
};

std::string tick_text(double value) { return fmt::format("{:.7g}", value + 0.0); }

/// Returns the next value of the station's format, in its unit.
double next_value(const Station& station, double value, int by) {
  const float code = static_cast<float>(value / station.unit);
  return static_cast<double>(neighbour(code, by, station.format)) * station.unit;
}

class StationLine {
 public:
  StationLine(const LabFrame& frame, const Station& station, float width)
      : frame_(frame),
        station_(station),
        list_(*ImGui::GetWindowDrawList()),
        at_(ImGui::GetCursorScreenPos()),
        width_(width),
        small_(frame.fonts.small),
        line_(font_size(*frame.fonts.small)),
        y_(at_.y + line_ + frame.px(26)) {
    span_.left = at_.x + frame.px(10);
    span_.right = at_.x + width - frame.px(10);
  }

  void draw() {
    const float bottom = y_ + 2 * line_ + frame_.px(30);
    list_.AddRectFilled(at_, {at_.x + width_, bottom}, frame_.theme.plot, frame_.px(4));
    std::string told;
    if (!std::isfinite(station_.exact)) {
      told = "infinity or NaN: there is no bin";
      text_at((span_.left + span_.right) / 2, y_ - line_ / 2, told, frame_.theme.bad);
    } else if (station_.loss == StationLoss::overflow) {
      told = beyond_largest();
    } else if (!station_.rounds || !std::isfinite(station_.below) ||
               !std::isfinite(station_.above)) {
      told = unrounded();
    } else {
      told = bin();
    }
    ImGui::Dummy({width_, bottom - at_.y});
    track_item("lab/step/line", told);
    ui::tip(
        "The number line, to scale. Ticks are the values that the format has. The triangle is the "
        "exact value, the dot the stored one, the ring fp32's. Everything in the shaded bin is "
        "stored as the same value when rounding to nearest.");
  }

 private:
  void text_at(float x, float y, const std::string& text, ImU32 color) {
    const float size = text_width(small_, text);
    const float from =
        std::clamp(std::round(x - size / 2), at_.x + frame_.px(4),
                   std::max(at_.x + frame_.px(4), at_.x + width_ - size - frame_.px(4)));
    list_.AddText(small_, line_, {from, y}, color, text.c_str());
  }
  void axis() {
    list_.AddLine({span_.left, y_}, {span_.right, y_}, frame_.theme.axis, 2 * frame_.scale);
  }
  void tick(double value, bool named) {
    if (!span_.has(value)) return;
    const float x = std::round(span_.x(value));
    list_.AddLine({x, y_ - frame_.px(7)}, {x, y_ + frame_.px(7)},
                  named ? frame_.theme.ink : frame_.theme.soft,
                  frame_.scale * (named ? 2.0f : 1.0f));
    if (named) text_at(x, y_ + frame_.px(11), tick_text(value), frame_.theme.ink);
  }
  /// The exact value, from above.
  void exact(float x) {
    const float tip = y_ - frame_.px(3);
    list_.AddTriangleFilled({x, tip}, {x - frame_.px(6), tip - frame_.px(11)},
                            {x + frame_.px(6), tip - frame_.px(11)}, frame_.theme.cursor);
    text_at(x, tip - frame_.px(14) - line_, "exact", frame_.theme.ink);
  }
  void stored(double value) {
    if (!span_.has(value)) return;
    const float x = span_.x(value);
    list_.AddCircleFilled({x, y_}, frame_.px(6), frame_.fraction_color());
  }
  /// fp32's value as a ring, or an arrow to where it is.
  void twin() {
    const double value = station_.twin;
    const float y = y_ + frame_.px(15) + line_;
    if (std::isnan(value)) return;
    const ImU32 color = frame_.exponent_color();
    if (span_.has(value)) {
      const float x = span_.x(value);
      list_.AddCircle({x, y_}, frame_.px(8), color, 0, 2 * frame_.scale);
      text_at(x, y, "fp32", color);
      return;
    }
    const bool right = value > span_.high;
    const float x = right ? span_.right : span_.left, by = right ? frame_.px(7) : -frame_.px(7);
    list_.AddTriangleFilled({x + by, y_}, {x - by / 2, y_ - frame_.px(6)},
                            {x - by / 2, y_ + frame_.px(6)}, color);
    const double bin = std::fabs(station_.above - station_.below);
    const double away = std::fabs(value - station_.exact) / bin;
    const std::string far = std::isfinite(away) && station_.rounds
                                ? fmt::format("fp32: {:.5g}, {:.3g} bins away", value, away)
                                : fmt::format("fp32: {:.5g}", value);
    text_at(x, y, far, color);
  }

  std::string bin() {
    const double low = std::min(station_.below, station_.above);
    const double high = std::max(station_.below, station_.above);
    const double gap = high - low;
    span_.low = low - 0.75 * gap;
    span_.high = high + 0.75 * gap;
    // Everything that rounds to the stored value: half of the way to each neighbor.
    const double kept = station_.stored;
    if (std::isfinite(kept) && (kept == low || kept == high)) {
      const double from = (kept + next_value(station_, kept, -1)) / 2;
      const double to = (kept + next_value(station_, kept, 1)) / 2;
      const float left = std::max(span_.x(from), span_.left);
      const float right = std::min(span_.x(to), span_.right);
      list_.AddRectFilled({left, y_ - frame_.px(7)}, {right, y_ + frame_.px(7)},
                          with_alpha(frame_.fraction_color(), 0.25f));
    }
    axis();
    tick(next_value(station_, low, -1), false);
    tick(next_value(station_, high, 1), false);
    tick(low, true);
    tick(high, true);
    const float middle = std::round(span_.x((low + high) / 2));
    for (float y = y_ - frame_.px(9); y < y_ + frame_.px(9); y += frame_.px(5)) {
      list_.AddLine({middle, y}, {middle, y + frame_.px(2)}, frame_.theme.soft, frame_.scale);
    }
    const float x = span_.x(station_.exact);
    if (station_.stored != station_.exact && span_.has(station_.stored)) {
      const float to = span_.x(station_.stored);
      list_.AddLine({x, y_}, {to, y_}, loss_color(frame_.theme, station_.loss), 4 * frame_.scale);
    }
    stored(station_.stored);
    exact(x);
    twin();
    return fmt::format("{} to {}", tick_text(low), tick_text(high));
  }

  std::string beyond_largest() {
    const double sign = station_.exact < 0 ? -1.0 : 1.0;
    const double largest = sign * station_.format.max_finite() * station_.unit;
    // Far beyond, the scale would hide the largest number: it stays at a third.
    const double end = std::max(std::fabs(station_.exact), 1.5 * std::fabs(largest)) * 1.25;
    span_.low = sign > 0 ? 0.0 : -end;
    span_.high = sign > 0 ? end : 0.0;
    axis();
    const float x = span_.x(largest), edge = sign > 0 ? span_.right : span_.left;
    list_.AddRectFilled({std::min(x, edge), y_ - frame_.px(7)},
                        {std::max(x, edge), y_ + frame_.px(7)},
                        with_alpha(frame_.theme.bad, 0.25f));
    tick(0.0, true);
    tick(largest, true);
    exact(span_.x(station_.exact));
    stored(station_.stored);
    twin();
    return "beyond " + tick_text(largest);
  }

  /// Nothing is rounded: only the value and fp32's.
  std::string unrounded() {
    const double value = station_.exact;
    const double other = std::isfinite(station_.twin) ? station_.twin : value;
    double reach = std::max(std::fabs(value - other), std::fabs(value) * 0x1p-8);
    if (reach == 0.0) reach = 1.0;
    const double middle = (value + other) / 2;
    span_.low = middle - 1.2 * reach;
    span_.high = middle + 1.2 * reach;
    axis();
    stored(value);
    text_at(span_.x(value), y_ - frame_.px(14) - line_, tick_text(value), frame_.theme.ink);
    twin();
    return "not rounded";
  }

  const LabFrame& frame_;
  const Station& station_;
  ImDrawList& list_;
  ImVec2 at_;
  float width_;
  ImFont* small_;
  float line_, y_;
  Span span_{};
};

}  // namespace

void draw_station_line(const LabFrame& frame, const Station& station, float width) {
  StationLine(frame, station, width).draw();
}

void draw_station_bits(const LabFrame& frame, const Station& station, float width) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImFont* const mono = frame.fonts.mono;
  ImFont* const small = frame.fonts.small;
  const std::string sign = station.exact < 0 ? "-" : "";
  const std::string digits = sign + station.kept;
  const size_t cells = digits.size() + station.dropped.size();
  if (station.kept.empty()) {
    label("lab/step/bits",
          station.exact == 0.0 ? "Zero has no bits to round." : "Out of range: no bits are kept.",
          frame.fonts.text, frame.theme.soft, width);
    return;
  }
  const float gap = frame.px(8);
  const float cell = std::min(frame.px(15), (width - gap) / static_cast<float>(cells));
  const float height = std::round(font_size(*mono) + frame.px(6));
  float x = at.x;
  const size_t first_one = station.kept.find('1');
  const auto draw = [&](char bit, ImU32 color, bool filled, bool faint) {
    const std::string text(1, bit);
    if (bit != '.' && bit != '-') {
      list.AddRectFilled({x + 1, at.y}, {x + cell - 1, at.y + height},
                         with_alpha(color, filled ? 0.30f : 0.14f), frame.px(2));
      if (!filled) {
        list.AddRect({x + 1, at.y}, {x + cell - 1, at.y + height}, with_alpha(color, 0.7f),
                     frame.px(2));
      }
    }
    const float text_size = std::min(font_size(*mono), cell * 1.6f);
    const float shift = (cell - text_width(mono, text) * text_size / font_size(*mono)) / 2;
    list.AddText(mono, text_size, {std::round(x + shift), at.y + (height - text_size) / 2},
                 faint ? frame.theme.faint : frame.theme.ink, text.c_str());
    x += cell;
  };
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool leading = i < sign.size() + std::min(first_one, station.kept.size());
    draw(digits[i], frame.fraction_color(), true, leading);
  }
  // The names below need their room, too: some formats keep a single bit.
  const float middle = std::max(x, at.x + text_width(small, "kept"));
  if (!station.dropped.empty()) {
    x = middle + gap;
    for (const char bit : station.dropped) draw(bit, frame.theme.lost, false, false);
  }
  const float below = at.y + height + frame.px(2);
  list.AddText(small, font_size(*small), {at.x, below}, frame.fraction_color(), "kept");
  if (!station.dropped.empty()) {
    const char* const away = station.dropped.size() < 24 ? "thrown away" : "thrown away ...";
    list.AddText(small, font_size(*small), {middle + gap, below}, frame.theme.lost, away);
  } else if (text_width(small, "kept, all of them") < width) {
    list.AddText(small, font_size(*small), {at.x + text_width(small, "kept"), below},
                 frame.fraction_color(), ", all of them");
  }
  ImGui::Dummy({std::max(x - at.x, frame.px(120)), height + font_size(*small) + frame.px(4)});
  track_item("lab/step/bits", digits + "|" + station.dropped);
  ui::tip(
      "The significand of the exact value. The format keeps the bits on the left. The bits on the "
      "right decide whether it rounds up or down, and are gone afterwards.");
}

}  // namespace halfscope::gui
