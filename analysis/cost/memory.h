// SPDX-License-Identifier: MIT
// The memory of one step, by counting: what a framework keeps that frees every value after its last
// reader. Bytes of values in their own formats, without what an allocator or a library adds.
#pragma once

#include <cstdint>

#include "core/lower/lower.h"

namespace halfscope {

/// All in bytes.
struct MemoryUse {
  /// Trained variables as they are stored (master weights). In inference, what is known before any
  /// input and that operators read, in the formats that they read: kept_weight_bytes() without
  /// buffers.
  int64_t weights = 0;
  /// In training: weights in the formats that operators read, kept for the step.
  int64_t weight_copies = 0;
  int64_t buffers = 0;    ///< running statistics, constants, states of scales
  int64_t gradients = 0;  ///< of all weights, in the weights' formats
  int64_t optimizer = 0;  ///< momenta and other states, moving averages of weights
  int64_t inputs = 0;
  int64_t activations = 0;  ///< results of the forward pass that the backward pass reads
  /// The most that is in memory at one time, and what of it is none of the above: results that are
  /// read soon and freed.
  int64_t peak = 0, temporary = 0;

  /// Returns what stays between steps, and the inputs.
  int64_t always() const noexcept { return weights + buffers + optimizer + inputs; }
};

/// Returns the bytes of weights and constants that inference keeps: each in the form in which
/// operators read it, with the scales of its codes.
int64_t kept_weight_bytes(const Executable& executable);

/// Returns the memory of a training step, or of a forward pass for executables of
/// lower_inference(), where `activations` are those alive at the peak.
MemoryUse memory_of(const Executable& executable);

}  // namespace halfscope
