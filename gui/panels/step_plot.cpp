// SPDX-License-Identifier: MIT
// One axis of steps for all plots in the middle, and its mouse handling.
#include "gui/panels/step_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/number_text.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

// Margins: names of layers or tensors on the left, the second axis and the colour bar on the right.
constexpr float kLeft = 120.0f, kLeftOfTensors = 142.0f, kRight = 84.0f;
// They shrink in a narrow window, as long as a number fits.
constexpr float kLeastLeft = 56.0f, kLeastRight = 52.0f, kWideEnough = 560.0f;
constexpr float kLeast = 24.0f;  // a plot is never lower

}  // namespace

StepArea step_area(const Frame& frame, float label_height) {
  const PlotLook look = look_of(frame);
  const ImVec2 at = ImGui::GetCursorScreenPos(), room = ImGui::GetContentRegionAvail();
  const float wide = room.x / frame.scale;
  const float names = frame.view.tensor_rows ? kLeftOfTensors : kLeft;
  const float left = std::clamp(names * wide / kWideEnough, kLeastLeft, names);
  const float right = wide < kWideEnough ? kLeastRight : kRight;
  StepArea area;
  area.outer_min = {std::floor(at.x), std::floor(at.y)};
  area.outer_max = {std::floor(at.x + std::max(room.x, look.px(left + right + kLeast))),
                    std::floor(at.y + std::max(room.y, look.px(kLeast + label_height)))};
  area.min = {area.outer_min.x + look.px(left), area.outer_min.y + 1.0f};
  area.max = {area.outer_max.x - look.px(right), area.outer_max.y - look.px(label_height) - 1.0f};
  const StepSpan span = span_of(frame.view.range, frame.run.step_count());
  area.x = {.scale = AxisScale::steps,
            .low = span.from,
            .high = span.to,
            .from = area.min.x,
            .to = area.max.x};
  return area;
}

void take_area(const StepArea& area) {
  ImGui::SetCursorScreenPos(area.outer_min);
  ImGui::Dummy({area.outer_max.x - area.outer_min.x, area.outer_max.y - area.outer_min.y});
}

PlotSpec empty_plot(std::string_view path, const StepArea& area) {
  return {.path = path,
          .min = area.min,
          .max = area.max,
          .x = area.x,
          .x_labels = false,
          .y_labels = false,
          .x_grid = false,
          .y_grid = false};
}

int64_t pointed_step(const Frame& frame, const Plot& plot) {
  const int64_t step = static_cast<int64_t>(std::floor(plot.pointer_x()));
  return std::clamp<int64_t>(step, 0, std::max<int64_t>(0, frame.run.step_count() - 1));
}

void steer_steps(const Frame& frame, const Plot& plot, bool rows) {
  ViewState& view = frame.view;
  const int64_t count = frame.run.step_count();
  if (count == 0) return;
  const ImGuiIO& io = ImGui::GetIO();
  const double per_pixel = (plot.x().high - plot.x().low) / plot.x().pixels();
  if (plot.wheel() != 0.0f && !(rows && io.KeyCtrl)) {
    const double notch = io.KeyShift ? 2.0 : io.KeyCtrl ? 1.06 : 1.25;
    view.range = zoomed(view.range, count, plot.pointer_x(),
                        std::pow(notch, -static_cast<double>(plot.wheel())));
  }
  if (plot.wheel_sideways() != 0.0f) {
    view.range =
        panned(view.range, count, -static_cast<double>(plot.wheel_sideways() * 40.0f) * per_pixel);
  }
  if (plot.pan().x != 0.0f) {
    view.range = panned(view.range, count, -static_cast<double>(plot.pan().x) * per_pixel);
  }
  if (plot.brushed()) {
    // Every step that the brush touches.
    view.range =
        range_of({std::floor(plot.brushed()->first), std::ceil(plot.brushed()->second)}, count);
  }
  if (plot.double_clicked() || plot.action() == PlotAction::fit) view.range = {};
  if (plot.hovered()) view.hovered_step = pointed_step(frame, plot);
  if (plot.clicked()) view.cursor = pointed_step(frame, plot);
}

void draw_step_lines(const Frame& frame, Plot& plot) {
  if (frame.picture != nullptr) return;
  const ViewState& view = frame.view;
  const int64_t lit = view.hovered_step >= 0 ? view.hovered_step : view.lit_step;
  if (lit >= 0) {
    plot.v_line(static_cast<double>(lit) + 0.5, with_alpha(frame.theme.cursor, 0.28f));
  }
  if (frame.at.step >= 0) {
    plot.v_line(static_cast<double>(frame.at.step) + 0.5, with_alpha(frame.theme.cursor, 0.85f));
  }
}

void hand_out(std::vector<Request>& requests, PlotAction action,
              const std::function<std::string(char separator)>& table, const std::string& name,
              PanelPicture panel) {
  if (action == PlotAction::copy) {
    requests.push_back({.kind = Request::Kind::copy, .text = table('\t')});
  } else if (action == PlotAction::export_csv) {
    requests.push_back(
        {.kind = Request::Kind::export_csv, .text = name + ".csv", .content = table(',')});
  } else if (action == PlotAction::export_svg) {
    requests.push_back({.kind = Request::Kind::export_svg, .panel = panel});
  }
}

void hand_out(const Frame& frame, PlotAction action, const PlotTable& table,
              const std::string& name, PanelPicture panel) {
  const auto text = [&table](char separator) { return table.text(separator); };
  hand_out(frame.requests, action, text, name, panel);
}

float line_width(const Axis& x, const Trace& trace, bool emphasised) noexcept {
  return emphasised && static_cast<double>(trace.points.size()) < 1.2 * x.pixels() ? 2.0f : 1.0f;
}

std::string magnitude_text(const Frame& frame, double magnitude) {
  if (std::isnan(magnitude)) return "not measured";
  if (!(magnitude > 0.0)) return "0";
  if (std::isinf(magnitude)) return frame.fonts.unicode ? "\u221e" : "inf";
  const double exponent = std::log2(magnitude);
  return fmt::format("{} ({:.3g})", power_text(exponent), magnitude);
}

std::string steps_text(int64_t first, int64_t last) {
  if (first == last) return "step " + grouped(first);
  return "steps " + grouped(first) + " to " + grouped(last);
}

void panel_title(const Frame& frame, std::string_view path, std::string_view title) {
  if (frame.picture != nullptr) return picture_text(frame, title, true);
  ImGui::AlignTextToFramePadding();
  ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
  ui::text(path, title);
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
