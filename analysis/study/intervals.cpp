// SPDX-License-Identifier: MIT
#include "analysis/study/intervals.h"

#include <algorithm>
#include <cmath>

namespace halfscope {

Interval wilson_interval(int64_t hits, int64_t trials) noexcept {
  if (trials <= 0) return {};
  constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5% quantile
  const auto n = static_cast<double>(trials), p = static_cast<double>(hits) / n;
  const double scale = 1.0 + kZ * kZ / n;
  const double center = (p + kZ * kZ / (2.0 * n)) / scale;
  const double half = kZ * std::sqrt(p * (1.0 - p) / n + kZ * kZ / (4.0 * n * n)) / scale;
  // With no hits, or only hits, one end is exact; rounding must not move it.
  return {hits == 0 ? 0.0 : std::max(0.0, center - half),
          hits == trials ? 1.0 : std::min(1.0, center + half)};
}

}  // namespace halfscope
