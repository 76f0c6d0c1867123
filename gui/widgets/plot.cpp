// SPDX-License-Identifier: MIT
#include "gui/widgets/plot.h"

#include <imgui_internal.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/number_text.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kGrabWidth = 5.0f;  // pixels on either side of a draggable line

bool finite(ImVec2 place) { return std::isfinite(place.x) && std::isfinite(place.y); }

}  // namespace

void draw_mark(Canvas& canvas, PlotMark mark, ImVec2 at, float r, ImU32 color) {
  switch (mark) {
    case PlotMark::triangle_down: {
      const ImVec2 points[] = {
          {at.x - r, at.y - r * 0.8f}, {at.x + r, at.y - r * 0.8f}, {at.x, at.y + r}};
      canvas.polygon(points, color);
      break;
    }
    case PlotMark::diamond: {
      const ImVec2 points[] = {
          {at.x, at.y - r}, {at.x + r, at.y}, {at.x, at.y + r}, {at.x - r, at.y}};
      canvas.polygon(points, color);
      break;
    }
    case PlotMark::cross:
      canvas.line({at.x - r, at.y - r}, {at.x + r, at.y + r}, color, 2.0f);
      canvas.line({at.x - r, at.y + r}, {at.x + r, at.y - r}, color, 2.0f);
      break;
    case PlotMark::dot:
      canvas.circle(at, r, color);
      break;
    case PlotMark::flag: {
      canvas.line({at.x - r * 0.6f, at.y - r}, {at.x - r * 0.6f, at.y + r}, color, 1.5f);
      const ImVec2 points[] = {{at.x - r * 0.6f, at.y - r},
                               {at.x + r, at.y - r * 0.4f},
                               {at.x - r * 0.6f, at.y + r * 0.2f}};
      canvas.polygon(points, color);
      break;
    }
  }
}

// --- Data as text -------------------------------------------------------------------------------

void PlotTable::put(double x, double y) {
  std::vector<double>& row = rows_[x];
  row.resize(names_.size() - 1, std::nan(""));
  row.back() = y;
}

