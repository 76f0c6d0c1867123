// SPDX-License-Identifier: MIT
// Upper bounds of the energy (sum of squared differences) that rounding took from a tensor.
#pragma once

#include "core/numeric/formats/float_format.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// Returns the bound for values flushed to zero: whole bins below the threshold, each value as
/// large as its bin allows, and the threshold itself for ties.
double flushed_energy_bound(const TensorStats& stats, const FloatFormat& format);

/// Returns the bound for values that saturated: each as far beyond the largest value as the largest
/// of them.
double clipped_energy_bound(const TensorStats& stats, const FloatFormat& format);

}  // namespace halfscope
