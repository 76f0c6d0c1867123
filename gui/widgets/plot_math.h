// SPDX-License-Identifier: MIT
// Plot arithmetic: positions of values, ticks, zoom and pan over steps, and reduction of a long
// series to the points that pixels can show. No drawing, so it is tested alone.
//
// A step s occupies [s, s + 1) on an axis of steps; its point is in the middle.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "core/number_text.h"
#include "gui/state/view_state.h"

namespace halfscope::gui {

enum class AxisScale : uint8_t {
  linear,
  log2,
  log10,
  steps,     ///< whole numbers, counted
  exponent,  ///< the values are exponents of 2 themselves
};

constexpr const char* axis_scale_name(AxisScale scale) noexcept {
  constexpr std::array<const char*, 5> kNames{"linear", "log2", "log10", "steps", "exponent"};
  return kNames[static_cast<size_t>(scale)];
}

/// Maps values `low` to `high` to pixels `from` to `to`; from > to if values grow upwards.
struct Axis {
  AxisScale scale = AxisScale::linear;
  double low = 0.0, high = 1.0;
  float from = 0.0f, to = 1.0f;

  static double along(AxisScale scale, double value) noexcept {
    if (scale == AxisScale::log2) return value > 0.0 ? std::log2(value) : std::nan("");
    if (scale == AxisScale::log10) return value > 0.0 ? std::log10(value) : std::nan("");
    return value;
  }
  /// Returns the position; NaN for values without a place on the axis.
  float pixel(double value) const noexcept {
    const double first = along(scale, low), last = along(scale, high);
    const double share = (along(scale, value) - first) / (last - first);
    return static_cast<float>(from + share * (static_cast<double>(to) - from));
  }
  double value(float pixel) const noexcept {
    const double share = (static_cast<double>(pixel) - from) / (static_cast<double>(to) - from);
    const double first = along(scale, low), last = along(scale, high);
    const double place = first + share * (last - first);
    if (scale == AxisScale::log2) return std::exp2(place);
    if (scale == AxisScale::log10) return std::pow(10.0, place);
    return place;
  }
  double pixels() const noexcept { return std::fabs(static_cast<double>(to) - from); }
  friend bool operator==(const Axis&, const Axis&) = default;
};

struct Tick {
  double value = 0.0;
  std::string text{};
};

/// Returns 1, 2 or 5 times a power of ten: the smallest that is at least `least`.
inline double nice_stride(double least) noexcept {
  if (!(least > 0.0) || !std::isfinite(least)) return 1.0;
  const double decade = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= least * (1.0 - 1e-9)) return factor * decade;
  }
  return 10.0 * decade;
}

/// Returns "2^-24", with raised digits if the font has them.
inline std::string power_of_two_text(int exponent, bool raised) {
  if (!raised) return "2^" + std::to_string(exponent);
  static constexpr std::array<const char*, 10> kDigits{"\u2070", "\u00b9", "\u00b2", "\u00b3",
                                                       "\u2074", "\u2075", "\u2076", "\u2077",
                                                       "\u2078", "\u2079"};
  std::string text = exponent < 0 ? "2\u207b" : "2";
  for (const char digit : std::to_string(std::abs(exponent))) {
    text += kDigits[static_cast<size_t>(digit - '0')];
  }
  return text;
}

inline std::string tick_text(double value, double stride) {
  if (std::fabs(value) < stride * 1e-6) return "0";
  std::array<char, 40> text{};
  const double largest = std::max(std::fabs(value), stride);
  if (largest >= 1e6 || stride < 1e-5) {
    std::snprintf(text.data(), text.size(), "%.3g", value);
  } else {
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(stride) - 1e-9)));
    std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  }
  return text.data();
}

