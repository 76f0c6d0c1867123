// SPDX-License-Identifier: MIT
// The charts of a study: cost against loss gap of all groups, and the losses of the selected one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "analysis/export/csv_field.h"
#include "analysis/rules/text.h"
#include "analysis/study/gap_axis.h"
#include "core/number_text.h"
#include "gui/panels/step_plot.h"
#include "gui/study/study_page.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

constexpr float kAxisLabels = 18.0f;  ///< height of the labels under a plot
constexpr float kNear = 12.0f;        ///< the pointer is on a point within this distance
constexpr float kNameDrop = 8.0f;     ///< from a point down to a name under it
constexpr double kNotFinite = 1.06;   ///< place of gaps that are not finite, above all others

/// The rest of the window, without the margins for labels.
struct ChartArea {
  ImVec2 min{}, max{};
};

ChartArea chart_area(const StudyFrame& frame, float left, bool with_label = true) {
  const ImVec2 at = ImGui::GetCursorScreenPos(), room = ImGui::GetContentRegionAvail();
  const float unit = frame.scale;
  return {{at.x + left, at.y + 2 * unit},
          {at.x + room.x - 10 * unit,
           at.y + std::max(room.y - (kAxisLabels + (with_label ? 14 : 0)) * unit, 30 * unit)}};
}

/// Writes what the x axis shows, under its labels.
void name_x_axis(const StudyFrame& frame, const ChartArea& area, std::string_view text) {
  ImFont& small = *frame.fonts.small;
  const float width = text_width(&small, text);
  Canvas canvas(frame.picture);
  canvas.text(small,
              {std::max(area.min.x, (area.min.x + area.max.x - width) / 2),
               area.max.y + (kAxisLabels - 1) * frame.scale},
              frame.theme.soft, text);
}

/// Fills between two lines of a fan.
void fill_band(Plot& plot, const std::vector<LossBand>& fan, double LossBand::*lower,
               double LossBand::*upper, ImU32 color) {
  const auto place = [&](const LossBand& band, double LossBand::*line) {
    const double loss = band.*line;
    // Infinitely large losses leave at the top.
    const float y = std::isfinite(loss) ? plot.y().pixel(loss) : plot.min().y - 4.0f;
    return ImVec2{plot.x().pixel(band.step), std::clamp(std::isfinite(y) ? y : plot.max().y,
                                                        plot.min().y - 4.0f, plot.max().y + 4.0f)};
  };
  std::vector<ImVec2> above, below;
  for (const LossBand& band : fan) {
    above.push_back(place(band, upper));
    below.push_back(place(band, lower));
  }
  plot.canvas().band(above, below, color);
}

template <class PointAt>
void draw_loss_line(Plot& plot, size_t count, ImU32 color, float width, PointAt point_at) {
  plot.line(reduce(plot.x(), count, point_at), color, width);
}

void draw_fan(Plot& plot, const std::vector<LossBand>& fan, ImU32 color, bool is_base) {
  if (!is_base) {
    fill_band(plot, fan, &LossBand::low, &LossBand::high, with_alpha(color, 0.13f));
  }
  fill_band(plot, fan, &LossBand::lower_quartile, &LossBand::upper_quartile,
            with_alpha(color, is_base ? 0.22f : 0.28f));
  draw_loss_line(plot, fan.size(), color, is_base ? 1.0f : 2.0f, [&](size_t i) {
    return PlotPoint{fan[i].step, std::isfinite(fan[i].median) ? fan[i].median : std::nan("")};
  });
}

const LossBand* band_at(const std::vector<LossBand>& fan, double step) {
  const LossBand* nearest = nullptr;
  for (const LossBand& band : fan) {
    if (nearest == nullptr || std::fabs(band.step - step) < std::fabs(nearest->step - step)) {
      nearest = &band;
    }
  }
  return nearest;
}

std::string loss_text(double loss) { return std::isfinite(loss) ? short_number(loss) : "NaN"; }

void show_fan_tip(const StudyFrame& frame, const StudyGroup& group, const StudyGroup* base,
                  double step, ImU32 color) {
  const LossBand* band = band_at(group.fan, step);
  if (band == nullptr) return;
  PlotTip tip("Step " + grouped(static_cast<int64_t>(band->step)));
  tip.row("median", loss_text(band->median), color);
  tip.row("quartiles", loss_text(band->lower_quartile) + " to " + loss_text(band->upper_quartile));
  tip.row("smallest to largest", loss_text(band->low) + " to " + loss_text(band->high));
  tip.row("trials", std::to_string(band->trials));
  if (const LossBand* other = base == nullptr ? nullptr : band_at(base->fan, step)) {
    tip.row("baseline's median", loss_text(other->median), frame.theme.soft);
  }
  tip.show(frame.look(), "study/fan/tip");
}