std::string PlotTable::text(char separator) const {
  std::string text;
  const auto number = [&text](double value) {
    if (std::isnan(value)) return;
    std::array<char, 40> digits{};
    text.append(digits.data(),
                std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  };
  for (size_t i = 0; i < names_.size(); ++i) {
    if (i > 0) text += separator;
    text += names_[i];
  }
  text += '\n';
  for (const auto& [x, row] : rows_) {
    number(x);
    for (size_t i = 0; i + 1 < names_.size(); ++i) {
      text += separator;
      if (i < row.size()) number(row[i]);
    }
    text += '\n';
  }
  return text;
}

// --- The plot -----------------------------------------------------------------------------------

Plot::Plot(const PlotLook& look, const PlotSpec& spec)
    : look_(look),
      canvas_(look.picture),
      min_(spec.min),
      max_({std::max(spec.max.x, spec.min.x + 1.0f), std::max(spec.max.y, spec.min.y + 1.0f)}),
      x_(spec.x),
      y_(spec.y),
      right_(spec.right.value_or(spec.y)) {
  x_.from = min_.x;
  x_.to = max_.x;
  y_.from = right_.from = max_.y;
  y_.to = right_.to = min_.y;
  take_input(spec);
  draw_axes(spec);
  canvas_.push_clip(min_, max_);
  name(spec.path);
}

Plot::~Plot() {
  end_name();
  canvas_.pop_clip();
  canvas_.outline({min_.x - 1.0f, min_.y - 1.0f}, {max_.x + 1.0f, max_.y + 1.0f}, look_.theme.axis,
                  1.0f, look_.px(2.0f));
}

void Plot::name(std::string_view name, PlotSide side) {
  end_name();
  const bool has_y = side == PlotSide::right || y_.low < y_.high;
  canvas_.begin_group(name, &x_, has_y ? &y(side) : nullptr);
  in_group_ = true;
}

void Plot::end_name() {
  if (in_group_) canvas_.end_group();
  in_group_ = false;
}

void Plot::take_input(const PlotSpec& spec) {
  const ImVec2 cursor = ImGui::GetCursorScreenPos();
  ImGui::PushID(spec.path.data(), spec.path.data() + spec.path.size());
  ImGui::SetCursorScreenPos(min_);
  ImGui::InvisibleButton("##plot", {max_.x - min_.x, max_.y - min_.y});
  id_ = ImGui::GetItemID();
  hovered_ = ImGui::IsItemHovered();
  const bool active = ImGui::IsItemActive(), released = ImGui::IsItemDeactivated();
  take_wheel();
  track_rect(spec.path, min_, max_, spec.text);

  const ImGuiIO& io = ImGui::GetIO();
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  auto drag = static_cast<Drag>(storage.GetInt(id_));
  if (ImGui::IsItemActivated()) {
    pressed_ = true;
    double_clicked_ = ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
    drag = double_clicked_ ? Drag::ignored : io.KeyShift ? Drag::brush : Drag::pan;
  }
  const bool moved = active && ImGui::IsMouseDragging(ImGuiMouseButton_Left);
  if (drag == Drag::pan && moved) {
    pan_ = ImGui::GetMouseDragDelta(ImGuiMouseButton_Left);
    ImGui::ResetMouseDragDelta(ImGuiMouseButton_Left);
    panning_ = true;
  }
  // A drag beyond the threshold does not count as a click, however small the last move was.
  const bool far = io.MouseDragMaxDistanceSqr[0] >= io.MouseDragThreshold * io.MouseDragThreshold;
  if (released) clicked_ = !far && (drag == Drag::pan || drag == Drag::brush);
  if (drag == Drag::brush && (active || released) && far) {
    const float from = std::clamp(io.MouseClickedPos[0].x, min_.x, max_.x);
    const float to = std::clamp(io.MousePos.x, min_.x, max_.x);
    if (released) {
      brushed_ = std::pair(x_.value(std::min(from, to)), x_.value(std::max(from, to)));
    } else {
      ImDrawList& above = *ImGui::GetForegroundDrawList();
      above.AddRectFilled({from, min_.y}, {to, max_.y}, with_alpha(look_.theme.accent, 0.22f));
      for (const float edge : {from, to}) {
        above.AddLine({edge, min_.y}, {edge, max_.y}, look_.theme.accent);
      }
    }
  }
  if (!active && !pressed_) drag = Drag::none;
  storage.SetInt(id_, static_cast<int>(drag));
  if (hovered_) {
    wheel_ = io.MouseWheel;
    wheel_side_ = io.MouseWheelH;
    // From 1.89 on the wheel turns sideways while Shift is held.
    if (io.KeyShift && wheel_ == 0.0f) std::swap(wheel_, wheel_side_);
  }
  if (spec.menu) draw_menu(spec);
  ImGui::PopID();
  ImGui::SetCursorScreenPos(cursor);
}

void Plot::draw_menu(const PlotSpec& spec) {
  if (hovered_ && ImGui::IsMouseReleased(ImGuiMouseButton_Right)) ImGui::OpenPopup("##menu");
  if (!ImGui::BeginPopup("##menu")) return;
  action_ = draw_data_menu(spec.path);
  if (spec.fits) {
    ImGui::Separator();
    if (ui::menu_item(std::string(spec.path) + "/fit", "Fit", "F")) action_ = PlotAction::fit;
  }
  ImGui::EndPopup();
}

PlotAction draw_data_menu(std::string_view path) {
  const std::string place(path);
  PlotAction action = PlotAction::none;
  if (ui::menu_item(place + "/copy", "Copy data")) action = PlotAction::copy;
  if (ui::menu_item(place + "/export", "Export CSV...")) action = PlotAction::export_csv;
  if (ui::menu_item(place + "/svg", "Export SVG...")) action = PlotAction::export_svg;
  return action;
}

void Plot::draw_axes(const PlotSpec& spec) {
  const Theme& theme = look_.theme;
  ImFont& font = *look_.fonts.small;
  const float gap = look_.px(6.0f), half = font_size(font) / 2.0f;
  canvas_.fill(min_, max_, theme.plot);
  const double apart_y = std::max(20.0, 1.6 * static_cast<double>(font_size(font)));
  const auto label_y = [&](const Tick& tick, float y, bool left) {
    const float width = text_size(font, tick.text).x;
    // Labels at the ends move inwards rather than into the neighbouring plot.
    const float top = std::clamp(y - half, min_.y - half * 0.6f, max_.y - half * 1.4f);
    canvas_.text(font, {left ? min_.x - gap - width : max_.x + gap, top}, theme.soft, tick.text);
  };
  if (spec.y_grid || spec.y_labels) {
    for (const Tick& tick : ticks_of(y_, apart_y, look_.fonts.unicode)) {
      const float y = std::floor(y_.pixel(tick.value));
      if (spec.y_grid) canvas_.fill({min_.x, y}, {max_.x, y + 1.0f}, theme.grid);
      if (spec.y_labels) label_y(tick, y, true);
    }
  }
  if (spec.right) {
    for (const Tick& tick : ticks_of(right_, apart_y, look_.fonts.unicode)) {
      const float y = std::floor(right_.pixel(tick.value));
      canvas_.fill({max_.x - look_.px(4.0f), y}, {max_.x, y + 1.0f}, theme.axis);
      label_y(tick, y, false);
    }
  }
  if (!spec.x_grid && !spec.x_labels) return;
  const double widest = static_cast<double>(std::max(
      text_size(font, grouped(static_cast<int64_t>(x_.high))).x, text_size(font, "0000").x));
  float free_from = -1e9f;
  for (const Tick& tick :
       ticks_of(x_, widest + static_cast<double>(look_.px(28.0f)), look_.fonts.unicode)) {
    const float x = std::floor(x_.pixel(tick.value));
    if (spec.x_grid) canvas_.fill({x, min_.y}, {x + 1.0f, max_.y}, theme.grid);
    if (!spec.x_labels) continue;
    const float width = text_size(font, tick.text).x;
    const float left = std::clamp(x - width / 2.0f, min_.x, std::max(min_.x, max_.x - width));
    if (left < free_from) continue;
    canvas_.text(font, {left, max_.y + look_.px(3.0f)}, theme.soft, tick.text);
    free_from = left + width + gap;
  }
}

double Plot::pointer_x() const noexcept { return x_.value(ImGui::GetIO().MousePos.x); }
double Plot::pointer_y(PlotSide side) const noexcept {
  return y(side).value(ImGui::GetIO().MousePos.y);
}

float Plot::edge(double value, float otherwise) const {
  const float pixel = y_.pixel(value);
  return std::isfinite(pixel) ? std::clamp(pixel, min_.y, max_.y) : otherwise;
}

void Plot::band(double low, double high, ImU32 color) {
  const float top = std::round(edge(high, min_.y)), bottom = std::round(edge(low, max_.y));
  if (bottom > top) canvas_.fill({min_.x, top}, {max_.x, bottom}, color);
}

void Plot::band_label(double low, double high, ImU32 ink, std::string_view label) {
  const float top = std::round(edge(high, min_.y)), bottom = std::round(edge(low, max_.y));
  const ImVec2 size = text_size(*look_.fonts.small, label);
  const float pad = look_.px(3.0f), left = min_.x + look_.px(5.0f);
  if (bottom - top < size.y + look_.px(2.0f)) return;
  tag({left, std::min(top + pad, bottom - size.y - 1.0f)}, ink, label);
}

void Plot::tag(ImVec2 place, ImU32 ink, std::string_view label) {
  const ImVec2 size = text_size(*look_.fonts.small, label);
  const float pad = look_.px(3.0f);
  const float left = std::clamp(place.x, min_.x, std::max(min_.x, max_.x - size.x - 2.0f * pad));
  canvas_.fill({left, place.y - 1.0f}, {left + size.x + 2.0f * pad, place.y + size.y + 1.0f},
               with_alpha(look_.theme.plot, 0.72f), pad);
  text({left + pad, place.y}, ink, label);
}

void Plot::span(double first, double last, ImU32 color) {
  const float from = x_.pixel(first), to = x_.pixel(last);
  if (!std::isfinite(from) || !std::isfinite(to)) return;
  canvas_.fill({std::max(from, min_.x), min_.y}, {std::min(to, max_.x), max_.y}, color);
}

void Plot::stroke(const std::vector<ImVec2>& points, ImU32 color, float width) {
  size_t begin = 0;
  for (size_t i = 0; i <= points.size(); ++i) {
    if (i < points.size() && finite(points[i])) continue;
    const size_t count = i - begin;
    // Lines of whole pixels are drawn with half of the vertices.
    if (count > 1) {
      canvas_.polyline(std::span(points).subspan(begin, count), color,
                       std::max(1.0f, std::round(width * look_.scale)));
    } else if (count == 1) {
      canvas_.circle(points[begin], std::max(2.0f, width * look_.scale), color);
    }
    begin = i + 1;
  }
}

void Plot::line(const Trace& trace, ImU32 color, float width, PlotSide side) {
  std::vector<ImVec2> points;
  points.reserve(trace.points.size());
  const float far = max_.y - min_.y;  // beyond the plot, but not so far that pixels go wrong
  for (const PlotPoint& point : trace.points) {
    const float pixel = y(side).pixel(point.y);
    points.push_back({x_.pixel(point.x), std::isfinite(pixel)
                                             ? std::clamp(pixel, min_.y - far, max_.y + far)
                                             : pixel});
  }
  stroke(points, color, width);
}

void Plot::stairs(const Trace& trace, double end, ImU32 color, float width, PlotSide side) {
  std::vector<ImVec2> points;
  points.reserve(trace.points.size() * 2 + 1);
  for (const PlotPoint& point : trace.points) {
    const ImVec2 at{x_.pixel(point.x), std::round(y(side).pixel(point.y))};
    if (!points.empty() && finite(at) && finite(points.back())) {
      if (at.y == points.back().y) continue;  // still on that step
      points.push_back({at.x, points.back().y});
    }
    points.push_back(at);
  }
  if (!points.empty() && finite(points.back())) {
    points.push_back({x_.pixel(end), points.back().y});
  }
  stroke(points, color, width);
}

void Plot::mark_at_top(PlotMark mark, double x, float y, ImU32 color, float size) {
  const ImVec2 at{x_.pixel(x), min_.y + y};
  if (finite(at)) draw_mark(canvas_, mark, at, look_.px(size), color);
}

void Plot::mark(PlotMark mark, double x, double y_value, ImU32 color, float size, PlotSide side) {
  const ImVec2 at{x_.pixel(x), y(side).pixel(y_value)};
  if (finite(at)) draw_mark(canvas_, mark, at, look_.px(size), color);
}

void Plot::bar(double first, double last, double base, double value, ImU32 color) {
  const float from = x_.pixel(first), to = x_.pixel(last);
  const float bottom = std::clamp(y_.pixel(base), min_.y, max_.y), top = y_.pixel(value);
  if (!std::isfinite(from) || !std::isfinite(to) || !std::isfinite(top)) return;
  const float hair = to - from >= 4.0f ? 1.0f : 0.0f;
  // Draw at least one pixel, so that everything stays visible.
  const float shown = std::min(std::max(top, min_.y), bottom - 1.0f);
  canvas_.fill({std::round(from), shown}, {std::round(to) - hair, bottom}, color);
}

void Plot::outline(double first, double last, double base, double value, ImU32 color) {
  const float from = std::round(x_.pixel(first)), to = std::round(x_.pixel(last));
  const float bottom = std::clamp(y_.pixel(base), min_.y, max_.y), top = y_.pixel(value);
  if (!std::isfinite(from) || !std::isfinite(to) || !std::isfinite(top)) return;
  canvas_.outline({from, std::min(std::max(top, min_.y), bottom - 1.0f)},
                  {to - (to - from >= 4.0f ? 1.0f : 0.0f), bottom + 1.0f}, color);
}

void Plot::v_line(double x, ImU32 color, float width) {
  const float at = std::floor(x_.pixel(x)), size = look_.px(width);
  if (at >= min_.x && at <= max_.x) {
    canvas_.fill({at, min_.y}, {at + std::max(1.0f, size), max_.y}, color);
  }
}

void Plot::h_line(double y_value, ImU32 color, float width, PlotSide side) {
  const float at = std::floor(y(side).pixel(y_value)), size = look_.px(width);
  if (at >= min_.y && at <= max_.y) {
    canvas_.fill({min_.x, at}, {max_.x, at + std::max(1.0f, size)}, color);
  }
}

bool Plot::drag_line(std::string_view path, double* value, bool vertical, ImU32 color,
                     std::string_view label) {
  const Axis& axis = vertical ? x_ : y_;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  float at = std::round(axis.pixel(*value));
  if (!std::isfinite(at)) return false;
  ImGuiStorage& storage = *ImGui::GetStateStorage();
  const ImGuiID line = ImHashStr(path.data(), path.size(), id_);
  const float distance = std::fabs((vertical ? mouse.x : mouse.y) - at);
  const bool over = hovered_ && distance <= look_.px(kGrabWidth);
  if (pressed_ && over && !double_clicked_) {
    storage.SetInt(id_, static_cast<int>(Drag::line));  // instead of panning
    storage.SetInt(ImHashStr("line", 0, id_), static_cast<int>(line));
  }
  const bool held = static_cast<Drag>(storage.GetInt(id_)) == Drag::line &&
                    static_cast<ImGuiID>(storage.GetInt(ImHashStr("line", 0, id_))) == line;
  if (held) {
    *value = std::clamp(axis.value(vertical ? mouse.x : mouse.y), axis.low, axis.high);
    at = std::round(axis.pixel(*value));
  }
  if (over || held) {
    ImGui::SetMouseCursor(vertical ? ImGuiMouseCursor_ResizeEW : ImGuiMouseCursor_ResizeNS);
  }
  const float half = look_.px(over || held ? 1.5f : 1.0f), grab = look_.px(kGrabWidth);
  if (vertical) {
    canvas_.fill({at - half, min_.y}, {at + half, max_.y}, color);
    const ImVec2 handle[] = {{at - grab, min_.y}, {at + grab, min_.y}, {at, min_.y + grab * 1.4f}};
    canvas_.polygon(handle, color);
    track_rect(path, {at - grab, min_.y}, {at + grab, max_.y}, label);
    if (!label.empty()) text({at + grab + look_.px(2.0f), min_.y + look_.px(2.0f)}, color, label);
  } else {
    canvas_.fill({min_.x, at - half}, {max_.x, at + half}, color);
    track_rect(path, {min_.x, at - grab}, {max_.x, at + grab}, label);
    const float above = at - font_size(*look_.fonts.small) - look_.px(3.0f);
    if (!label.empty()) text({min_.x + look_.px(6.0f), above}, color, label);
  }
  return held;
}

bool Plot::drag_v_line(std::string_view path, double* x, ImU32 color, std::string_view label) {
  return drag_line(path, x, true, color, label);
}
bool Plot::drag_h_line(std::string_view path, double* y, ImU32 color, std::string_view label) {
  return drag_line(path, y, false, color, label);
}

void Plot::text(ImVec2 place, ImU32 color, std::string_view text) {
  canvas_.text(*look_.fonts.small, place, color, text);
}

void Plot::message(std::string_view text) {
  const ImVec2 size = text_size(*look_.fonts.text, text);
  canvas_.text(*look_.fonts.text,
               {std::max(min_.x + look_.px(8.0f), (min_.x + max_.x - size.x) / 2.0f),
                (min_.y + max_.y - size.y) / 2.0f},
               look_.theme.soft, text);
}

void Plot::image(std::string_view name, ImTextureID texture, ImVec2 min, ImVec2 max) {
  canvas_.image(name, texture, min, max);
}

// --- Tooltips and legends -----------------------------------------------------------------------

void PlotTip::row(std::string name, std::string value, ImU32 color) {
  rows_.push_back({std::move(name), std::move(value), color});
}
void PlotTip::note(std::string text) { rows_.push_back({std::move(text), ""}); }
void PlotTip::heading(std::string text) {
  rows_.push_back({.name = std::move(text), .value = "", .heading = true});
}

void PlotTip::show(const PlotLook& look, std::string_view path) const {
  std::string all = title_;
  float names = 0.0f;
  bool swatches = false, headings = false;
  for (const Row& row : rows_) {
    all += '\n' + row.name;
    if (!row.value.empty()) {
      all += ' ' + row.value;
      names = std::max(names, ImGui::CalcTextSize(row.name.c_str()).x);
    }
    swatches |= row.color != 0;
    headings |= row.heading;
  }
  const float indent = swatches || headings ? look.px(14.0f) : 0.0f;
  ImGui::BeginTooltip();
  ImGui::PushFont(look.fonts.bold);
  ImGui::TextUnformatted(title_.c_str());
  ImGui::PopFont();
  const float left = ImGui::GetCursorPosX();
  for (const Row& row : rows_) {
    if (row.color != 0) {
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const float middle = at.y + ImGui::GetFontSize() / 2.0f;
      ImGui::GetWindowDrawList()->AddRectFilled({at.x, middle - look.px(1.5f)},
                                                {at.x + look.px(9.0f), middle + look.px(1.5f)},
                                                row.color);
    }
    ImGui::SetCursorPosX(left + (row.value.empty() ? 0.0f : indent));
    ImGui::PushStyleColor(ImGuiCol_Text, row.heading ? look.theme.accent : look.theme.soft);
    ImGui::TextUnformatted(row.name.c_str());
    ImGui::PopStyleColor();
    if (row.value.empty()) continue;
    ImGui::SameLine(left + indent + names + look.px(12.0f));
    ImGui::TextUnformatted(row.value.c_str());
  }
  track_rect(path, ImGui::GetWindowPos(),
             {ImGui::GetWindowPos().x + ImGui::GetWindowSize().x,
              ImGui::GetWindowPos().y + ImGui::GetWindowSize().y},
             all);
  ImGui::EndTooltip();
}

bool is_hidden(const std::vector<std::string>& hidden, std::string_view path) noexcept {
  return std::find(hidden.begin(), hidden.end(), path) != hidden.end();
}

void draw_legend(const PlotLook& look, const std::vector<LegendEntry>& entries, float right,
                 std::vector<std::string>& hidden) {
  ImFont& font = *look.fonts.small;
  const float swatch = look.px(14.0f), gap = look.px(5.0f), between = look.px(12.0f);
  const auto width_of = [&](const LegendEntry& entry) {
    return swatch + gap + text_size(font, entry.label).x;
  };
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float height = ImGui::GetTextLineHeight();
  float width = 0.0f;
  size_t shown = 0;
  for (; shown < entries.size(); ++shown) {
    const float more = width_of(entries[shown]) + (shown > 0 ? between : 0.0f);
    if (begin.x + width + more > right) break;
    width += more;
  }
  Canvas canvas(look.picture);
  float x = std::floor(right - width);
  for (size_t i = 0; i < shown; ++i) {
    const LegendEntry& entry = entries[i];
    const float entry_width = width_of(entry);
    ImGui::SetCursorScreenPos({x, begin.y});
    ImGui::PushID(entry.path.c_str());
    const bool clicked = ImGui::InvisibleButton("##entry", {entry_width, height});
    const bool over = ImGui::IsItemHovered();
    const ImGuiIO& io = ImGui::GetIO();
    const bool alone = clicked && (io.KeyAlt || io.MouseClickedLastCount[0] == 2);
    const bool off = is_hidden(hidden, entry.path);
    track_rect(entry.path, {x, begin.y}, {x + entry_width, begin.y + height}, off ? "off" : "on");
    ImGui::PopID();
    if (over && entry.meaning != nullptr) ui::tip(entry.meaning);
    const ImU32 color = off ? look.theme.faint : entry.color;
    const float middle = std::round(begin.y + height / 2.0f);
    const ImVec2 at{x + swatch / 2.0f, middle};
    if (entry.mark) {
      draw_mark(canvas, *entry.mark, at, look.px(4.0f), color);
    } else if (off) {
      canvas.outline({x, middle - look.px(2.0f)}, {x + swatch, middle + look.px(2.0f)}, color);
    } else {
      canvas.fill({x, middle - look.px(1.0f)}, {x + swatch, middle + look.px(1.0f)}, color);
    }
    canvas.text(font, {x + swatch + gap, middle - font_size(font) / 2.0f},
                off    ? look.theme.faint
                : over ? look.theme.ink
                       : look.theme.soft,
                entry.label);
    if (alone) {
      std::erase_if(hidden, [&](const std::string& path) {
        return std::any_of(entries.begin(), entries.end(),
                           [&](const LegendEntry& each) { return each.path == path; });
      });
      for (const LegendEntry& other : entries) {
        if (other.path != entry.path) hidden.push_back(other.path);
      }
    } else if (clicked) {
      if (off) {
        std::erase(hidden, entry.path);
      } else {
        hidden.push_back(entry.path);
      }
    }
    x += entry_width + between;
  }
  ImGui::SetCursorScreenPos({begin.x, begin.y});
  ImGui::Dummy({0.0f, height});
}

std::string elided(ImFont& font, std::string_view text, float width) {
  if (text_size(font, text).x <= width) return std::string(text);
  // The end of a name says more than its beginning, so it gets the odd character.
  for (size_t kept = text.size() - 1; kept >= 2; --kept) {
    const size_t front = kept / 2;
    std::string shorter(text.substr(0, front));
    shorter += "...";
    shorter += text.substr(text.size() - (kept - front));
    if (text_size(font, shorter).x <= width) return shorter;
  }
  return "...";
}

}  // namespace halfscope::gui
