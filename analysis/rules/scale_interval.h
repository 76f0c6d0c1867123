// SPDX-License-Identifier: MIT
// The arithmetic behind the loss-scale window, free of runs and layers: every gradient tensor
// allows the scales of one open interval (above `low` enough of it survives, below `high` nothing
// overflows). One scale has to work for all of them.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace halfscope {

struct ScaleInterval {
  double low = 0.0;
  double high = std::numeric_limits<double>::infinity();

  bool empty() const noexcept { return !(low < high); }
  bool contains(double scale) const noexcept { return low < scale && scale < high; }
  /// Narrows this interval to its intersection with `other`.
  void intersect(const ScaleInterval& other) noexcept {
    if (other.low > low) low = other.low;
    if (other.high < high) high = other.high;
  }
};

struct ScaleChoice {
  ScaleInterval window;         ///< scales in all intervals except those in `outside`
  std::vector<size_t> outside;  ///< the fewest intervals to give up, ascending
};

/// Returns the window that lies in the most intervals. This is exact: the number of intervals that
/// contain a scale changes only at their ends, so one scale between each two neighbouring ends is
/// tried. Among equally good windows the widest (in powers of two) wins, then the lowest.
ScaleChoice best_scale(std::span<const ScaleInterval> intervals);

/// Returns the power of two nearest to the window's geometric middle. If the window contains none,
/// the next one below: a scale that is not a power of two would round every gradient, and one that
/// is too low by less than a factor of two flushes little, where one that is too high overflows.
/// The window must not be empty.
double middle_scale(const ScaleInterval& window);

}  // namespace halfscope
