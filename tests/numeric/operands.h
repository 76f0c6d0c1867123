// SPDX-License-Identifier: MIT
// Helpers for the tests of arithmetic: one operation by name, and operands that find errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/codes.h"
#include "tests/numeric/exact_operation.h"

namespace halfscope::testing {

inline Rounded<float> run(Operation operation, float a, float b, float c, const FloatFormat& format,
                          const Rounding& rounding) {
  switch (operation) {
    case Operation::add:
      return add(a, b, format, rounding);
    case Operation::sub:
      return sub(a, b, format, rounding);
    case Operation::mul:
      return mul(a, b, format, rounding);
    case Operation::div:
      return div(a, b, format, rounding);
    case Operation::sqrt:
      return sqrt(a, format, rounding);
    case Operation::fma:
      return fma(a, b, c, format, rounding);
  }
  return {0, 0};
}

/// Operands near each other, near the ends of the range, special ones and any ones.
class Operands {
 public:
  explicit Operands(const FloatFormat& format) : format_(format) {}

  float next() {
    const uint32_t mask = (uint32_t{2} << (format_.bits() - 1)) - 1;
    const uint32_t any = static_cast<uint32_t>(generator_()) & mask;
    const uint32_t sign = any & ~(mask >> 1);
    const uint32_t one = encode(1.0f, format_), normal = uint32_t{1} << format_.mantissa_bits;
    const uint32_t near = static_cast<uint32_t>(generator_() % 7) - 3;
    uint32_t code = any;
    switch (generator_() % 8) {
      case 0:
        code = sign | ((last_ + near) & (mask >> 1));
        break;
      case 1:
        code = sign | (one + near);
        break;
      case 2:
        code = sign | (normal + near);
        break;
      case 3:
        code = sign | (any & 3);
        break;
      case 4:
        code = sign | (encode(static_cast<float>(format_.max_finite()), format_) - (any & 3));
        break;
      case 5:  // a moderate exponent, so that sums align
        code = sign | (one + (any & (8 * normal - 1)) - 4 * normal);
        break;
      default:
        break;
    }
    last_ = code & mask;
    const float value = decode(last_, format_);
    return std::isnan(value) ? 1.0f : value;
  }
  uint64_t random() { return generator_(); }

 private:
  FloatFormat format_;
  std::mt19937_64 generator_{17};
  uint32_t last_ = 0;
};

}  // namespace halfscope::testing
