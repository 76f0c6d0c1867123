// SPDX-License-Identifier: MIT
// Exact results of arithmetic on floats, as doubles rounded to odd: 53 bits, the last one set if
// more follow. Rounded from there, to at most 24 bits, is rounded once (Boldo and Melquiond 2008).
// Made of double operations and their exact errors (Knuth's TwoSum, fma), no integers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace halfscope::testing {

enum class Operation { add, sub, mul, div, sqrt, fma };

/// x is nearest to an exact value that is `error` (or of its sign) larger.
inline double to_odd(double x, double error) {
  const int64_t bits = std::bit_cast<int64_t>(x);
  if (error == 0 || (bits & 1) != 0) return x;
  return std::bit_cast<double>(bits + ((error > 0) == (x > 0) ? 1 : -1));
}

inline double sum_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double virtual_b = sum - a;
  return to_odd(sum, (a - (sum - virtual_b)) + (b - virtual_b));
}

/// The operands are floats; for zeros, infinities and NaNs this is what IEEE 754 says, the zero of
/// x - x being +0.
inline double exact_operation(Operation operation, float x, float y, float z) {
  const double a = static_cast<double>(x), b = static_cast<double>(y), c = static_cast<double>(z);
  switch (operation) {
    case Operation::add:
      return sum_to_odd(a, b);
    case Operation::sub:
      return sum_to_odd(a, -b);
    case Operation::mul:
      return a * b;
    case Operation::div: {
      const double quotient = a / b;
      if (!std::isfinite(quotient) || quotient == 0 || std::isinf(b)) return quotient;
      const double rest = std::fma(-quotient, b, a);
      return to_odd(quotient, std::signbit(b) ? -rest : rest);
    }
    case Operation::sqrt: {
      const double root = std::sqrt(a);
      if (!std::isfinite(root) || root == 0) return root;
      return to_odd(root, std::fma(-root, root, a));
    }
    case Operation::fma:
      return sum_to_odd(a * b, c);
  }
  return 0;
}

}  // namespace halfscope::testing
