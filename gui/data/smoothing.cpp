// SPDX-License-Identifier: MIT
#include "gui/data/smoothing.h"

#include <cmath>

namespace halfscope::gui {

std::vector<double> smoothed(std::span<const double> values, double weight) {
  std::vector<double> result;
  result.reserve(values.size());
  double sum = 0.0, held = 0.0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(value);
      continue;
    }
    sum = weight * sum + (1.0 - weight) * value;
    held = weight * held + (1.0 - weight);
    result.push_back(sum / held);
  }
  return result;
}

}  // namespace halfscope::gui