int base_group(const StudyFrame& frame, const StudyGroup& group) {
  for (const int trial : group.trials) {
    if (trial >= 0 && frame.trial(trial).base)
      return frame.facts().group_of(*frame.trial(trial).base);
  }
  return -1;
}

/// A group's place in the chart of costs.
struct CostPoint {
  int group = 0;
  double bits = 0.0, place = 0.0;
};

std::vector<CostPoint> cost_points(const StudyFrame& frame, const GapAxis& gaps) {
  std::vector<CostPoint> points;
  for (size_t i = 0; i < frame.facts().groups.size(); ++i) {
    const StudyGroup& group = frame.facts().groups[i];
    if (!group.bits || !group.gap) continue;
    // Gaps that are not finite have a strip above the axis.
    points.push_back({static_cast<int>(i), *group.bits,
                      std::isfinite(*group.gap) ? gaps.place(*group.gap) : kNotFinite});
  }
  return points;
}

void show_cost_tip(const StudyFrame& frame, const StudyGroup& group) {
  PlotTip tip(group.name);
  tip.row("bits per number", short_number(*group.bits));
  tip.row("median gap", study_gap_text(group.gap));
  tip.row("smallest to largest",
          study_gap_text(group.least_gap) + " to " + study_gap_text(group.worst_gap));
  tip.row("failing", seeds_text(frame.facts(), group.failing, group.finished));
  if (group.on_front) tip.note("On the Pareto front: nothing beats it in both.");
  tip.show(frame.look(), "study/cost/tip");
}

/// Returns the points of the Pareto front from left to right.
std::vector<CostPoint> front_of(const StudyFrame& frame, const std::vector<CostPoint>& points) {
  std::vector<CostPoint> front;
  for (const CostPoint& point : points) {
    if (frame.group(point.group).on_front) front.push_back(point);
  }
  std::sort(front.begin(), front.end(),
            [](const CostPoint& a, const CostPoint& b) { return a.bits < b.bits; });
  return front;
}

/// Returns whether the straight line from a to b, which is not left of a, crosses the box.
bool line_crosses(const ChartArea& box, ImVec2 a, ImVec2 b) {
  const float left = std::max(a.x, box.min.x), right = std::min(b.x, box.max.x);
  if (left > right) return false;
  const float slope = b.x > a.x ? (b.y - a.y) / (b.x - a.x) : 0.0f;
  const auto [top, bottom] = std::minmax({a.y + slope * (left - a.x), a.y + slope * (right - a.x)});
  return bottom >= box.min.y && top <= box.max.y;
}

/// Draws names beside points where there is room, the front first. Names keep off the front's line
/// and the areas that are `taken`.
void name_points(const StudyFrame& frame, Plot& plot, std::vector<CostPoint> points,
                 std::vector<ChartArea> taken) {
  std::stable_sort(points.begin(), points.end(), [&](const CostPoint& a, const CostPoint& b) {
    return frame.group(a.group).on_front > frame.group(b.group).on_front;
  });
  ImFont& small = *frame.fonts.small;
  const float unit = frame.scale, height = font_size(small);
  const auto pixel_of = [&](const CostPoint& point) {
    return ImVec2{plot.x().pixel(point.bits), plot.y().pixel(point.place)};
  };
  std::vector<ImVec2> line;
  for (const CostPoint& point : front_of(frame, points)) line.push_back(pixel_of(point));
  for (const CostPoint& point : points) {
    const ImVec2 at = pixel_of(point);
    taken.push_back({{at.x - 6 * unit, at.y - 6 * unit}, {at.x + 6 * unit, at.y + 6 * unit}});
  }
  const auto is_free = [&](const ChartArea& box) {
    for (size_t i = 1; i < line.size(); ++i) {
      if (line_crosses(box, line[i - 1], line[i])) return false;
    }
    return box.min.x >= plot.min().x && box.max.x <= plot.max().x && box.min.y >= plot.min().y &&
           box.max.y <= plot.max().y &&
           std::none_of(taken.begin(), taken.end(), [&](const ChartArea& other) {
             return box.min.x < other.max.x && box.max.x > other.min.x && box.min.y < other.max.y &&
                    box.max.y > other.min.y;
           });
  };
  for (const CostPoint& point : points) {
    const std::string name = fitted(frame.group(point.group).name, &small, 150 * unit);
    const float width = text_width(&small, name);
    const ImVec2 at = pixel_of(point);
    const float above = at.y - height - 8 * unit, below = at.y + kNameDrop * unit;
    const float right = at.x - 6 * unit, left = at.x + 6 * unit - width;
    const ImVec2 places[] = {{at.x - width / 2, above},
                             {at.x - width / 2, below},
                             {at.x + 9 * unit, at.y - height / 2},
                             {at.x - 9 * unit - width, at.y - height / 2},
                             {right, above},
                             {left, above},
                             {right, below},
                             {left, below}};
    for (const ImVec2& place : places) {
      const ChartArea box{place, {place.x + width, place.y + height}};
      if (!is_free(box)) continue;
      plot.text(place, frame.theme.ink, name);
      track_rect(fmt::format("study/name/{}", point.group), box.min, box.max, name);
      taken.push_back(box);
      break;
    }
  }
}

