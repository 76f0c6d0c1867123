// SPDX-License-Identifier: MIT
// Axes of a study's charts, the same in reports and in the viewer.
#pragma once

#include <vector>

#include "analysis/study/study_facts.h"

namespace halfscope {

/// Places loss gaps between 0 (bottom) and 1 (top): evenly, or as logarithms of loss / baseline's
/// loss if some losses are several times the baseline's.
class GapAxis {
 public:
  /// Shows all finite gaps of the groups, 0, and the tolerance.
  GapAxis(const StudyFacts& facts, double tolerance);

  /// Returns the place of a finite gap; gaps beyond the axis are at its ends.
  double place(double gap) const noexcept;
  bool shows(double gap) const noexcept { return gap >= low_ && gap <= high_; }
  /// Returns round gaps on the axis, ascending.
  std::vector<double> ticks() const;

 private:
  double low_ = 0.0, high_ = 0.0;  ///< gaps
  bool log_ = false;
};

/// Steps and finite losses of all fans. Losses far above those at the start are left out.
struct FanRange {
  double first = 0.0, last = 0.0;
  double low = 0.0, high = -1.0;  ///< low > high without losses
};
FanRange fan_range(const StudyFacts& facts);

}  // namespace halfscope
