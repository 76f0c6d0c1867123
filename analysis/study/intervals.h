// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace halfscope {

struct Interval {
  double low = 0.0, high = 1.0;
};

/// Returns the 95% confidence interval of a share of which `hits` of `trials` were seen (E. B.
/// Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927,
/// without continuity correction). It stays within [0, 1] and is useful for few trials and for 0
/// hits. Returns [0, 1] without trials.
Interval wilson_interval(int64_t hits, int64_t trials) noexcept;

}  // namespace halfscope
