// SPDX-License-Identifier: MIT
// The loss of the whole run in the chosen settings and in fp32; a click chooses the step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/lab/loss_curves.h"
#include "gui/lab/microscope_parts.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

std::vector<double> losses_of(const std::vector<SmallStep>& steps) {
  std::vector<double> losses;
  losses.reserve(steps.size());
  for (const SmallStep& each : steps) losses.push_back(each.loss);
  return losses;
}

/// Marks skipped steps at the top, and shades steps without a finite loss.
void draw_marks(const LabFrame& frame, const LossAxis& axis, const std::vector<SmallStep>& steps) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  size_t first_bad = steps.size();
  for (size_t i = 0; i < steps.size(); ++i) {
    const double at = static_cast<double>(i);
    if (!std::isfinite(steps[i].loss)) {
      const float x = axis.point(at - 0.5, 0).x, to = axis.point(at + 0.5, 0).x;
      list.AddRectFilled({std::max(x, axis.min.x), axis.min.y},
                         {std::min(to, axis.max.x), axis.max.y}, with_alpha(theme.bad, 0.22f));
      first_bad = std::min(first_bad, i);
    }
    if (!steps[i].skipped) continue;
    const float x = axis.point(at, 0).x, y = axis.min.y + frame.px(3);
    list.AddTriangleFilled({x - frame.px(4), y}, {x + frame.px(4), y}, {x, y + frame.px(7)},
                           theme.bad);
  }
  if (first_bad == steps.size()) return;
  ImFont* const small = frame.fonts.small;
  const std::string text = fmt::format("infinity or NaN from step {}", first_bad);
  const float x = axis.point(static_cast<double>(first_bad), 0).x;
  const float from = std::min(x + frame.px(4), axis.max.x - text_width(small, text));
  list.AddText(small, font_size(*small), {from, axis.min.y + frame.px(12)}, theme.bad,
               text.c_str());
}

/// Returns a round number below all losses.
double smallest_loss(const Microscope& microscope) {
  double least = 2.0;
  for (const std::vector<SmallStep>* const steps : {&microscope.lane, &microscope.twin}) {
    for (const SmallStep& step : *steps) {
      if (std::isfinite(step.loss)) least = std::min(least, step.loss);
    }
  }
  return std::max(0.0, std::floor(2.0 * least - 0.2) / 2.0);
}

double largest_loss(const Microscope& microscope) {
  double top = 2.5;
  for (const SmallStep& step : microscope.lane) {
    if (std::isfinite(step.loss)) top = std::max(top, step.loss);
  }
  return std::min(top, 10.0);
}

std::string end_text(const std::vector<SmallStep>& steps) {
  return steps.empty() ? "-" : fmt::format("{:.3f}", steps.back().loss);
}

}  // namespace

void draw_losses(const LabFrame& frame, const Microscope& microscope, float height) {
  MicroscopeDesk& desk = frame.lab.desk;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const Theme& theme = frame.theme;
  ImFont* const small = frame.fonts.small;
  const float line = font_size(*small);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, frame.px(160));
  LossAxis axis{{at.x + frame.px(30), at.y + line + frame.px(6)},
                {at.x + width - frame.px(4), at.y + height - line - frame.px(4)},
                static_cast<double>(std::max<size_t>(microscope.lane.size(), 2)),
                smallest_loss(microscope),
                largest_loss(microscope)};
  list.AddRectFilled(axis.min, axis.max, theme.plot);
  for (double loss = axis.bottom; loss <= axis.top; loss += axis.top > 5.0 ? 2.0 : 0.5) {
    const float y = std::round(axis.point(0, loss).y);
    list.AddLine({axis.min.x, y}, {axis.max.x, y}, theme.grid);
    const std::string text = fmt::format("{:g}", loss);
    list.AddText(small, line, {axis.min.x - text_width(small, text) - frame.px(5), y - line / 2},
                 theme.soft, text.c_str());
  }
  draw_marks(frame, axis, microscope.lane);
  const ImU32 lane_color = theme.lines[1], twin_color = frame.exponent_color();
  draw_loss_curve(list, axis, losses_of(microscope.lane), lane_color, frame.px(2.2f));
  draw_loss_dashes(list, axis, losses_of(microscope.twin), twin_color, frame.px(2.2f), frame.px(6));
  const float cursor = std::round(axis.point(static_cast<double>(desk.place.step), 0).x);
  list.AddLine({cursor, axis.min.y}, {cursor, axis.max.y}, theme.cursor, frame.scale);
  // The legend, with the last losses.
  const bool busy = desk.study.busy();
  const int64_t skipped = std::count_if(microscope.lane.begin(), microscope.lane.end(),
                                        [](const SmallStep& step) { return step.skipped; });
  float x = axis.min.x;
  const auto entry = [&](ImU32 color, const std::string& text) {
    list.AddLine({x, at.y + line / 2}, {x + frame.px(16), at.y + line / 2}, color, frame.px(2.2f));
    list.AddText(small, line, {x + frame.px(21), at.y}, theme.ink, text.c_str());
    x += frame.px(21) + text_width(small, text) + frame.px(18);
  };
  entry(lane_color,
        fmt::format("loss of these settings, at the end {}", end_text(microscope.lane)));
  entry(twin_color, fmt::format("fp32 {}", end_text(microscope.twin)));
  if (skipped > 0) {
    const std::string text = fmt::format("{} skipped", skipped);
    list.AddTriangleFilled({x, at.y + line / 2 - frame.px(3)},
                           {x + frame.px(8), at.y + line / 2 - frame.px(3)},
                           {x + frame.px(4), at.y + line / 2 + frame.px(4)}, theme.bad);
    list.AddText(small, line, {x + frame.px(12), at.y}, theme.ink, text.c_str());
    x += frame.px(12) + text_width(small, text) + frame.px(18);
  }
  if (busy) list.AddText(small, line, {x, at.y}, theme.accent, "training ...");
  const std::string step = fmt::format("step {}", desk.place.step);
  const float step_width = text_width(small, step);
  list.AddText(
      small, line,
      {std::clamp(std::round(cursor - step_width / 2), axis.min.x, axis.max.x - step_width),
       axis.max.y + frame.px(2)},
      theme.ink, step.c_str());
  ImGui::PushID("losses");
  ImGui::InvisibleButton("plot", {width, height});
  track_item("lab/step/losses", fmt::format("{} fp32 {} skipped {}", end_text(microscope.lane),
                                            end_text(microscope.twin), skipped));
  ImGui::PopID();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const double part =
      std::clamp(static_cast<double>((mouse.x - axis.min.x) / (axis.max.x - axis.min.x)), 0.0, 1.0);
  const int64_t pointed = static_cast<int64_t>(std::lround(part * (axis.steps - 1)));
  if (ImGui::IsItemActive()) desk.place.step = pointed;
  const size_t index = static_cast<size_t>(pointed);
  if (ImGui::IsItemHovered() && index < microscope.lane.size() && index < microscope.twin.size()) {
    const SmallStep& own = microscope.lane[index];
    ImGui::SetTooltip("step %d: loss %.4f, fp32 %.4f, loss scale %g%s", static_cast<int>(pointed),
                      own.loss, microscope.twin[index].loss, own.loss_scale,
                      own.skipped ? ", skipped" : "");
  }
}

}  // namespace halfscope::gui
