// SPDX-License-Identifier: MIT
#include "analysis/rules/scale_interval.h"

#include <algorithm>
#include <cmath>

namespace halfscope {
namespace {

/// Scales beyond these are useless; they also stand for "no bound" in logarithms.
constexpr double kSmallestScale = 0x1p-126;
constexpr double kLargestScale = 0x1p+126;

double width(const ScaleInterval& window) {
  return std::log2(std::min(window.high, kLargestScale)) -
         std::log2(std::max(window.low, kSmallestScale));
}

double geometric_middle(const ScaleInterval& window) {
  return std::sqrt(std::max(window.low, kSmallestScale)) *
         std::sqrt(std::min(window.high, kLargestScale));
}

}  // namespace

ScaleChoice best_scale(std::span<const ScaleInterval> intervals) {
  std::vector<double> ends{kSmallestScale, kLargestScale};
  for (const ScaleInterval& interval : intervals) {
    ends.push_back(std::clamp(interval.low, kSmallestScale, kLargestScale));
    ends.push_back(std::clamp(interval.high, kSmallestScale, kLargestScale));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());

  ScaleInterval best;
  size_t best_count = 0;
  double best_width = -1.0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const double scale = geometric_middle({ends[i], ends[i + 1]});
    ScaleInterval window;
    size_t count = 0;
    for (const ScaleInterval& interval : intervals) {
      if (!interval.contains(scale)) continue;
      ++count;
      window.intersect(interval);
    }
    const bool better = best_width < 0.0 || count > best_count ||
                        (count == best_count && width(window) > best_width);
    if (!better) continue;
    best = window;
    best_count = count;
    best_width = width(window);
  }
  ScaleChoice choice{.window = best, .outside = {}};
  const double scale = geometric_middle(best);
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (!intervals[i].contains(scale)) choice.outside.push_back(i);
  }
  return choice;
}

double middle_scale(const ScaleInterval& window) {
  const double middle = geometric_middle(window);
  const int exponent = static_cast<int>(std::lround(std::log2(middle)));
  for (int candidate : {exponent, exponent - 1, exponent + 1}) {
    const double scale = std::ldexp(1.0, candidate);
    if (window.contains(scale)) return scale;
  }
  return std::exp2(std::floor(std::log2(middle)));
}

}  // namespace halfscope
