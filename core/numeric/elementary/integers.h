// SPDX-License-Identifier: MIT
// Arithmetic on the 32-bit integers of index tensors, for every backend. It wraps, as ONNX's
// integers do in their own size. Div rounds toward zero and Mod has the sign of the divisor, as in
// ONNX with fmod = 0. Division by zero, which ONNX leaves undefined, gives 0.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace halfscope::integers {

HS_HD constexpr int32_t wrapped(int64_t value) noexcept {
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(value)));
}

struct Add {
  static constexpr const char* kName = "Add";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept {
    return wrapped(int64_t{a} + b);
  }
};
struct Sub {
  static constexpr const char* kName = "Sub";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept {
    return wrapped(int64_t{a} - b);
  }
};
struct Mul {
  static constexpr const char* kName = "Mul";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept {
    return wrapped(int64_t{a} * b);
  }
};
struct Div {
  static constexpr const char* kName = "Div";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept {
    return b == 0 ? 0 : wrapped(int64_t{a} / b);
  }
};
struct Mod {
  static constexpr const char* kName = "Mod";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept {
    if (b == 0) return 0;
    const int64_t rest = int64_t{a} % b;
    return wrapped(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
};
struct BitwiseAnd {
  static constexpr const char* kName = "BitwiseAnd";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept { return a & b; }
};
struct BitwiseOr {
  static constexpr const char* kName = "BitwiseOr";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept { return a | b; }
};
struct BitwiseXor {
  static constexpr const char* kName = "BitwiseXor";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept { return a ^ b; }
};
struct Min {
  static constexpr const char* kName = "Min";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept { return a < b ? a : b; }
};
struct Max {
  static constexpr const char* kName = "Max";
  HS_HD constexpr int32_t operator()(int32_t a, int32_t b) const noexcept { return a < b ? b : a; }
};
struct Neg {
  static constexpr const char* kName = "Neg";
  HS_HD constexpr int32_t operator()(int32_t x) const noexcept { return wrapped(-int64_t{x}); }
};
struct Abs {
  static constexpr const char* kName = "Abs";
  HS_HD constexpr int32_t operator()(int32_t x) const noexcept {
    return wrapped(x < 0 ? -int64_t{x} : int64_t{x});
  }
};

/// Converts toward zero. Values out of the 32-bit range become its nearest end, NaN becomes 0.
HS_HD constexpr int32_t truncated(double x) noexcept {
  if (!(x > -2147483649.0)) return x == x ? INT32_MIN : 0;
  return x < 2147483648.0 ? static_cast<int32_t>(x) : INT32_MAX;
}

}  // namespace halfscope::integers
