// SPDX-License-Identifier: MIT
// Statistics of captured tensors, with the tap of the emulator: they equal measure() of
// core/numeric/statistics on the same numbers as fp32, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/statistics/tensor_stats.h"
#include "python/src/elements.h"

namespace halfscope::python {

/// How a tensor is measured.
enum class Meaning : uint8_t {
  /// As it is.
  numbers,
  /// The tensor minus what it was before. An element that did not change although its gradient is
  /// not zero counts as a lost update, whose size is unknown: it is in `n` and `lost`, but not in
  /// `zero` and the histogram.
  update,
  /// A mean of squares. A zero whose mean of gradients is not zero was flushed: it counts as
  /// underflow.
  squares,
};

/// A tensor in a list that is measured.
struct Measured {
  const Elements* elements = nullptr;
  FloatFormat format;
  Meaning meaning = Meaning::numbers;
  /// The gradient of an update or the mean of gradients, in the same order; may be null.
  const Elements* beside = nullptr;
  const uint8_t* before = nullptr;  ///< of updates: the tensor's bytes as copy() returned them
  uint8_t* copy = nullptr;          ///< receives the tensor's bytes, unless null
};

/// Returns the statistics of each tensor. Threads share the work of the whole list, and what is
/// read twice is read while it is in the caches. Uses at most `threads` of OpenMP's threads; 0:
/// all.
std::vector<TensorStats> measure_list(std::span<const Measured> list, int threads);

/// Returns the statistics of a tensor under a format.
TensorStats measure_elements(const Elements& elements, const FloatFormat& format);

}  // namespace halfscope::python
