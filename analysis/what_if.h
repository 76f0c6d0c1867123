// SPDX-License-Identifier: MIT
// what_if: estimates from a tensor's histogram what another scale or format would do: how many
// elements would overflow, become 0 or become subnormal under rounding to nearest even. A histogram
// knows values up to a factor of two, so if a threshold falls into a bin the result is a pair of
// bounds. It is an estimate also because earlier roundings of operands are not undone.
#pragma once

#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "core/observe/recording.h"

namespace halfscope {

/// A number of elements that is at least `low` and at most `high`.
struct CountBounds {
  int64_t low = 0, high = 0;
  bool exact() const noexcept { return low == high; }
  friend bool operator==(const CountBounds&, const CountBounds&) = default;
};

/// Estimated counts of one tensor.
struct WhatIf {
  int64_t n = 0;  ///< all values, also zero and non-finite ones; overflow is a share of them
  int64_t non_zero =
      0;  ///< finite values that are not 0; underflow and subnormal are shares of them
  CountBounds overflow, underflow, subnormal;
  /// Upper bound of the elements exactly on the flush threshold, a power of two where a bin begins.
  /// They are counted as kept, but a tie becomes 0. So up to this many more may underflow, and as
  /// many fewer become subnormal.
  int64_t ties = 0;
  /// True if these are the tensor's own counters: its own format at its own scale.
  bool recorded = false;

  friend bool operator==(const WhatIf&, const WhatIf&) = default;
};

/// Returns the counts for all values times 2^shift, rounded to `format`. `recorded` is the format
/// that the counters of `stats` refer to.
WhatIf what_if(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
               double shift) noexcept;

/// Returns whether the loss scale multiplies a tensor, so that a setting can move its values: only
/// gradients of a training, until the scale is divided out. Codes have their own scales.
bool loss_scale_reaches(const RunInfo& run, const SiteInfo& site) noexcept;

/// Returns whether a plan can set the format of a tensor: an output or input of a layer, a variable
/// or optimizer state. Always false on a backend in double.
bool plan_sets_format(const LaneInfo& lane, const SiteInfo& site);

/// Returns whether keeping a layer in fp32 would change the lane's plan: it is a node that a rule
/// can name, and it does not read and write in full precision already.
bool can_keep_in_fp32(const LaneInfo& lane, const LayerInfo* layer) noexcept;

/// Returns the integer shift between -most and most at which `format` loses least: least overflow
/// first, then least underflow. If several are equal, the middle one.
int fitting_shift(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
                  int most) noexcept;

/// Magnitudes at which rounding to nearest even changes the kind of result: 0 below `flush`,
/// subnormal below `normal`, infinite (or NaN, or saturated) from `overflow` on.
struct RangeLimits {
  double flush, normal, overflow;
};
RangeLimits range_limits(const FloatFormat& format) noexcept;

}  // namespace halfscope
