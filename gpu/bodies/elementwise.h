// SPDX-License-Identifier: MIT
// Arithmetic (core/bodies/elements.h) with broadcasting, and functions of one element. exp and log
// are computed in double (core/numeric/elementary/elementary.h).
#pragma once

#include <cstdint>

#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "gpu/bodies/indexing.h"
#include "gpu/bodies/several.h"

namespace halfscope::gpu {

/// Maps element i of the output to an element of one operand.
struct Operand {
  enum class Kind : uint8_t { same, scalar, broadcast };
  Kind kind = Kind::same;
  Strided at;

  HS_HD int64_t operator()(int64_t i) const noexcept {
    return kind == Kind::same ? i : kind == Kind::scalar ? 0 : at.offset(i);
  }
  /// Returns whether kSeveral neighbours that begin at a multiple of kSeveral are neighbours here,
  /// too, and also begin at a multiple.
  HS_HD bool keeps_neighbours() const noexcept {
    return kind == Kind::broadcast ? at.keeps_neighbours() : kind == Kind::same;
  }
};

template <class T, class Operation, class Result = T>
struct Binary {
  In<T> a, b;
  Out<Result> y;
  Operand at_a, at_b;
  Operation operation{};

  HS_HD void operator()(int64_t i) const { y[i] = operation(a[at_a(i)], b[at_b(i)]); }
};

/// Operations that are no slower than reading their operands, on operands of one shape. Item:
/// several of the n elements.
template <class T, class Operation>
struct SimpleBinary {
  In<T> a, b;
  Out<T> y;
  int64_t n;
  Operation operation{};

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T left[kSeveral], right[kSeveral];
    read(a, at, left);
    read(b, at, right);
    for (int j = 0; j < kSeveral; ++j) left[j] = operation(left[j], right[j]);
    write(y, at, left);
  }
};
template <class T, class Operation>
struct SimpleUnary {
  In<T> x;
  Out<T> y;
  int64_t n;
  Operation operation{};

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    T value[kSeveral];
    read(x, at, value);
    for (T& each : value) each = operation(each);
    write(y, at, value);
  }
};

template <class T, class Operation>
struct Unary {
  In<T> x;
  Out<T> y;
  Operation operation{};

  HS_HD void operator()(int64_t i) const { y[i] = operation(x[i]); }
};

/// Computes a where the condition is nonzero, otherwise b; a null operand means zeros.
template <class T>
struct Where {
  const int32_t* condition;
  In<T> a, b;
  Out<T> y;
  Operand at_condition, at_a, at_b;

  HS_HD void operator()(int64_t i) const {
    if (condition[at_condition(i)] != 0) {
      y[i] = a == nullptr ? T{0} : a[at_a(i)];
    } else {
      y[i] = b == nullptr ? T{0} : b[at_b(i)];
    }
  }
};

/// Functions of N doubles whose results are rounded in a mode other than nearest even.
template <size_t N, class Function>
struct RoundedElements {
  Out<float> y;
  Function f{};
  FloatFormat write;
  TensorRounding rounding{};
  // Last member: g++ does not clear the padding after an array of structures, and the simulated
  // device would take those bytes for a pointer.
  In<float> x[N];
  Operand at[N];

  HS_HD double operand(size_t k, int64_t i) const { return static_cast<double>(x[k][at[k](i)]); }
  HS_HD double exact(int64_t i) const {
    if constexpr (N == 1) {
      return f(operand(0, i));
    } else if constexpr (N == 2) {
      return f(operand(0, i), operand(1, i));
    } else {
      return f(operand(0, i), operand(1, i), operand(2, i));
    }
  }
  HS_HD void operator()(int64_t i) const {
    y[i] = delivered<float>(exact(i), write, rounding.element(i));
  }
};

struct ExpOp {
  FloatFormat write = kFp32;
  template <class T>
  HS_HD T operator()(T x) const {
    return delivered<T>(elementary::exp(static_cast<double>(x)), write);
  }
};
struct LogOp {
  FloatFormat write = kFp32;
  template <class T>
  HS_HD T operator()(T x) const {
    return delivered<T>(elementary::log(static_cast<double>(x)), write);
  }
};
}  // namespace halfscope::gpu