/// Draws the line up to which trials do not fail. Returns the areas of the line and its name.
std::vector<ChartArea> draw_tolerance(const StudyFrame& frame, Plot& plot, const GapAxis& gaps) {
  const double tolerance = frame.study.view().info().tolerance;
  if (frame.study.view().info().baseline.empty()) return {};
  const std::string name = "tolerance " + percent(tolerance);
  const ImVec2 size = text_size(*frame.fonts.small, name);
  const float y = plot.y().pixel(gaps.place(tolerance)), right = plot.max().x;
  plot.h_line(gaps.place(tolerance), with_alpha(frame.theme.lost, 0.8f));
  plot.tag({right, y - size.y}, frame.theme.lost, name);
  return {{{plot.min().x, y - 1}, {right, y + 1}},
          {{right - size.x - 8 * frame.scale, y - size.y}, {right, y}}};
}

void draw_cost_points(const StudyFrame& frame, Plot& plot, const std::vector<CostPoint>& points,
                      const GapAxis& gaps, std::vector<ChartArea> taken) {
  const std::vector<CostPoint> front = front_of(frame, points);
  draw_loss_line(plot, front.size(), frame.theme.good, 1.5f, [&](size_t i) {
    return PlotPoint{front[i].bits, front[i].place};
  });
  const int selected = frame.picture != nullptr ? -1 : frame.selected_group();
  for (const CostPoint& point : points) {
    const StudyGroup& group = frame.group(point.group);
    const auto y_of = [&](double gap) {
      return plot.y().pixel(std::isfinite(gap) ? gaps.place(gap) : kNotFinite);
    };
    const ImVec2 at{plot.x().pixel(point.bits), plot.y().pixel(point.place)};
    const float least = y_of(*group.least_gap), most = y_of(*group.worst_gap);
    plot.canvas().line({at.x, least}, {at.x, most}, with_alpha(frame.theme.soft, 0.8f),
                       1.5f * frame.scale);
    const ChartArea whisker{{at.x - frame.scale, most}, {at.x + frame.scale, least}};
    track_rect(fmt::format("study/range/{}", point.group), whisker.min, whisker.max, group.name);
    taken.push_back(whisker);  // no name crosses it
    const ImU32 color = group.failing > 0 ? frame.theme.bad
                        : group.on_front  ? frame.theme.good
                                          : frame.theme.soft;
    const float size = point.group == selected ? 7.0f : 5.0f;
    if (point.group == selected) {
      plot.mark(PlotMark::dot, point.bits, point.place, with_alpha(frame.theme.ink, 0.25f), 10.0f);
    }
    plot.mark(group.failing > 0 ? PlotMark::cross : PlotMark::dot, point.bits, point.place, color,
              size);
    track_rect(fmt::format("study/point/{}", point.group),
               {at.x - 6 * frame.scale, at.y - 6 * frame.scale},
               {at.x + 6 * frame.scale, at.y + 6 * frame.scale}, group.name);
  }
  name_points(frame, plot, points, std::move(taken));
}

