// SPDX-License-Identifier: MIT
#include "analysis/rules/lost_energy.h"

#include <algorithm>
#include <cmath>

#include "analysis/format_limits.h"

namespace halfscope {

double flushed_energy_bound(const TensorStats& stats, const FloatFormat& format) {
  const double threshold = flush_threshold(format);  // a power of two, so no bin straddles it
  double energy = 0.0;
  int64_t below = 0;
  double high = std::ldexp(1.0, kMinExponentBin + 1);  // of the bin
  for (int i = 0; i < kExponentBins && high <= threshold; ++i, high *= 2.0) {
    const int64_t count = stats.exponents[static_cast<size_t>(i)];
    energy += static_cast<double>(count) * high * high;
    below += count;
  }
  const int64_t ties = std::max<int64_t>(stats.underflow - below, 0);
  return energy + static_cast<double>(ties) * threshold * threshold;
}

double clipped_energy_bound(const TensorStats& stats, const FloatFormat& format) {
  const double beyond = static_cast<double>(stats.max_abs) - format.max_finite();
  return beyond > 0.0 ? static_cast<double>(stats.overflow) * beyond * beyond : 0.0;
}

}  // namespace halfscope
