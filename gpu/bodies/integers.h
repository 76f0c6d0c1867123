// SPDX-License-Identifier: MIT
// Sums of index tensors, and the ways between indices and reals. What else works on indices are the
// bodies of reals over int32_t, with the arithmetic of core/numeric/elementary/integers.h.
#pragma once

#include <cstdint>

#include "core/numeric/elementary/integers.h"
#include "gpu/bodies/indexing.h"

namespace halfscope::gpu {

/// Item: an element of y, of n elements of x each.
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

/// Item: a line along the axis, of `length` elements `inner` apart.
struct CumulateIndices {
  const int32_t* x;
  int32_t* y;
  int64_t length, inner;
  bool exclusive, reverse;

  HS_HD void operator()(int64_t line) const {
    const int64_t first = line / inner * length * inner + line % inner;
    int32_t total = 0;
    for (int64_t k = 0; k < length; ++k) {
      const int64_t i = first + (reverse ? length - 1 - k : k) * inner;
      const int32_t before = total;
      total = integers::Add{}(total, x[i]);
      y[i] = exclusive ? before : total;
    }
  }
};

template <class T>
struct IndexToReal {
  const int32_t* x;
  Out<T> y;
  FloatFormat write;
  HS_HD void operator()(int64_t i) const { y[i] = delivered<T>(static_cast<double>(x[i]), write); }
};

template <class T>
struct RealToIndex {
  In<T> x;
  int32_t* y;
  HS_HD void operator()(int64_t i) const { y[i] = integers::truncated(static_cast<double>(x[i])); }
};

}  // namespace halfscope::gpu
