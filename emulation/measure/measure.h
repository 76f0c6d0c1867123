// SPDX-License-Identifier: MIT
// Vector kernels of the tap: round to a format and collect statistics in one pass. They equal the
// reference core/numeric/statistics/tensor_stats.h and core/numeric/formats/round.h bit for bit.
#pragma once

#include <cstdint>
#include <memory>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// Rounds n values on one thread. `out` may be `in`.
void round_array(const float* in, float* out, int64_t n, const FloatFormat& format,
                 const TensorRounding& rounding = {});

/// Same, and adds the statistics of in[0, n) to the counters of `stats` (all fields except sum and
/// sum_sq). Stores the sums of this pass at *sum and *sum_sq; the caller combines them in chunk
/// order. n <= kSumChunk. One thread.
void measure_chunk(const float* in, float* out, int64_t n, const FloatFormat& format,
                   TensorStats& stats, double* sum, double* sum_sq,
                   const TensorRounding& rounding = {});

/// Measures chunks of tensors under one format, like measure_chunk() without `out`. Computes once
/// what all of them share. Threads may use it together.
class ChunkMeter {
 public:
  explicit ChunkMeter(const FloatFormat& format);
  ~ChunkMeter();
  ChunkMeter(ChunkMeter&&) noexcept;
  ChunkMeter& operator=(ChunkMeter&&) noexcept;

  void measure(const float* in, int64_t n, TensorStats& stats, double* sum, double* sum_sq) const;

 private:
  struct Tap;
  std::unique_ptr<const Tap> tap_;
};

/// Rounds and measures a whole tensor on all threads; the bits do not depend on their number. `out`
/// may be `in`, or null to measure only. Equals measure() of core/numeric.
TensorStats measure_tensor(const float* in, float* out, int64_t n, const FloatFormat& format,
                           const TensorRounding& rounding = {});
/// Rounds a whole tensor on all threads, without statistics.
void round_tensor(const float* in, float* out, int64_t n, const FloatFormat& format,
                  const TensorRounding& rounding = {});

}  // namespace halfscope
