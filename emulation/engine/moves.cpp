// SPDX-License-Identifier: MIT
// Kernels that only move elements: copies, and boxes (core/ops/movement.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/ops/movement.h"
#include "emulation/engine/kernel.h"
#include "emulation/engine/walk.h"

namespace halfscope {
namespace {

/// Copies from[...] to to[...] over a box with these sizes; each side has its own strides.
template <class T>
void copy_box(const Shape& sizes, const T* from, const Strides& from_strides, T* to,
              const Strides& to_strides) {
  const Walk<2> walk(sizes, {from_strides, to_strides});
  const int64_t a = walk.step()[0], b = walk.step()[1];
  walk.rows([&](const std::array<int64_t, 2>& at, int64_t n) {
    const T* const x = from + at[0];
    T* const y = to + at[1];
    if (a == 1 && b == 1) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * b] = x[i * a];
    }
  });
}

template <class T>
void copy(KernelCall<T>& c) {
  const T* x = c.in[0];
  T* y = c.out[0];
  parallel_ranges(c.out_count(0), kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin) * sizeof(T));
  });
}

template <class T>
void fill(T* y, int64_t n, double value) {
  if (value == 0.0 && !std::signbit(value)) {
    std::fill_n(y, n, T{0});  // faster than a number that is not known at compile time
  } else {
    std::fill_n(y, n, static_cast<T>(value));
  }
}

template <class T>
void move(KernelCall<T>& c) {
  if (!c.movement) c.movement = movement_of(*c.graph, *c.node);
  if (c.movement->fill) fill(c.out[0], c.out_count(0), *c.movement->fill);
  for (const BoxCopy& box : c.movement->boxes) {
    copy_box(box.sizes, c.in[box.input] + box.first_from, box.from,
             c.out[box.output] + box.first_to, box.to);
  }
}

}  // namespace

template <class T>
Kernel<T> move_kernel(const OpDef& def) {
  return def.view ? copy<T> : def.movement != nullptr ? move<T> : nullptr;
}

template Kernel<float> move_kernel(const OpDef&);
template Kernel<double> move_kernel(const OpDef&);
template Kernel<int32_t> move_kernel(const OpDef&);

}  // namespace halfscope
