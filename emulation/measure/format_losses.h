// SPDX-License-Identifier: MIT
// Measures what the arrays of a file would lose in reduced formats, in one pass over the file (two
// for nvfp4, whose scale needs the largest value first) and without loading it. Counts come from
// the tap's kernels (measure.h), so they equal measure().
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/tensor_file.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/scaling/block_format.h"
#include "core/numeric/statistics/tensor_stats.h"

namespace halfscope {

/// A format to measure: a float format, or blocks along the contiguous dimension.
struct TargetFormat {
  std::string name;
  FloatFormat format = kFp16;  ///< of a block format: of its elements
  std::optional<BlockFormat> blocks{};
};

struct FormatLoss {
  int64_t overflow = 0;   ///< TensorStats::overflow; of blocks, elements clipped by their scale
  int64_t underflow = 0;  ///< not zero, but zero after rounding
  int64_t subnormal = 0;  ///< TensorStats::subnormal; 0 for blocks
  int64_t nan_blocks = 0;
  /// Sums of squares of the values that are finite after rounding, and of their rounding errors.
  /// Only with details.
  double signal = 0.0, error = 0.0;
};

/// The most distinct values that are counted.
inline constexpr int64_t kMostDistinct = 65536;

struct ArrayLosses {
  /// Rounded to the first target without blocks (kFp32 if there is none). The sums add up groups of
  /// values in another order than measure().
  TensorStats stats;
  /// Magnitudes of the smallest nonzero and the largest finite value, before any rounding.
  double smallest = std::numeric_limits<double>::infinity(), largest = 0.0;
  std::vector<FormatLoss> formats;    ///< for each target
  std::optional<int64_t> distinct{};  ///< different values; none above kMostDistinct, or no details
};

/// Measures all arrays of a file on all threads and passes each to `done`, in order. Values of 64
/// bits and 32-bit integers are rounded to odd in fp32 first, so each is rounded once as a whole;
/// formats with more than 22 significant bits get them as doubles. `details`: also the sums of
/// FormatLoss and the distinct values. Throws Error if the file is damaged.
void measure_losses(
    const TensorFile& file, std::span<const TargetFormat> targets, bool details,
    const std::function<void(const StoredArray& array, const ArrayLosses& losses)>& done);

}  // namespace halfscope
