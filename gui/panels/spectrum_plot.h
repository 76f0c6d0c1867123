// SPDX-License-Identifier: MIT
// The picture of one chart of the Spectrum: a ridge for every row, front to back, and the window of
// a format behind them. No input and no state.
#pragma once

#include <imgui.h>

#include <string>
#include <vector>

#include "gui/data/spectrum_rows.h"
#include "gui/widgets/canvas.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

/// Positions of rows between two heights. Row i stands on base(i); its ridge reaches above it.
struct RowScale {
  float top = 0.0f;      ///< of the first row's ridge
  float pitch = 8.0f;    ///< between rows
  float height = 30.0f;  ///< of the highest ridge
  double scroll = 0.0;   ///< rows above the first one
  float base(double row) const noexcept {
    return top + height + static_cast<float>(row - scroll) * pitch;
  }
  /// Returns the row whose strip [base - pitch, base) contains y; may be out of range.
  int row_at(float y) const noexcept;
};

struct SpectrumPlot {
  ImVec2 min{}, max{};
  RowScale scale{};
  ExponentRange range{};
  ExponentWindow window{};    ///< already moved by the loss scale that is tried out
  double window_shift = 0.0;  ///< by how much
  FloatFormat format{};
  const std::vector<Ridge>* ridges = nullptr;
  const std::vector<Ridge>* reference = nullptr;  ///< outlines; may be null or empty
  double reference_shift = 0.0;                   ///< powers of two by which the outlines move
  int lit = -1, selected = -1;                    ///< rows
  /// The part that is not wiped away, in pixels; names of zones stay within it.
  float shown_from = -1e9f, shown_to = 1e9f;
  float x(double exponent) const noexcept {
    return min.x +
           static_cast<float>((exponent - range.low) / (range.high - range.low)) * (max.x - min.x);
  }
  double pixels_per_power() const noexcept {
    return static_cast<double>(max.x - min.x) / (range.high - range.low);
  }
};

/// Draws the window: normal range lit, subnormals amber, everything else dark, with labels above
/// and exponents below.
void draw_window(Canvas& canvas, const SpectrumPlot& plot, const Theme& theme, const Fonts& fonts,
                 float scale);
/// Draws the ridges, the first row at the back. Parts outside the window are in the colour of loss.
void draw_ridges(Canvas& canvas, const SpectrumPlot& plot, const Theme& theme, float scale);

}  // namespace halfscope::gui
