// SPDX-License-Identifier: MIT
// How a dense tensor falls into lines along one axis, and into groups that are normalized.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace halfscope {

/// Lines along an axis: element k of a line lies at first(line) + k * stride.
struct AxisLines {
  int64_t count = 0, size = 0, stride = 1;

  HS_HD int64_t first(int64_t line) const { return line / stride * size * stride + line % stride; }
};

/// `groups` runs of `size` neighbours, each with statistics of its own; scale and bias have
/// `params` elements, of which `inner` neighbours share one.
struct NormGroups {
  int64_t groups = 0, size = 1, params = 1, inner = 1;

  HS_HD int64_t count() const { return groups * size; }
  HS_HD int64_t param(int64_t i) const { return i / inner % params; }
  /// Element k, of per_param(), of those that share parameter p, in ascending order.
  HS_HD int64_t of_param(int64_t p, int64_t k) const {
    return (k / inner * params + p) * inner + k % inner;
  }
  HS_HD int64_t per_param() const { return count() / params; }
};

/// The fused sum over all elements of a loss is one of sums over this many neighbours.
inline constexpr int64_t kLossChunk = 4096;

}  // namespace halfscope
