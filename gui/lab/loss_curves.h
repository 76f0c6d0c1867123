// SPDX-License-Identifier: MIT
// Curves of losses over the steps of a training, drawn by hand.
#pragma once

#include <imgui.h>

#include <vector>

namespace halfscope::gui {

/// The inside of a plot, and what its edges mean.
struct LossAxis {
  ImVec2 min, max;
  double steps, bottom, top;

  /// Returns the place of a loss; losses outside are moved to the edge.
  ImVec2 point(double step, double loss) const noexcept;
};

/// Draws a curve, with gaps where the loss is not finite.
void draw_loss_curve(ImDrawList& list, const LossAxis& axis, const std::vector<double>& losses,
                     ImU32 color, float thickness);
/// Draws a curve in dashes, so that one below it is visible where they agree.
void draw_loss_dashes(ImDrawList& list, const LossAxis& axis, const std::vector<double>& losses,
                      ImU32 color, float thickness, float dash);

}  // namespace halfscope::gui
