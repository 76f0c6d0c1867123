// SPDX-License-Identifier: MIT
#include "analysis/rules/zero_tensors.h"

#include <algorithm>

namespace halfscope {

ZeroCourse zero_course(const LaneFacts& lane, int site) {
  ZeroCourse course;
  for (const RecordedStep& step : lane.recorded()) {
    const std::optional<TensorStats> counts = lane.stats(site, step.step);
    if (!counts || counts->n == 0) continue;
    if (step.skipped && counts->non_finite() > 0) continue;
    if (course.first < 0) course.first = step.step;
    ++course.windows;
    course.all_zero = course.all_zero && counts->zero == counts->n;
    course.finite = course.finite && counts->non_finite() == 0;
  }
  return course;
}

}  // namespace halfscope
