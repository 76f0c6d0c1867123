// SPDX-License-Identifier: MIT
// The numbers of a format along a line, and the bins around some of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gui/lab/lab_tabs.h"

namespace halfscope::gui {

/// A linear axis in pixels.
struct LineAxis {
  double low, high;
  float left, right;
  /// Returns a pixel just beyond the ends for values far outside.
  float x(double value) const;
  double at(float x) const;
};

/// Returns the format's value nearest to x; beyond its range, the last one.
float nearest_value(double x, const FloatFormat& format);
/// Draws every value as a tick, or as a shade where ticks would be too dense.
void draw_values(const LabFrame& frame, const LineAxis& axis, const FloatFormat& format, float top,
                 float bottom);
/// Draws grid lines with labels below.
void draw_line_scale(const LabFrame& frame, const LineAxis& axis, float top, float bottom);

/// An exact result between the numbers of a format.
struct BinPicture {
  float chosen = 0.0f;  ///< the number that it is rounded to
  double exact = 0.0;
  std::optional<double> from{};  ///< a sum to which something was added: an arrow starts there
  std::string label{};           ///< of the exact result
};
/// Draws the numbers of the lab's format around the result with their bins: every exact result in a
/// bin is rounded to its number.
void draw_bins(const LabFrame& frame, std::string_view path, const BinPicture& picture, float width,
               float height);

}  // namespace halfscope::gui
