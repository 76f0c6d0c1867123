// SPDX-License-Identifier: MIT
// Sums of index tensors. The other operations on indices are bodies of core/bodies/indices.h, or
// those of reals over int32_t with the arithmetic of core/numeric/elementary/integers.h.
#pragma once

#include <cstdint>

#include "core/numeric/elementary/integers.h"
#include "gpu/bodies/indexing.h"

namespace halfscope::gpu {

/// Item: an element of y, from n elements of x.
template <class Function>
struct ReduceIndices {
  const int32_t* x;
  int32_t* y;
  Strided kept, reduced;
  int64_t n;
  int32_t start;

  HS_HD void operator()(int64_t item) const {
    const int64_t first = kept.offset(item);
    int32_t total = start;
    for (int64_t k = 0; k < n; ++k) total = Function{}(total, x[first + reduced.offset(k)]);
    y[item] = total;
  }
};

}  // namespace halfscope::gpu
