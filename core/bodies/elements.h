// SPDX-License-Identifier: MIT
// Operations on single elements. The operands of arithmetic are values of reduced formats. fp32 has
// enough bits (24 >= 2p + 2) that one later rounding of +, -, *, / and sqrt to nearest even is
// correct. Other roundings need the exact result: exact() returns a double that is rounded to odd.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/function_list.h"
#include "core/host_device.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round_odd.h"

namespace halfscope {

/// Type of the elements read through a pointer, or through a backend's replacement for one.
template <class In>
using ElementOf = std::remove_cvref_t<decltype(std::declval<const In&>()[int64_t{}])>;

template <class T>
HS_HD constexpr bool is_nan(T x) noexcept {
  return x != x;
}

/// Delivers a result computed in double so that the later rounding to `write` is the only one.
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

/// The same, for a later rounding that need not be to nearest even.
template <class T>
HS_HD inline T delivered(double value, const FloatFormat& write, const Rounding& rounding) noexcept;
template <>
HS_HD inline float delivered<float>(double value, const FloatFormat& write,
                                    const Rounding& rounding) noexcept {
  return deliver(value, write, rounding);
}
template <>
HS_HD inline double delivered<double>(double value, const FloatFormat&, const Rounding&) noexcept {
  return value;
}

// Operations marked kWaits take so long that a GPU waits for them, not for memory.

struct AddOp {
  static constexpr const char* kName = "Add";
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a + b;
  }
  HS_HD static double exact(double a, double b, bool down) { return odd_sum(a, b, down); }
};
struct SubOp {
  static constexpr const char* kName = "Sub";
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a - b;
  }
  HS_HD static double exact(double a, double b, bool down) {
    return odd_sum(a, is_nan(b) ? b : -b, down);
  }
};
struct MulOp {
  static constexpr const char* kName = "Mul";
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a * b;
  }
  HS_HD static double exact(double a, double b, bool) { return a * b; }
};
struct DivOp {
  static constexpr const char* kName = "Div";
  static constexpr bool kWaits = true;
  template <class T>
  HS_HD T operator()(T a, T b) const {
    return a / b;
  }
  HS_HD static double exact(double a, double b, bool) { return odd_quotient(a, b); }
};
struct NegOp {
  static constexpr const char* kName = "Neg";
  template <class T>
  HS_HD T operator()(T x) const {
    return -x;
  }
};
struct SqrtOp {
  static constexpr const char* kName = "Sqrt";
  static constexpr bool kWaits = true;
  template <class T>
  HS_HD T operator()(T x) const {
    return std::sqrt(x);
  }
  HS_HD static double exact(double x, bool) { return odd_root(x); }
};
struct ReluOp {
  static constexpr const char* kName = "Relu";
  template <class T>
  HS_HD T operator()(T x) const {
    return x <= T{0} ? T{0} : x;  // NaN compares false and passes through
  }
};
struct ReluGradOp {
  static constexpr const char* kName = "ReluGrad";
  template <class T>
  HS_HD T operator()(T dy, T y) const {
    return y <= T{0} ? T{0} : dy;
  }
};

/// A function that has exact(operands of types X, whether the later rounding is downward). A
/// concept, because nvcc 13.0 takes a requires-expression with a pack of parameters for false on
/// devices.
template <class Function, class... X>
concept HasExact = requires(const X&... x) {
  Function::exact(x..., false);
};

/// An operation or a function of doubles for a later rounding that is not to nearest even. Uses
/// exact() if the function has one. `down`: rounding toward -infinity.
template <class Function>
struct Exactly {
  Function f{};
  bool down = false;

  template <class... X>
  HS_HD double operator()(X... x) const {
    if constexpr (HasExact<Function, X...>) {
      return Function::exact(x..., down);
    } else {
      return f(x...);
    }
  }
};

// Relations and logic return 1 or 0; nonzero indices are true.

struct EqualOp {
  static constexpr const char* kName = "Equal";
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a == b ? 1 : 0;
  }
};
struct LessOp {
  static constexpr const char* kName = "Less";
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a < b ? 1 : 0;
  }
};
struct LessOrEqualOp {
  static constexpr const char* kName = "LessOrEqual";
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a <= b ? 1 : 0;
  }
};
struct GreaterOp {
  static constexpr const char* kName = "Greater";
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a > b ? 1 : 0;
  }
};
struct GreaterOrEqualOp {
  static constexpr const char* kName = "GreaterOrEqual";
  template <class T>
  HS_HD int32_t operator()(T a, T b) const {
    return a >= b ? 1 : 0;
  }
};
struct AndOp {
  static constexpr const char* kName = "And";
  HS_HD int32_t operator()(int32_t a, int32_t b) const { return a != 0 && b != 0 ? 1 : 0; }
};
struct OrOp {
  static constexpr const char* kName = "Or";
  HS_HD int32_t operator()(int32_t a, int32_t b) const { return a != 0 || b != 0 ? 1 : 0; }
};
struct NotOp {
  static constexpr const char* kName = "Not";
  HS_HD int32_t operator()(int32_t x) const { return x == 0 ? 1 : 0; }
};

// Every backend makes kernels from these lists.
using UnaryElements = FunctionList<NegOp, SqrtOp, ReluOp>;
using BinaryElements = FunctionList<AddOp, SubOp, MulOp, DivOp, ReluGradOp>;
/// Relations between two reals or two indices.
using Relations = FunctionList<EqualOp, LessOp, LessOrEqualOp, GreaterOp, GreaterOrEqualOp>;
/// Logic on two indices.
using Connectives = FunctionList<AndOp, OrOp>;

}  // namespace halfscope
