// SPDX-License-Identifier: MIT
// The parts of the tab "Training step", a file each.
#pragma once

#include "core/lab/microscope.h"
#include "gui/lab/lab_tabs.h"

namespace halfscope::gui {

/// Returns the color of a loss of information; the theme's soft color if there is none.
ImU32 loss_color(const Theme& theme, StationLoss loss) noexcept;

/// Draws the stations as cards in rows, and selects one by click or with the arrow keys.
void draw_station_path(const LabFrame& frame, const Microscope& microscope);
/// Draws a station's value between its neighbors, to scale.
void draw_station_line(const LabFrame& frame, const Station& station, float width);
/// Draws the significand bits that are kept, and the ones that are thrown away.
void draw_station_bits(const LabFrame& frame, const Station& station, float width);
/// Draws the loss of both lanes over the steps; a click chooses the step.
void draw_losses(const LabFrame& frame, const Microscope& microscope, float height);

}  // namespace halfscope::gui
