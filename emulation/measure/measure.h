// SPDX-License-Identifier: MIT
// Vector kernels of the tap: round to a format and take the statistics in one pass, equal bit for
// bit to the reference core/numeric/statistics/tensor_stats.h and core/numeric/formats/round.h.
#pragma once

#include <cstdint>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// Rounds n values. `out` may be `in`. One thread.
void round_array(const float* in, float* out, int64_t n, const FloatFormat& format,
                 const TensorRounding& rounding = {});

/// The same, and adds the statistics of in[0, n) to the counters of `stats` (all fields but sum
/// and sum_sq); stores the sums of the values of the pass at *sum and *sum_sq, which the caller
/// combines in chunk order. n <= kSumChunk. One thread.
void measure_chunk(const float* in, float* out, int64_t n, const FloatFormat& format,
                   TensorStats& stats, double* sum, double* sum_sq,
                   const TensorRounding& rounding = {});

/// Whole tensors, all threads: the same bits for any number of them. `out` may be `in`, or null
/// to measure only. Equals measure() of core/numeric.
TensorStats measure_tensor(const float* in, float* out, int64_t n, const FloatFormat& format,
                           const TensorRounding& rounding = {});
/// Rounding only, all threads.
void round_tensor(const float* in, float* out, int64_t n, const FloatFormat& format,
                  const TensorRounding& rounding = {});

}  // namespace halfscope
