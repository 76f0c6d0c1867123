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

namespace halfscope {

/// A number of elements that is at least `low` and at most `high`.
struct CountBounds {
  int64_t low = 0, high = 0;
  bool exact() const noexcept { return low == high; }
  friend bool operator==(const CountBounds&, const CountBounds&) = default;
};

struct WhatIf {
  int64_t n = 0;  ///< elements, zeros and those not finite included: what shares are of
  CountBounds overflow, underflow, subnormal;
  /// Elements that may lie exactly on the flush threshold, at most: a power of two, where a bin
  /// begins. They are counted as kept; a tie is flushed. So up to this many more may underflow and
  /// become subnormal less.
  int64_t ties = 0;
  /// The tensor's own counters: its own format, at its own scale.
  bool recorded = false;

  double share(int64_t count) const noexcept {
    return n > 0 ? static_cast<double>(count) / static_cast<double>(n) : 0.0;
  }
  friend bool operator==(const WhatIf&, const WhatIf&) = default;
};

/// All values times 2^shift, rounded to `format`. `recorded` is the format that the counters of
/// `stats` refer to.
WhatIf what_if(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
               double shift) noexcept;

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
