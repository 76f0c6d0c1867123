// SPDX-License-Identifier: MIT
// Element-wise loops of kernels: one operand, or several with numpy broadcasting.
#pragma once

#include <array>
#include <cstdint>

#include "core/numeric/formats/round_odd.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {

/// A result computed in double, such that the later rounding to the write format is the only one.
inline float delivered(double value, const FloatFormat& write, float) {
  return deliver(value, write);
}
inline double delivered(double value, const FloatFormat&, double) { return value; }

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
    const Walk<3> walk(shape, {broadcast_strides(call.in_shape(0), shape),
                               broadcast_strides(call.in_shape(1), shape), row_major(shape)});
    const int64_t step_a = walk.step()[0], step_b = walk.step()[1];
    walk.rows([&](const std::array<int64_t, 3>& at, int64_t count) {
      const T* const left = a + at[0];
      const T* const right = b + at[1];
      T* const result = y + at[2];
      if (step_a == 1 && step_b == 1) {  // the usual cases, for the sake of vectors
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i], right[i]);
      } else if (step_a == 1 && step_b == 0) {
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i], right[0]);
      } else {
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i * step_a], right[i * step_b]);
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

}  // namespace halfscope
