// SPDX-License-Identifier: MIT
// The loss-scale window: the loss scales that work for the gradients of a lane, from their recorded
// histograms.
// A gradient value g recorded at scale s would be g / s * S at scale S; it is flushed to zero up
// to the format's flush threshold and overflows from its overflow threshold on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/scale_interval.h"

namespace halfscope {

/// Limits for flushing to zero: this share of the non-zero values, and this share of the gradient's
/// energy (sum of squares). Beyond both, information is lost.
inline constexpr double kFlushedShare = 0.01;
inline constexpr double kFlushedEnergy = 1e-3;

/// Scales that one gradient tensor allows.
struct SiteScales {
  int site = 0;
  ScaleInterval comfortable;  ///< both limits hold
  ScaleInterval usable;       ///< at least one limit holds: nothing that matters is lost
};

struct LayerScales {
  int node = 0;  ///< index into LaneFacts::nodes
  ScaleInterval comfortable, usable;
};

struct ScaleWindow {
  std::vector<SiteScales> sites;    ///< gradient tensors in narrow-exponent formats with data
  std::vector<LayerScales> layers;  ///< the same, intersected per layer
  ScaleInterval comfortable;        ///< scales that work for every layer; may be empty
  ScaleInterval usable;
  int floor_site = -1;       ///< sets the lower end of shown()
  int ceiling_site = -1;     ///< sets its upper end
  std::vector<int> outside;  ///< if `usable` is empty: the fewest nodes to leave out
  ScaleInterval rest;        ///< the window of all others
  double scale = 0.0;        ///< advised static scale, for `rest` if `usable` is empty

  /// Returns the stricter of the two windows that is not empty; the usable one if both are.
  const ScaleInterval& shown() const noexcept { return comfortable.empty() ? usable : comfortable; }
};

/// Returns the window; nothing if the lane has no gradients in narrow formats or never recorded a
/// step with finite ones.
std::optional<ScaleWindow> loss_scale_window(const LaneFacts& lane);

/// Returns the scale to advise where the lane's is too large: below every scale that overflows
/// (scale_ceiling()), and inside the window if there is one. Nothing if no ceiling is known.
std::optional<double> scale_that_fits(const LaneFacts& lane);

}  // namespace halfscope
