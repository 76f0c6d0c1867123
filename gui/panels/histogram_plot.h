// SPDX-License-Identifier: MIT
// The picture of the exponent histogram: formats as bands, the zones of one of them, bars.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/what_if.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "gui/widgets/canvas.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

/// Exponents from left to right; the bin of floor(log2 |x|) = e is between e and e + 1.
struct ExponentAxis {
  double low = -28.0, high = 18.0;
  float left = 0.0f, right = 1.0f;  ///< pixels
  double pixels_per_power() const noexcept {
    return static_cast<double>(right - left) / (high - low);
  }
  float x(double exponent) const noexcept;  ///< within the axis
};

/// Returns an axis for fp16 and for all but a thousandth of the values, both as they are and moved
/// by `shift`; it always includes the largest.
ExponentAxis fit_exponents(const TensorStats& stats, double shift);

struct HistogramPlot {
  const TensorStats& stats;
  const TensorStats* other = nullptr;  ///< of another lane: an outline
  ImU32 other_color = 0;
  double other_shift = 0.0;
  FloatFormat lens;
  double shift = 0.0;
  bool log_counts = false;
};

/// Draws a format as one thin bar: the normal range solid, subnormals pale.
void draw_band(Canvas& canvas, const ExponentAxis& axis, ImVec2 min, ImVec2 max,
               const FloatFormat& format, bool active, const Theme& theme);

/// Draws zones, grid, bars and outlines between `min` and `max`, with axis labels to the left and
/// below.
void draw_bars(Canvas& canvas, const ExponentAxis& axis, ImVec2 min, ImVec2 max,
               const HistogramPlot& plot, const Theme& theme, const Fonts& fonts, float scale);

/// Returns the tooltip of the bin under the pointer: exponent, values, count.
std::string bin_text(const HistogramPlot& plot, double exponent);

}  // namespace halfscope::gui
