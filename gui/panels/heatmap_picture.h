// SPDX-License-Identifier: MIT
// The texture of the heatmap and its colour legend.
#pragma once

#include <span>

#include "gui/data/heat_picture.h"
#include "gui/panels/step_plot.h"

namespace halfscope::gui {

inline constexpr double kSeparatedRow = 6.0;  ///< rows of this height have a thin gap between them

/// Rows in pixels: the height of one, the height scrolled above the picture, and the visible
/// height.
struct RowPixels {
  double height = 1.0, scroll = 0.0, used = 0.0;
  friend bool operator==(const RowPixels&, const RowPixels&) = default;
};

/// Returns the picture of `rows` over the steps of `x`, rebuilt only when its contents change.
ImTextureID heatmap_texture(const Frame& frame, const std::vector<HeatRow>& rows, const Axis& x,
                            const RowPixels& pixels);

/// Draws the colour legend right of the plot.
void draw_color_bar(const Frame& frame, const StepArea& area);

}  // namespace halfscope::gui
