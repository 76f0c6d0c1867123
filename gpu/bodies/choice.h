// SPDX-License-Identifier: MIT
// Comparisons, logic, ArgMax and Where.
#pragma once

#include <cstdint>

#include "gpu/bodies/elementwise.h"

namespace halfscope::gpu {

/// y[i] = whether the relation holds between elements of a and b.
template <class Element, class Relation>
struct Relate {
  In<Element> a, b;
  int32_t* y;
  Operand at_a, at_b;
  Relation relation{};

  HS_HD void operator()(int64_t i) const { y[i] = relation(a[at_a(i)], b[at_b(i)]) ? 1 : 0; }
};

struct EqualTo {
  template <class E>
  HS_HD bool operator()(E a, E b) const {
    return a == b;
  }
};
struct LessThan {
  template <class E>
  HS_HD bool operator()(E a, E b) const {
    return a < b;
  }
};
struct AtMost {
  template <class E>
  HS_HD bool operator()(E a, E b) const {
    return a <= b;
  }
};
struct GreaterThan {
  template <class E>
  HS_HD bool operator()(E a, E b) const {
    return a > b;
  }
};
struct AtLeast {
  template <class E>
  HS_HD bool operator()(E a, E b) const {
    return a >= b;
  }
};
struct BothTrue {
  HS_HD bool operator()(int32_t a, int32_t b) const { return a != 0 && b != 0; }
};
struct EitherTrue {
  HS_HD bool operator()(int32_t a, int32_t b) const { return a != 0 || b != 0; }
};

struct Negate {
  const int32_t* x;
  int32_t* y;
  HS_HD void operator()(int64_t i) const { y[i] = x[i] == 0 ? 1 : 0; }
};

/// Item: a line of x along the axis, of `length` elements `inner` apart.
template <class T>
struct ArgMax {
  In<T> x;
  int32_t* y;
  int64_t length, inner;
  bool last;  ///< of equal elements the last one

  HS_HD void operator()(int64_t item) const {
    const In<T> line = x + item / inner * length * inner + item % inner;
    int64_t best = 0;
    for (int64_t i = 1; i < length; ++i) {
      const T value = line[i * inner], largest = line[best * inner];
      const bool ties = value == largest || (is_nan(value) && is_nan(largest));
      const bool wins = value > largest || (is_nan(value) && !is_nan(largest));
      if (wins || (last && ties)) best = i;
    }
    y[item] = static_cast<int32_t>(best);
  }
};

/// A null operand stands for zeros.
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

}  // namespace halfscope::gpu
