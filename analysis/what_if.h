// SPDX-License-Identifier: MIT
// What another scale or another format would do to a recorded tensor, read off its histogram: how
// many elements would overflow, be flushed to zero or become subnormal under rounding to nearest
// even. A histogram knows values up to a factor of two, so where a threshold falls into a bin the
// answer is a pair of bounds. It is an estimate in another way, too: what the recorded values went
// through before (operands rounded, values flushed) has happened and is not undone.
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

struct WhatIf {
  int64_t n = 0;  ///< values, zeros and those not finite included: overflow is a share of them
  int64_t non_zero = 0;  ///< finite and not zero: underflow and subnormal are shares of them
  CountBounds overflow, underflow, subnormal;
  /// Elements that may lie exactly on the flush threshold, at most: a power of two, where a bin
  /// begins. They are counted as kept; a tie is flushed. So up to this many more may underflow and
  /// become subnormal less.
  int64_t ties = 0;
  /// The tensor's own counters: its own format, at its own scale.
  bool recorded = false;

  friend bool operator==(const WhatIf&, const WhatIf&) = default;
};

/// All values times 2^shift, rounded to `format`. `recorded` is the format that the counters of
/// `stats` refer to.
WhatIf what_if(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
               double shift) noexcept;

/// Returns whether the loss scale acts on a tensor, so that a setting can move its values:
/// gradients of a training until the scale is divided out. Nothing can move the values of other
/// tensors, nor codes, which have scales of their own.
bool loss_scale_reaches(const RunInfo& run, const SiteInfo& site) noexcept;

/// Returns whether a plan can set the format of a tensor: that of a layer or what layers read, of a
/// variable or of the optimizer's state. Nothing has another format on a backend in double.
bool plan_sets_format(const LaneInfo& lane, const SiteInfo& site);

/// Returns whether keeping a layer in fp32 is a change of the lane's plan: it is a node, which a
/// rule can name, and does not read and write in full precision already.
bool can_keep_in_fp32(const LaneInfo& lane, const LayerInfo* layer) noexcept;

/// The whole number between -most and most at which `format` loses least: first of all it has no
/// overflow, or as little as can be, then as little underflow. In the middle, if several are alike.
int fitting_shift(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
                  int most) noexcept;

/// Magnitudes at which rounding to nearest even changes what becomes of a value: zero below
/// `flush`, subnormal below `normal`, infinite (or NaN, or saturated) from `overflow` on.
struct RangeLimits {
  double flush, normal, overflow;
};
RangeLimits range_limits(const FloatFormat& format) noexcept;

}  // namespace halfscope
