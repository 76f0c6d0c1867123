// SPDX-License-Identifier: MIT
// Finds the part of an output that is wrong while the rest is right: one sample, or one channel
// whose values are so small that the norm of the whole output does not show it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

/// A slice's error may be as large as the floor, or this many times its spread if that is more.
inline constexpr double kSliceFloor = 0.25, kSliceFactor = 3.0;

/// The slice with the largest error relative to how far moving the inputs moves it.
struct WorstSlice {
  double error = std::numeric_limits<double>::quiet_NaN();
  double spread = std::numeric_limits<double>::quiet_NaN();
  int64_t axis = -1, index = -1;

  /// Returns whether its error is larger than a slice's may be.
  bool suspicious() const noexcept;
};
/// Replaces `kept` by `other` if that exceeds its tolerance more.
void keep_worse(WorstSlice& kept, const WorstSlice& other);

/// One output of one batch. All tensors have the size of `shape`.
struct SlicedOutput {
  Shape shape;  ///< without padding samples; the samples that count come first
  std::span<const float> own, truth;
  /// The truth after everything was moved by one ulp of the lane's formats, once or several times:
  /// how far apart correct results are. The largest distance counts.
  std::vector<std::span<const float>> moved;
  /// The truth after everything was moved by one ulp of fp32; may be empty. A slice that changes by
  /// more than kNoise of its size is rounding noise even in fp32, so it cannot be judged.
  std::span<const float> moved_in_fp32{};
};

/// Results that one ulp of fp32 changes by more than this cannot serve as the truth.
inline constexpr double kNoise = 0.1;

/// Updates `worst` if a sample of this output is worse. Errors are 2-norms relative to the slice's
/// own size, or to a fraction of the usual slice's size if that is more.
void find_worst_sample(const SlicedOutput& output, WorstSlice& worst);

/// Updates `worst` if a channel is worse: slices along axis 1 and along the last axis, over all
/// samples. Slices with few numbers are ignored.
void find_worst_channel(const SlicedOutput& output, WorstSlice& worst);

/// Returns the error of the differences between the numbers of a sample, for an output [samples,
/// numbers]. Choosing the largest number depends on these differences, and a value common to all
/// numbers hides them in every other norm. NaN for other shapes.
WorstSlice compare_differences(const SlicedOutput& output);

}  // namespace halfscope
