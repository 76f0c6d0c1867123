// SPDX-License-Identifier: MIT
// Finds the part of an output that is wrong while the rest of it is right: one sample, or one
// channel whose scale is so small beside the others' that the norm of all does not show it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

/// A slice may be off by the floor, or by so many times its spread if that is more.
inline constexpr double kSliceFloor = 0.25, kSliceFactor = 3.0;

/// The slice that is furthest off beside what moving does to it.
struct WorstSlice {
  double error = std::numeric_limits<double>::quiet_NaN();
  double spread = std::numeric_limits<double>::quiet_NaN();
  int64_t axis = -1, index = -1;

  /// Whether it is further off than a slice may be.
  bool suspicious() const noexcept;
};
/// Takes over `other` if that exceeds its tolerance more.
void keep_worse(WorstSlice& kept, const WorstSlice& other);

/// One output of one batch. All tensors have the size of `shape`.
struct SlicedOutput {
  Shape shape;  ///< of the samples that count, which come first
  std::span<const float> own, truth;
  /// The truth after everything was moved by one ulp of the lane's formats, once or several times:
  /// how far apart right results are. The largest distance counts.
  std::vector<std::span<const float>> moved;
  /// The truth after everything was moved by one ulp of fp32; may be empty. A slice that changes by
  /// more than kNoise of its size is rounding noise in fp32, too, and nothing can be said of it.
  std::span<const float> moved_in_fp32{};
};

/// Results that one ulp of fp32 changes by more than this are no truth.
inline constexpr double kNoise = 0.1;

/// Finds the worst sample beside the one that was found before. Errors are 2-norms in units of the
/// slice's own size, or of a fraction of the usual slice where that is more.
void find_worst_sample(const SlicedOutput& output, WorstSlice& worst);

/// The same for channels: slices along axis 1 and along the last axis, over all samples. Slices of
/// few numbers are left out.
void find_worst_channel(const SlicedOutput& output, WorstSlice& worst);

/// Of an output [samples, numbers]: how far off the differences between the numbers of a sample
/// are, which is what choosing the largest one rests on. A value common to all of them hides these
/// differences in every other norm. NaN for other shapes.
WorstSlice compare_differences(const SlicedOutput& output);

}  // namespace halfscope
