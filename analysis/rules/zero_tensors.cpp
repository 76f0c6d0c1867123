// SPDX-License-Identifier: MIT
#include "analysis/rules/zero_tensors.h"

namespace halfscope {

ZeroCourse zero_course(const LaneFacts& lane, int site) {
  ZeroCourse course;
  auto step = lane.recorded().begin();  // ascending, as the windows are
  for (const PackedWindow& window : lane.run().windows(lane.lane(), site)) {
    while (step->step < window.step) ++step;
    const TensorCounts counts = window.counts();
    if (counts.n == 0 || (step->skipped && counts.non_finite() > 0)) continue;
    if (course.first < 0) course.first = window.step;
    ++course.windows;
    course.all_zero = course.all_zero && counts.zero == counts.n;
    course.finite = course.finite && counts.non_finite() == 0;
  }
  return course;
}

}  // namespace halfscope