/// Returns what the chart of costs shows, a row for each point.
std::string cost_table(const StudyFrame& frame, char separator) {
  std::string text;
  const auto row = [&](std::initializer_list<std::string> fields) {
    for (const std::string& field : fields) {
      text += (&field == fields.begin() ? "" : std::string(1, separator)) + field;
    }
    text += '\n';
  };
  row({"group", "bits", "gap", "least_gap", "worst_gap", "failing", "finished", "pareto"});
  for (const StudyGroup& group : frame.facts().groups) {
    if (!group.bits || !group.gap) continue;
    row({csv_field(group.name), number_text(*group.bits), number_text(*group.gap),
         number_text(*group.least_gap), number_text(*group.worst_gap),
         std::to_string(group.failing), std::to_string(group.finished),
         group.on_front ? "1" : "0"});
  }
  return text;
}

/// Returns the losses of a group over the steps, and its baseline's median.
PlotTable fan_table(const StudyGroup& group, const StudyGroup* base) {
  PlotTable table("step");
  const auto add = [&table](const std::string& name, const std::vector<LossBand>& fan, auto value) {
    table.add(name, fan.size(), [&](size_t i) { return PlotPoint{fan[i].step, value(fan[i])}; });
  };
  add("smallest", group.fan, [](const LossBand& band) { return band.low; });
  add("lower quartile", group.fan, [](const LossBand& band) { return band.lower_quartile; });
  add("median", group.fan, [](const LossBand& band) { return band.median; });
  add("upper quartile", group.fan, [](const LossBand& band) { return band.upper_quartile; });
  add("largest", group.fan, [](const LossBand& band) { return band.high; });
  add("trials", group.fan, [](const LossBand& band) { return static_cast<double>(band.trials); });
  if (base != nullptr) {
    add("baseline's median", base->fan, [](const LossBand& band) { return band.median; });
  }
  return table;
}

}  // namespace

