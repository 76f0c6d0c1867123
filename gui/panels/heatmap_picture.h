// SPDX-License-Identifier: MIT
// The texture of the heatmap and the bar that says what its colours mean.
#pragma once

#include <span>

#include "gui/data/heat_picture.h"
#include "gui/panels/step_plot.h"

namespace halfscope::gui {

inline constexpr double kSeparatedRow = 6.0;  ///< rows of this height have a hair between them

/// Rows in pixels: the height of one, what lies above the picture, what is in it.
struct RowPixels {
  double height = 1.0, scroll = 0.0, used = 0.0;
  friend bool operator==(const RowPixels&, const RowPixels&) = default;
};

/// The picture of `rows` over the steps of `x`, made anew only when something it shows has changed.
ImTextureID heatmap_texture(const Frame& frame, const std::vector<HeatRow>& rows, const Axis& x,
                            const RowPixels& pixels);

/// Right of the plot.
void draw_color_bar(const Frame& frame, const StepArea& area);

}  // namespace halfscope::gui
