// SPDX-License-Identifier: MIT
// Conversions between formats that a plan needs in a training step, and what they cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/lower/lower.h"

namespace halfscope {

/// One value that nodes read in another format than the one it is stored in. Where such a cast has
/// a gradient, the gradient is cast back, even if HalfScope's kernel writes it in the format of the
/// value at once.
struct ValueCast {
  std::string value;  ///< "conv1.weight", "relu1", "relu1 (gradient)"
  FloatFormat from, to;
  int64_t elements = 0;
  int64_t readers = 0;  ///< inputs of nodes that read it in this format
  bool weight = false;  ///< of a variable or its gradient

  /// Bytes read and written by one kernel that converts the value.
  int64_t bytes() const noexcept;
};

struct CastTotals {
  int64_t casts = 0;  ///< one per value and format, as TensorFlow and HalfScope insert them
  int64_t to_fewer_bits = 0, to_more_bits = 0;
  int64_t of_weights = 0;
  /// Kernels if every operator converts its own inputs and only weights are kept, as PyTorch's
  /// autocast does.
  int64_t kernels_by_reader = 0;
  int64_t bytes = 0;  ///< read and written by `casts` kernels
};

/// Returns the conversions of one training step with one micro-batch, or of one forward pass of an
/// inference executable. Constants are left out: frameworks convert them when they launch a kernel.
/// So are scaled operands, which have kernels of their own.
std::vector<ValueCast> value_casts(const Executable& executable);

CastTotals total(const std::vector<ValueCast>& casts);

}  // namespace halfscope
