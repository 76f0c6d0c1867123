// SPDX-License-Identifier: MIT
// What operators do with single elements. The operands of arithmetic are values of narrow formats,
// and fp32 is wide enough for a single later rounding of +, -, *, / and sqrt to be the correct one
// (24 >= 2p + 2).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/host_device.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round_odd.h"

namespace halfscope {

/// What is read through a pointer, or through what a backend has for one.
template <class In>
using ElementOf = std::remove_cvref_t<decltype(std::declval<const In&>()[int64_t{}])>;

template <class T>
HS_HD constexpr bool is_nan(T x) noexcept {
  return x != x;
}

/// A result computed in double, such that the later rounding to `write` is the only one.
template <class T>
HS_HD inline T delivered(double value, const FloatFormat& write) noexcept;
template <>
HS_HD inline float delivered<float>(double value, const FloatFormat& write) noexcept {
  return deliver(value, write);
}
template <>
HS_HD inline double delivered<double>(double value, const FloatFormat&) noexcept {
  return value;
}

struct AddOp {
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a + b;
  }
};
struct SubOp {
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a - b;
  }
};
struct MulOp {
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a * b;
  }
};
struct DivOp {
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a / b;
  }
};
struct NegOp {
  template <class T>
  HS_HD T operator()(T x) const {
    return -x;
  }
};
struct SqrtOp {
  template <class T>
  HS_HD T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct ReluOp {
  template <class T>
  HS_HD T operator()(T x) const {
    return x <= T{0} ? T{0} : x;  // NaN compares false and stays
  }
};
struct ReluGradOp {
  template <class T>
  HS_HD T operator()(T dy, T y) const {
    return y <= T{0} ? T{0} : dy;
  }
};

// Comparisons and logic make 1 or 0; indices that are not zero are true.

struct EqualOp {
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a == b ? 1 : 0;
  }
};
struct LessOp {
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a < b ? 1 : 0;
  }
};
struct LessOrEqualOp {
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a <= b ? 1 : 0;
  }
};
struct GreaterOp {
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a > b ? 1 : 0;
  }
};
struct GreaterOrEqualOp {
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a >= b ? 1 : 0;
  }
};
struct AndOp {
  HS_HD int32_t operator()(int32_t a, int32_t b) const { return a != 0 && b != 0 ? 1 : 0; }
};
struct OrOp {
  HS_HD int32_t operator()(int32_t a, int32_t b) const { return a != 0 || b != 0 ? 1 : 0; }
};
struct NotOp {
  HS_HD int32_t operator()(int32_t x) const { return x == 0 ? 1 : 0; }
};

}  // namespace halfscope
