// SPDX-License-Identifier: MIT
// The outline of a ridge as points, and its parts inside and outside of a window: the geometry that
// the viewer and the HTML report draw.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "analysis/spectrum/spectrum.h"

namespace halfscope {

struct RidgePoint {
  float x = 0.0f;  ///< exponent
  float y = 0.0f;  ///< height, 0 to 1
};

/// Returns the outline from left to right, with `points_per_bin` points for each power of two. The
/// height is the square root of the share, so that one value in ten thousand can still be seen. The
/// curve goes through the middle of each bin and never overshoots (monotone cubic; slopes: Fritsch
/// and Butland, "A method for constructing local monotone piecewise cubic interpolants", 1984).
std::vector<RidgePoint> ridge_outline(const Ridge& ridge, int points_per_bin);

/// Returns the part of an outline between two exponents, cut there.
std::vector<RidgePoint> outline_part(const std::vector<RidgePoint>& outline, double from,
                                     double to);

enum class ZoneKind : uint8_t { lost, subnormal, normal };
struct RidgeZone {
  ZoneKind kind = ZoneKind::normal;
  double from = 0.0, to = 0.0;  ///< exponents
};
/// Returns the zones of a window from left to right, limited to [low, high].
std::array<RidgeZone, 4> zones_of(const ExponentWindow& window, double low, double high) noexcept;

/// Returns the zones as a ridge is drawn in them, from left to right: every part by the window of
/// the tensor that it shows, moved down by `shift`. The outline falls to 0 within a power of two
/// beyond the last values: where none of them is outside the window, its tip belongs to the zone
/// inside.
std::vector<RidgeZone> ridge_zones(const Ridge& ridge, double shift, double low, double high);

struct ZoneName {
  std::string name{}, brief{};  ///< `brief` is for zones that are too narrow for `name`
};
/// Returns the names of the zones of a format, in the order of zones_of().
std::array<ZoneName, 4> zone_names(const FloatFormat& format);

/// Returns the rows whose name or number is written where rows are closer than lines of text: the
/// most important ones that do not touch, ascending. `weights` are by row; larger is more
/// important, and 0 is never written.
std::vector<int> rows_to_label(const std::vector<double>& weights, float pitch, float line_height);

/// Exponents from `low` to `high`.
struct ExponentRange {
  double low = -28.0, high = 18.0;
};
/// Returns a range for all but the thin tails of a chart's tensors, and for the edges of the window
/// that are not far from them. Values far below both the window and most rows may be off the chart;
/// large ones never are.
ExponentRange fit_range(const Spectrum& spectrum, SpectrumChart chart, const Lens& lens,
                        const ExponentWindow& window);

}  // namespace halfscope
