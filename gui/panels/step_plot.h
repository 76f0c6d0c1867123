// SPDX-License-Identifier: MIT
// Shared by all plots over steps: one x axis with the same margins, so that they line up, mouse
// handling for ViewState::range, and the cursor's line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gui/panels/panel.h"
#include "gui/widgets/plot.h"

namespace halfscope::gui {

inline PlotLook look_of(const Frame& frame) {
  return {frame.theme, frame.fonts, frame.scale, frame.picture};
}

/// The place of a step plot in the rest of the window.
struct StepArea {
  ImVec2 min{}, max{};              ///< inside of the axes
  ImVec2 outer_min{}, outer_max{};  ///< with labels
  Axis x{};                         ///< the visible steps
};
/// Returns the area, with `label_height` unscaled pixels free below; 0 if x has no labels.
StepArea step_area(const Frame& frame, float label_height);
inline constexpr float kStepLabels = 18.0f;

/// Moves the window's cursor below the area, after the plot was drawn.
void take_area(const StepArea& area);

/// Returns a plot that only says why it is empty.
PlotSpec empty_plot(std::string_view path, const StepArea& area);

/// Handles wheel, drag, brush, click, double-click and hover on the steps. With `rows`, Ctrl+wheel
/// is left to the caller.
void steer_steps(const Frame& frame, const Plot& plot, bool rows = false);
/// Draws lines at the cursor and at the step under the pointer, above everything else.
void draw_step_lines(const Frame& frame, Plot& plot);
/// Returns the step under the pointer. The plot must be hovered.
int64_t pointed_step(const Frame& frame, const Plot& plot);
/// Handles "Copy data", "Export CSV" and "Export SVG"; `name` is the panel's name, for files.
/// `table` returns the data with this separator between columns.
void hand_out(std::vector<Request>& requests, PlotAction action,
              const std::function<std::string(char separator)>& table, const std::string& name,
              PanelPicture panel);
void hand_out(const Frame& frame, PlotAction action, const PlotTable& table,
              const std::string& name, PanelPicture panel);

/// Returns the line width: thicker if emphasised, unless every pixel column has its own extremes,
/// where a thick line would be a blot.
float line_width(const Axis& x, const Trace& trace, bool emphasised) noexcept;

/// Returns "2^-12.3 (0.000198)"; "0" for 0.
std::string magnitude_text(const Frame& frame, double magnitude);
/// Returns "step 1,240" or "steps 1,240 to 1,249".
std::string steps_text(int64_t first, int64_t last);

/// Draws the title before a plot's controls.
void panel_title(const Frame& frame, std::string_view path, std::string_view title);

}  // namespace halfscope::gui