void draw_study_cost(const StudyFrame& frame) {
  draw_part_title(frame, "study/cost/title", "Cost against loss gap");
  ui::tip(
      "Gap to the baseline's loss over the mean width of the numbers that a step reads and "
      "writes. To the left is cheaper, below is better. Lines go from the smallest to the "
      "largest gap. The green line is the Pareto front: what never failed and what nothing "
      "else beats in both. Crosses fail in some trials.");
  const GapAxis gaps(frame.facts(), frame.study.view().info().tolerance);
  const std::vector<CostPoint> points = cost_points(frame, gaps);
  if (points.empty()) {
    return empty_note("study/cost/empty",
                      frame.facts().finished == 0
                          ? "No trial has finished yet."
                          : "No finished trial can be compared with a baseline yet.",
                      frame.theme);
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool infinite = false;
  for (const CostPoint& point : points) {
    low = std::min(low, point.bits);
    high = std::max(high, point.bits);
    const std::optional<double>& worst = frame.group(point.group).worst_gap;
    infinite = infinite || (worst && !std::isfinite(*worst));
  }
  const double room = std::max(0.1 * (high - low), 0.03 * high);
  ImFont& small = *frame.fonts.small;
  float labels = infinite ? text_width(&small, "not finite") : 0.0f;
  for (const double gap : gaps.ticks()) {
    labels = std::max(labels, text_width(&small, study_gap_text(gap)));
  }
  const ChartArea area = chart_area(frame, labels + 8 * frame.scale);
  std::vector<std::pair<double, std::string>> ticks;
  for (const double gap : gaps.ticks()) ticks.emplace_back(gaps.place(gap), study_gap_text(gap));
  if (infinite) ticks.emplace_back(kNotFinite, "not finite");
  const double top = infinite ? kNotFinite + 0.08 : 1.06;
  // Room for a name under the lowest point.
  const double height = std::max(1.0, static_cast<double>(area.max.y - area.min.y));
  const double under =
      std::min(0.4, static_cast<double>(font_size(small) + (kNameDrop + 2) * frame.scale) / height);
  const Axis y{
      .low = -top * under / (1.0 - under), .high = top, .from = area.max.y, .to = area.min.y};
  Canvas outside(frame.picture);
  for (const auto& [place, text] : ticks) {
    outside.text(small,
                 {area.min.x - 6 * frame.scale - text_width(&small, text),
                  y.pixel(place) - font_size(small) / 2},
                 frame.theme.soft, text);
  }
  {
    Plot plot(frame.look(), {.path = "study/cost",
                             .min = area.min,
                             .max = area.max,
                             .x = {.low = std::max(0.0, low - room), .high = high + room},
                             .y = y,
                             .y_labels = false,
                             .y_grid = false,
                             .fits = false});
    for (const auto& [place, text] : ticks) plot.h_line(place, frame.theme.grid);
    draw_cost_points(frame, plot, points, gaps, draw_tolerance(frame, plot, gaps));
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    int nearest = -1;
    float distance = kNear * frame.scale;
    for (const CostPoint& point : points) {
      const float away =
          std::hypot(plot.x().pixel(point.bits) - mouse.x, plot.y().pixel(point.place) - mouse.y);
      if (away >= distance) continue;
      distance = away;
      nearest = point.group;
    }
    if (plot.hovered() && nearest >= 0) {
      show_cost_tip(frame, frame.group(nearest));
      if (plot.clicked()) frame.select_group(nearest);
    }
    const auto table = [&frame](char separator) { return cost_table(frame, separator); };
    hand_out(frame.requests, plot.action(), table, "study-cost", PanelPicture::study_cost);
  }
  name_x_axis(frame, area, "bits per number");
}

void draw_study_fan(const StudyFrame& frame) {
  const int index = frame.selected_group(), selected = frame.selected();
  if (index < 0) return;
  const StudyGroup& group = frame.group(index);
  const int base_index = base_group(frame, group);
  const StudyGroup* base = base_index >= 0 ? &frame.group(base_index) : nullptr;
  draw_part_title(frame, "study/fan/title", "Losses of " + group.name);
  ui::tip(
      "Median, quartiles, and smallest to largest loss over the seeds; gray is the baseline. A "
      "loss that is not finite counts as infinitely large. The thin line is the selected "
      "trial.");
  const FanRange range = fan_range(frame.facts());
  if (group.fan.empty() || range.low > range.high) {
    return empty_note("study/fan/empty",
                      fmt::format("No trial of {} has finished yet.", group.name), frame.theme);
  }
  const bool log = range.low > 0.0 && range.high / range.low > 30.0;
  const AxisScale scale = log ? AxisScale::log10 : AxisScale::linear;
  const ValueRange losses =
      padded(scale, log ? range.low : std::min(0.0, range.low), range.high, log ? 0.05 : 0.04);
  const ChartArea area = chart_area(frame, 46 * frame.scale);
  const ImU32 color = group.failing > 0 ? frame.theme.lost : frame.theme.in_range;
  {
    Plot plot(frame.look(),
              {.path = "study/fan",
               .min = area.min,
               .max = area.max,
               .x = {.low = range.first, .high = std::max(range.last, range.first + 1)},
               .y = {.scale = scale, .low = losses.low, .high = losses.high},
               .fits = false,
               .text = group.name});
    draw_fan(plot, group.fan, color, false);
    if (base != nullptr) draw_fan(plot, base->fan, frame.theme.soft, true);
    const std::vector<CurvePoint>& curve = frame.trial(selected).curve;
    if (frame.picture == nullptr)
      draw_loss_line(plot, curve.size(), frame.theme.ink, 1.0f, [&](size_t i) {
        return PlotPoint{static_cast<double>(curve[i].step), static_cast<double>(curve[i].loss)};
      });
    const auto gone = std::find_if(group.fan.begin(), group.fan.end(),
                                   [](const LossBand& band) { return !std::isfinite(band.high); });
    if (gone != group.fan.end()) {
      const float x = plot.x().pixel(gone->step);
      plot.canvas().fill({x, plot.min().y}, {plot.max().x, plot.min().y + 4 * frame.scale},
                         frame.theme.bad);
      plot.tag({x, plot.min().y + 6 * frame.scale}, frame.theme.bad,
               fmt::format("NaN from step {:.0f}", gone->step));
    }
    if (plot.hovered()) {
      plot.v_line(plot.pointer_x(), with_alpha(frame.theme.cursor, 0.6f));
      show_fan_tip(frame, group, base, plot.pointer_x(), color);
    }
    if (plot.action() != PlotAction::none) {
      const PlotTable table = fan_table(group, base);
      hand_out(
          frame.requests, plot.action(), [&table](char separator) { return table.text(separator); },
          "study-losses", PanelPicture::study_losses);
    }
  }
  name_x_axis(frame, area, "step");
}

}  // namespace halfscope::gui