/// Returns round values inside the axis, at least `gap` pixels apart.
inline std::vector<Tick> ticks_of(const Axis& axis, double gap, bool raised = false) {
  std::vector<Tick> ticks;
  const double first = Axis::along(axis.scale, axis.low);
  const double last = Axis::along(axis.scale, axis.high);
  const double pixels = axis.pixels();
  if (!(last > first) || !std::isfinite(last - first) || !(pixels > 0.0)) return ticks;
  const double least = (last - first) * gap / pixels;  // of the stride
  if (axis.scale == AxisScale::log2 || axis.scale == AxisScale::exponent) {
    double stride = 1.0;
    while (stride < least) stride *= 2.0;
    for (double e = std::ceil(first / stride) * stride; e <= last + 1e-9; e += stride) {
      const double value = axis.scale == AxisScale::log2 ? std::exp2(e) : e;
      ticks.push_back({value, power_of_two_text(static_cast<int>(e), raised)});
    }
    return ticks;
  }
  if (axis.scale == AxisScale::log10) {
    const double decades = std::max(1.0, std::ceil(least));
    // Add 1, 2, 5 between the decades if there is room.
    const bool between = decades == 1.0 && least < 0.3;
    for (double e = std::floor(first); e <= last + 1e-9; e += decades) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor > 1.0 && !between) break;
        const double value = factor * std::pow(10.0, e), place = e + std::log10(factor);
        if (place < first - 1e-9 || place > last + 1e-9) continue;
        std::array<char, 40> text{};
        std::snprintf(text.data(), text.size(), "%g", value);
        ticks.push_back({value, text.data()});
      }
    }
    return ticks;
  }
  const bool steps = axis.scale == AxisScale::steps;
  const double stride = steps ? std::max(1.0, nice_stride(least)) : nice_stride(least);
  for (double k = std::ceil(first / stride); k * stride <= last + stride * 1e-9; k += 1.0) {
    const double value = k * stride;
    if (steps) {
      if (value + 0.5 > last) break;  // the tick is at the middle of the step
      ticks.push_back({value + 0.5, grouped(static_cast<int64_t>(value))});
    } else {
      ticks.push_back({value, tick_text(value, stride)});
    }
  }
  return ticks;
}

// --- Steps: zoom and pan -----------------------------------------------------------------------

/// Returns the visible span of steps 0 to count - 1, from the first's start to the last's end.
struct StepSpan {
  double from = 0.0, to = 1.0;
  double width() const noexcept { return to - from; }
};
inline constexpr double kFewestSteps = 4.0;  ///< that zooming in leaves

inline StepSpan span_of(const StepRange& range, int64_t count) noexcept {
  const double all = std::max<double>(1.0, static_cast<double>(count));
  if (range.all()) return {0.0, all};
  const double width = std::clamp(range.last + 1.0 - range.first, std::min(1.0, all), all);
  const double from = std::clamp(range.first, 0.0, all - width);
  return {from, from + width};
}

/// Returns the range that shows `span`, moved into the run; the empty one if that is all of it.
inline StepRange range_of(StepSpan span, int64_t count) noexcept {
  const double all = std::max<double>(1.0, static_cast<double>(count));
  const double width = std::max(span.width(), std::min(kFewestSteps, all));
  if (width >= all) return {};
  const double from = std::clamp(span.from - (width - span.width()) / 2.0, 0.0, all - width);
  return {from, from + width - 1.0};
}

/// Zooms: a `factor` below 1 shows fewer steps. `at` keeps its place unless an end is reached.
inline StepRange zoomed(const StepRange& range, int64_t count, double at, double factor) noexcept {
  const StepSpan span = span_of(range, count);
  const double all = std::max<double>(1.0, static_cast<double>(count));
  const double width = std::max(span.width() * factor, std::min(kFewestSteps, all));
  const double share = (at - span.from) / span.width();
  return range_of({at - share * width, at + (1.0 - share) * width}, count);
}

inline StepRange panned(const StepRange& range, int64_t count, double steps) noexcept {
  if (range.all()) return range;
  const StepSpan span = span_of(range, count);
  return range_of({span.from + steps, span.to + steps}, count);
}

// --- Level of detail ---------------------------------------------------------------------------

