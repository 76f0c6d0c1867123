// SPDX-License-Identifier: MIT
// The losses of a puzzle that trains, over the steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gui/lab/loss_curves.h"
#include "gui/lab/puzzle_parts.h"
#include "gui/widgets/imgui_compat.h"
#include "gui/widgets/labels.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {
namespace {

/// The least and the largest finite loss of several curves.
struct LossRange {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(const std::vector<double>& losses) {
    for (const double loss : losses) {
      if (!std::isfinite(loss)) continue;
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
};

std::string last_loss(const std::vector<double>& losses) {
  return losses.empty() ? "-" : fmt::format("{:.3g}", losses.back());
}

}  // namespace

void draw_puzzle_losses(const LabFrame& frame, const PuzzleLevel& level, float width,
                        float height) {
  const Theme& theme = frame.theme;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* const small = frame.fonts.small;
  const float line = font_size(*small);
  const PuzzleAnswer* const own = level.answer();
  const std::vector<double> none;
  const std::vector<double>& yours = own != nullptr ? own->losses : none;
  LossRange range;
  for (const std::vector<double>* const each : {&level.right_losses, &level.broken.losses, &yours})
    range.add(*each);
  if (!(range.high > range.low)) range.high = range.low + std::max(std::fabs(range.low), 1e-30);
  const double margin = 0.06 * (range.high - range.low);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const LossAxis axis{{at.x + frame.px(52), at.y + line + frame.px(6)},
                      {at.x + width, at.y + height - line - frame.px(4)},
                      static_cast<double>(std::max<size_t>(level.right_losses.size(), 2)),
                      range.low - margin,
                      range.high + margin};
  list.AddRectFilled(axis.min, axis.max, theme.plot);
  for (const double loss : {range.low, (range.low + range.high) / 2, range.high}) {
    const float y = std::round(axis.point(0, loss).y);
    list.AddLine({axis.min.x, y}, {axis.max.x, y}, theme.grid);
    const std::string text = fmt::format("{:.3g}", loss);
    list.AddText(small, line, {axis.min.x - text_width(small, text) - frame.px(5), y - line / 2},
                 theme.soft, text.c_str());
  }
  const ImU32 right_color = frame.exponent_color();
  draw_loss_curve(list, axis, level.broken.losses, theme.bad, frame.px(2.2f));
  draw_loss_curve(list, axis, yours, theme.accent, frame.px(2.2f));
  draw_loss_dashes(list, axis, level.right_losses, right_color, frame.px(2.2f), frame.px(6));
  // The legend, with the last losses where there is room.
  struct Entry {
    ImU32 color;
    std::string name, loss;
  };
  std::vector<Entry> entries{{theme.bad, "broken", last_loss(level.broken.losses)}};
  if (own != nullptr) entries.push_back({theme.accent, "your change", last_loss(yours)});
  entries.push_back({right_color, "in double", last_loss(level.right_losses)});
  const float mark = frame.px(21), gap = frame.px(16);
  float needed = 0.0f;
  for (const Entry& each : entries)
    needed += mark + text_width(small, each.name + " " + each.loss) + gap;
  const bool with_losses = needed - gap <= axis.max.x - axis.min.x;
  float x = axis.min.x;
  for (const Entry& each : entries) {
    const std::string text = with_losses ? each.name + " " + each.loss : each.name;
    list.AddLine({x, at.y + line / 2}, {x + frame.px(16), at.y + line / 2}, each.color,
                 frame.px(2.2f));
    list.AddText(small, line, {x + mark, at.y}, theme.ink, text.c_str());
    x += mark + text_width(small, text) + gap;
  }
  const float below = axis.max.y + frame.px(2);
  list.AddText(small, line, {axis.min.x, below}, theme.soft, "loss over the steps");
  const std::string steps = fmt::format("step {}", level.right_losses.size() - 1);
  list.AddText(small, line, {axis.max.x - text_width(small, steps), below}, theme.soft,
               steps.c_str());
  ImGui::Dummy({width, height});
  track_item("lab/puzzle/losses",
             fmt::format("broken {} yours {} double {}", last_loss(level.broken.losses),
                         last_loss(yours), last_loss(level.right_losses)));
}

}  // namespace halfscope::gui
