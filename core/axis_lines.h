// SPDX-License-Identifier: MIT
// Views of a dense tensor as lines along one axis, and as groups that are normalized together.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace halfscope {

/// Lines along an axis. Element k of a line is at first(line) + k * stride.
struct AxisLines {
  int64_t count = 0, size = 0, stride = 1;

  HS_HD int64_t first(int64_t line) const { return line / stride * size * stride + line % stride; }
};

/// `groups` runs of `size` neighbouring elements, each with its own statistics. Scale and bias have
/// `params` elements, and `inner` neighbours share one of them.
struct NormGroups {
  int64_t groups = 0, size = 1, params = 1, inner = 1;

  HS_HD int64_t count() const { return groups * size; }
  HS_HD int64_t param(int64_t i) const { return i / inner % params; }
  /// Returns the k-th element (k < per_param()) that uses parameter p, in ascending order.
  HS_HD int64_t of_param(int64_t p, int64_t k) const {
    return (k / inner * params + p) * inner + k % inner;
  }
  HS_HD int64_t per_param() const { return count() / params; }
};

/// Fused losses sum their elements in chunks of this many neighbours, and then sum the chunks.
inline constexpr int64_t kLossChunk = 4096;

}  // namespace halfscope
