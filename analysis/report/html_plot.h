// SPDX-License-Identifier: MIT
// The frame of every line chart of the HTML reports: axes, ticks and grid. A drawing is an SVG of
// 1000 x 100 units, stretched to the page; labels are HTML, so that they stay readable at any
// width. Private to the HTML reports.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace halfscope::html {

/// Size in the drawing's own units, which the page stretches to fit.
inline constexpr double kPlotWidth = 1000.0, kPlotHeight = 100.0;
inline constexpr double kPlotTop = 12.0;  ///< strip above the curves for values without a place

struct PlotAxis {
  double low = 0.0, high = 1.0;
  bool log = false;

  /// Returns the height of a value, from the top; values beyond the axis are at its ends.
  double position(double value) const;
};

/// A label: its place in percent from the top (of y) or the left (of x), and its text as HTML.
using PlotTick = std::pair<double, std::string>;

/// Returns the axis of values from `low` to `high`: logarithmic if it spans much, else from 0.
PlotAxis value_axis(double low, double high);
/// Returns round values on the axis.
std::vector<PlotTick> value_ticks(const PlotAxis& axis);
/// Returns 1, 2 or 5 times a power of ten, so that about `parts` such distances fill the span.
double tick_distance(double span, double parts);

/// Returns the chart. `kind` is "" or a class after a blank; `below` are the labels under it;
/// `over` is HTML on top of the drawing, placed in percent, which is not stretched with it.
std::string plot_frame(const std::string& kind, const std::string& label,
                       const std::string& drawing, const std::vector<PlotTick>& ticks,
                       const std::vector<std::string>& below, const std::string& over = "");

}  // namespace halfscope::html