struct PlotPoint {
  double x = 0.0, y = 0.0;
};

/// A series reduced for pixels: at most two points per pixel column, the smallest and the largest
/// value there, in their order. A point with y = NaN breaks the line.
struct Trace {
  std::vector<PlotPoint> points{};
  std::vector<double> gaps{};  ///< x of values that are not finite, one per column at most
  double low = std::numeric_limits<double>::infinity();    ///< of the visible finite values
  double high = -std::numeric_limits<double>::infinity();  ///< below `low` if there are none
  bool empty() const noexcept { return high < low; }
};

/// Reduces `count` points that ascend in x; `point_at(i)` returns them. Keeps one point on either
/// side of the visible part, so that lines leave the plot.
template <class PointAt>
Trace reduce(const Axis& x, size_t count, PointAt point_at) {
  Trace trace;
  size_t first = 0, beyond = count;
  while (first < beyond) {  // the first visible point
    const size_t middle = first + (beyond - first) / 2;
    if (point_at(middle).x < x.low) {
      first = middle + 1;
    } else {
      beyond = middle;
    }
  }
  const double per_step = x.pixels() / (x.high - x.low);
  struct Column {
    int64_t number = std::numeric_limits<int64_t>::min();
    PlotPoint low{}, high{};
    bool any = false, gap = false;
    double gap_x = 0.0;
  } column;
  const auto flush = [&] {
    if (column.any) {
      const bool low_first = column.low.x <= column.high.x;
      trace.points.push_back(low_first ? column.low : column.high);
      if (column.low.x != column.high.x) {
        trace.points.push_back(low_first ? column.high : column.low);
      }
    }
    if (column.gap) {
      trace.points.push_back({column.gap_x, std::nan("")});
      trace.gaps.push_back(column.gap_x);
    }
    column.any = column.gap = false;
  };
  for (size_t i = first > 0 ? first - 1 : 0; i < count; ++i) {
    const PlotPoint point = point_at(i);
    const bool before = point.x<x.low, after = point.x> x.high;
    const int64_t number = before  ? -1
                           : after ? std::numeric_limits<int64_t>::max()
                                   : static_cast<int64_t>((point.x - x.low) * per_step);
    if (number != column.number) flush();
    column.number = number;
    if (!std::isfinite(point.y)) {
      column.gap = true;
      column.gap_x = point.x;
    } else {
      if (!before && !after) {
        trace.low = std::min(trace.low, point.y);
        trace.high = std::max(trace.high, point.y);
      }
      if (!column.any || point.y < column.low.y) column.low = point;
      if (!column.any || point.y > column.high.y) column.high = point;
      column.any = true;
    }
    if (after) break;
  }
  flush();
  return trace;
}

/// Returns an axis from low to high with a margin; also for one value or none.
struct ValueRange {
  double low = 0.0, high = 1.0;
};
inline ValueRange padded(AxisScale scale, double low, double high, double share) noexcept {
  const bool log = scale == AxisScale::log2 || scale == AxisScale::log10;
  if (!(low <= high) || !std::isfinite(low) || !std::isfinite(high) || (log && !(low > 0.0))) {
    return log ? ValueRange{1.0, 2.0} : ValueRange{0.0, 1.0};
  }
  double first = Axis::along(scale, low), last = Axis::along(scale, high);
  const bool octaves = scale == AxisScale::log2 || scale == AxisScale::exponent;
  const double least = log || octaves ? 1.0 : std::max(std::fabs(first) * 1e-3, 1e-12);
  if (last - first < least) {
    const double middle = (first + last) / 2.0;
    first = middle - least / 2.0;
    last = middle + least / 2.0;
  }
  const double room = (last - first) * share;
  first -= room;
  last += room;
  if (scale == AxisScale::log2) return {std::exp2(first), std::exp2(last)};
  if (scale == AxisScale::log10) return {std::pow(10.0, first), std::pow(10.0, last)};
  return {first, last};
}

}  // namespace halfscope::gui
