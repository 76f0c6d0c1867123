// SPDX-License-Identifier: MIT
// The functions of core/numeric/elementary/functions.h on elements: computed in double, rounded
// once.
#pragma once

#include <cstdint>

#include "core/numeric/elementary/functions.h"
#include "core/numeric/formats/float_format.h"
#include "gpu/bodies/elementwise.h"

namespace halfscope::gpu {

/// Wraps a function of doubles as an operation of Unary and Binary.
template <class Function>
struct Delivered {
  Function f{};
  FloatFormat write = kFp32;

  template <class T>
  HS_HD T operator()(T x) const {
    return delivered<T>(f(static_cast<double>(x)), write);
  }
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return delivered<T>(f(static_cast<double>(a), static_cast<double>(b)), write);
  }
  template <class T>
  HS_HD T operator()(T a, T b, T c) const {
    return delivered<T>(f(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)),
                        write);
  }
};

/// Operation on three operands; `a` has the output's shape.
template <class T, class Operation>
struct Ternary {
  In<T> a, b, c;
  Out<T> y;
  Operand at_b, at_c;
  Operation operation{};

  HS_HD void operator()(int64_t i) const { y[i] = operation(a[i], b[at_b(i)], c[at_c(i)]); }
};

}  // namespace halfscope::gpu
