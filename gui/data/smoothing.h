// SPDX-License-Identifier: MIT
// Smoothing of noisy curves.
#pragma once

#include <span>
#include <vector>

namespace halfscope::gui {

/// Returns the exponential moving average of `values`, as long as they are. `weight`, from 0 (as
/// they are) to below 1, is the share of the average before. The start is not biased towards zero:
/// the sum is divided by the weights that it holds (Kingma and Ba, "Adam", 2015, section 3), as
/// TensorBoard does. NaN and infinities stay as they are and do not enter the average.
std::vector<double> smoothed(std::span<const double> values, double weight);

/// Weights that the viewer goes through.
inline constexpr double kSmoothings[] = {0.0, 0.6, 0.9, 0.97};

}  // namespace halfscope::gui
