// SPDX-License-Identifier: MIT
// Element-wise loops of kernels: one operand, or several with numpy broadcasting.
#pragma once

#include <cstdint>
#include <vector>

#include "core/numeric/round_odd.h"
#include "emulation/engine/kernel.h"

namespace halfscope {

/// A result computed in double, such that the later rounding to the write format is the only one.
inline float delivered(double value, const FloatFormat& write, float) {
  return deliver(value, write);
}
inline double delivered(double value, const FloatFormat&, double) { return value; }

/// Strides of `shape` seen as broadcast to `to`: 0 along stretched dimensions.
inline std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& to) {
  std::vector<int64_t> strides(to.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t from_end = shape.size() - 1 - i;
    const size_t target = to.size() - 1 - i;
    strides[target] = shape[from_end] == 1 ? 0 : stride;
    stride *= shape[from_end];
  }
  return strides;
}

/// Position in a broadcast operand for a row-major index into `shape`.
inline int64_t broadcast_offset(int64_t index, const Shape& shape,
                                const std::vector<int64_t>& strides) {
  int64_t offset = 0;
  for (size_t i = shape.size(); i-- > 0;) {
    offset += index % shape[i] * strides[i];
    index /= shape[i];
  }
  return offset;
}

template <class T, class F>
void binary(KernelCall<T>& call, const F& f) {
  const T* a = call.in[0];
  const T* b = call.in[1];
  T* y = call.out[0];
  const Shape& shape = call.out_shape(0);
  const int64_t n = element_count(shape);
  const bool same_a = call.in_count(0) == n, same_b = call.in_count(1) == n;
  const bool scalar_a = call.in_count(0) == 1, scalar_b = call.in_count(1) == 1;
  if (same_a && same_b) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f(a[i], b[i]);
    });
  } else if (same_a && scalar_b) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f(a[i], b[0]);
    });
  } else if (scalar_a && same_b) {
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = f(a[0], b[i]);
    });
  } else {
    const std::vector<int64_t> sa = broadcast_strides(call.in_shape(0), shape);
    const std::vector<int64_t> sb = broadcast_strides(call.in_shape(1), shape);
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y[i] = f(a[broadcast_offset(i, shape, sa)], b[broadcast_offset(i, shape, sb)]);
      }
    });
  }
}

template <class T, class F>
void unary(KernelCall<T>& call, const F& f) {
  const T* x = call.in[0];
  T* y = call.out[0];
  parallel_ranges(call.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
  });
}

/// y[i] = f(a[...], b[...], c[...]), where a has the result's shape.
template <class T, class F>
void ternary(KernelCall<T>& call, const F& f) {
  const T *a = call.in[0], *b = call.in[1], *c = call.in[2];
  T* y = call.out[0];
  const Shape& shape = call.out_shape(0);
  const std::vector<int64_t> sb = broadcast_strides(call.in_shape(1), shape);
  const std::vector<int64_t> sc = broadcast_strides(call.in_shape(2), shape);
  const bool same = call.in_shape(1) == shape && call.in_shape(2) == shape;
  parallel_ranges(element_count(shape), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at_b = same ? i : broadcast_offset(i, shape, sb);
      const int64_t at_c = same ? i : broadcast_offset(i, shape, sc);
      y[i] = f(a[i], b[at_b], c[at_c]);
    }
  });
}

}  // namespace halfscope
