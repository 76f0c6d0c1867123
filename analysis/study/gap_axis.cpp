// SPDX-License-Identifier: MIT
#include "analysis/study/gap_axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/report/html_plot.h"

namespace halfscope {
namespace {

constexpr double kLogFrom = 2.0;         ///< gaps above this make the axis logarithmic
constexpr double kLeastRatio = 1e-3;     ///< of loss / baseline's loss; losses may be negative
constexpr double kTimesTheStart = 1.5;  ///< losses above this multiple of the first are cut off

double ratio_of(double gap) { return std::max(1.0 + gap, kLeastRatio); }

}  // namespace

GapAxis::GapAxis(const StudyFacts& facts, double tolerance) {
  high_ = tolerance;
  for (const StudyGroup& group : facts.groups) {
    for (const std::optional<double>& gap : {group.least_gap, group.gap, group.worst_gap}) {
      if (!gap || !std::isfinite(*gap)) continue;
      low_ = std::min(low_, *gap);
      high_ = std::max(high_, *gap);
    }
  }
  log_ = high_ > kLogFrom;
  if (log_) {
    low_ = ratio_of(low_) / 1.05 - 1.0;
    high_ *= 1.1;
    return;
  }
  const double room = std::max(0.08 * (high_ - low_), 1e-6);
  low_ -= room;
  high_ += room;
}

double GapAxis::place(double gap) const noexcept {
  const double place =
      log_ ? std::log(ratio_of(gap) / ratio_of(low_)) / std::log(ratio_of(high_) / ratio_of(low_))
           : (gap - low_) / (high_ - low_);
  return std::clamp(place, 0.0, 1.0);
}

std::vector<double> GapAxis::ticks() const {
  std::vector<double> ticks;
  if (log_) {
    const double most = std::log10(std::max(high_, 1.0));
    const double every = std::max(1.0, std::ceil(most / 4.0));
    for (const double gap : {-0.9, -0.5, 0.0}) {
      if (shows(gap)) ticks.push_back(gap);
    }
    for (double power = 0.0; power <= most; power += every) ticks.push_back(std::pow(10.0, power));
    return ticks;
  }
  const double stride = html::tick_distance(high_ - low_, 5.0);
  for (double step = std::ceil(low_ / stride); step * stride <= high_; step += 1.0) {
    ticks.push_back(step == 0.0 ? 0.0 : step * stride);
  }
  return ticks;
}

FanRange fan_range(const StudyFacts& facts) {
  FanRange range;
  range.first = std::numeric_limits<double>::infinity();
  range.low = range.first;
  range.high = -range.first;
  double start = 0.0;
  for (const StudyGroup& group : facts.groups) {
    if (group.fan.empty()) continue;
    range.first = std::min(range.first, group.fan.front().step);
    range.last = std::max(range.last, group.fan.back().step);
    if (std::isfinite(group.fan.front().median)) {
      start = std::max(start, std::fabs(group.fan.front().median));
    }
    for (const LossBand& band : group.fan) {
      for (const double loss : {band.low, band.upper_quartile, band.high}) {
        if (!std::isfinite(loss)) continue;
        range.low = std::min(range.low, loss);
        range.high = std::max(range.high, loss);
      }
    }
  }
  if (range.low > range.high) return {};
  if (start > 0.0) range.high = std::min(range.high, kTimesTheStart * start);
  range.low = std::min(range.low, range.high);
  return range;
}

}  // namespace halfscope
