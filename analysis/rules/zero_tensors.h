// SPDX-License-Identifier: MIT
// Tensors that are exactly 0 in every recorded step.
#pragma once

#include <cstdint>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// Numbers of a site over the recorded steps that were not skipped: gradients of the others may not
/// be finite while a dynamic loss scale comes down.
struct ZeroCourse {
  int64_t windows = 0;
  int64_t first = -1;  ///< step
  bool all_zero = true, finite = true;

  /// Returns whether all numbers were 0 in enough steps: gradients may be 0 in the first ones,
  /// behind a layer that starts with zeros.
  bool always_zero() const noexcept { return windows >= 10 && all_zero && finite; }
};

ZeroCourse zero_course(const LaneFacts& lane, int site);

}  // namespace halfscope
