// SPDX-License-Identifier: MIT
// One operation on numbers of a format: the exact result, the rounded one, and what lies between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/lab/exact_decimal.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope::lab {

enum class Operation : uint8_t { add, sub, mul, div, fma, sqrt };
const char* operation_name(Operation operation) noexcept;  // "a + b"

struct Calculation {
  float value = 0.0f;
  uint8_t flags = 0;
  std::string exact{};  ///< all digits; for endless results the first ones, then dots; "" if none
  double error_ulps = 0.0;  ///< rounded minus exact, in ulps of the exact result; NaN if none
};
/// Computes the operation on values of the format, rounded once. Ignores operands that it does not
/// have.
Calculation calculate(Operation operation, float a, float b, float c, const FloatFormat& format,
                      const Rounding& rounding = {});

}  // namespace halfscope::lab
