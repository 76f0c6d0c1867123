// SPDX-License-Identifier: MIT
// What all plots over steps have in common: one x axis between the same margins, so that they
// stand exactly above each other, what the mouse does to ViewState::range, the cursor's line.
#pragma once

#include <string>
#include <string_view>

#include "gui/panels/panel.h"
#include "gui/widgets/plot.h"

namespace halfscope::gui {

inline PlotLook look_of(const Frame& frame) {
  return {frame.theme, frame.fonts, frame.scale, frame.picture};
}

/// Where a step plot goes in the rest of the window.
struct StepArea {
  ImVec2 min{}, max{};              ///< inside of the axes
  ImVec2 outer_min{}, outer_max{};  ///< with labels
  Axis x{};                         ///< the steps in sight
};
/// `label_height` stays free below, in pixels that are not scaled; 0 where x has no labels.
StepArea step_area(const Frame& frame, float label_height);
inline constexpr float kStepLabels = 18.0f;

/// Takes the area off the window, after the plot was drawn.
void take_area(const StepArea& area);

/// A plot that only says why it is empty.
PlotSpec empty_plot(std::string_view path, const StepArea& area);

/// Wheel, drag, brush, double click and click on the steps; what the pointer is over. With
/// `rows`, Ctrl and wheel are left to the caller.
void steer_steps(const Frame& frame, const Plot& plot, bool rows = false);
/// The lines of the cursor and of the step under the pointer, above everything else.
void draw_step_lines(const Frame& frame, Plot& plot);
/// Step under the pointer; only where the plot is hovered.
int64_t pointed_step(const Frame& frame, const Plot& plot);
/// Answers "Copy data", "Export CSV" and "Export SVG"; `name` is that of the panel, for files.
void hand_out(const Frame& frame, PlotAction action, const PlotTable& table,
              const std::string& name, PanelPicture panel);

/// Emphasised lines are thicker, but where every pixel column has its own extremes: a thick line
/// would be a blot there.
float line_width(const Axis& x, const Trace& trace, bool emphasised) noexcept;

/// "2^-12.3 (0.000198)"; "0" for 0.
std::string magnitude_text(const Frame& frame, double magnitude);
/// "step 1,240", "steps 1,240 to 1,249"
std::string steps_text(int64_t first, int64_t last);

/// The word before a plot's controls.
void panel_title(const Frame& frame, std::string_view path, std::string_view title);

}  // namespace halfscope::gui
