// SPDX-License-Identifier: MIT
// Elementwise kernels of one operand, or of two with numpy broadcasting.
#pragma once

#include <array>
#include <cstdint>

#include "core/bodies/elements.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {

/// Computes y = f(a, b), with the shapes of the call's first two inputs.
template <class T, class Element, class Result, class F>
void map_two(const KernelCall<T>& call, const Element* a, const Element* b, Result* y, const F& f) {
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
      const Element* const left = a + at[0];
      const Element* const right = b + at[1];
      Result* const result = y + at[2];
      if (step_a == 1 && step_b == 1) {  // the usual cases, written so that they vectorize
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i], right[i]);
      } else if (step_a == 1 && step_b == 0) {
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i], right[0]);
      } else {
        for (int64_t i = 0; i < count; ++i) result[i] = f(left[i * step_a], right[i * step_b]);
      }
    });
  }
}

/// Kernels of an operation on two inputs, and on one.
template <class T, class Operation>
void binary(KernelCall<T>& call) {
  map_two(call, call.in[0], call.in[1], call.out[0], Operation{});
}
template <class T, class Operation>
void unary(KernelCall<T>& call) {
  for_items(call.out_count(0), kGrain,
            [x = call.in[0], y = call.out[0]](int64_t i) { y[i] = Operation{}(x[i]); });
}

}  // namespace halfscope
