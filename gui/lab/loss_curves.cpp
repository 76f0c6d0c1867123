// SPDX-License-Identifier: MIT
#include "gui/lab/loss_curves.h"

#include <algorithm>
#include <cmath>

namespace halfscope::gui {

ImVec2 LossAxis::point(double step, double loss) const noexcept {
  const double part = std::clamp((loss - bottom) / (top - bottom), 0.0, 1.0);
  return {min.x + (max.x - min.x) * static_cast<float>(step / std::max(1.0, steps - 1)),
          max.y - (max.y - min.y) * static_cast<float>(part)};
}

void draw_loss_curve(ImDrawList& list, const LossAxis& axis, const std::vector<double>& losses,
                     ImU32 color, float thickness) {
  std::vector<ImVec2> points;
  const auto flush = [&] {
    if (points.size() > 1)
      list.AddPolyline(points.data(), static_cast<int>(points.size()), color, 0, thickness);
    points.clear();
  };
  for (size_t i = 0; i < losses.size(); ++i) {
    if (std::isfinite(losses[i])) {
      points.push_back(axis.point(static_cast<double>(i), losses[i]));
    } else {
      flush();
    }
  }
  flush();
}

void draw_loss_dashes(ImDrawList& list, const LossAxis& axis, const std::vector<double>& losses,
                      ImU32 color, float thickness, float dash) {
  float along = 0.0f;  // length of the curve so far
  for (size_t i = 0; i + 1 < losses.size(); ++i) {
    if (!std::isfinite(losses[i]) || !std::isfinite(losses[i + 1])) continue;
    const ImVec2 from = axis.point(static_cast<double>(i), losses[i]);
    const ImVec2 to = axis.point(static_cast<double>(i + 1), losses[i + 1]);
    const float length = std::hypot(to.x - from.x, to.y - from.y);
    for (float done = 0.0f; done < length;) {
      const float in_dash = std::fmod(along + done, 2 * dash);
      const bool on = in_dash < dash;
      const float end = std::min(length, done + std::max(0.5f, (on ? dash : 2 * dash) - in_dash));
      const auto at = [&](float part) {
        return ImVec2(from.x + (to.x - from.x) * part / length,
                      from.y + (to.y - from.y) * part / length);
      };
      if (on) list.AddLine(at(done), at(end), color, thickness);
      done = end;
    }
    along += length;
  }
}

}  // namespace halfscope::gui
