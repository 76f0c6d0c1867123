// SPDX-License-Identifier: MIT
// Upper bounds of what rounding took from a tensor: sums of squares of the differences.
#pragma once

#include "core/numeric/formats/float_format.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// Of the values flushed to zero: whole bins below the threshold, each value as large as its bin
/// allows, and the threshold itself for ties.
double flushed_energy_bound(const TensorStats& stats, const FloatFormat& format);

/// Of the values that saturated: each as far beyond the largest value as the largest of them.
double clipped_energy_bound(const TensorStats& stats, const FloatFormat& format);

}  // namespace halfscope
