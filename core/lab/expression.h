// SPDX-License-Identifier: MIT
// Arithmetic as people type it, computed in a format: every number is rounded when it is read, and
// every operation rounds once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/lab/calculation.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rounding.h"

namespace halfscope::lab {

/// One operation on results of earlier ones, or a number that is rounded when it is read.
struct ExpressionStep {
  std::string text{};  ///< "256 x 256", with a times sign; of a number, as typed
  bool is_number = false;
  Calculation result{};
};

struct Expression {
  std::vector<ExpressionStep> steps{};
  float value = 0.0f;
  uint8_t flags = 0;  ///< of all steps together
  /// The result without any rounding, from the numbers as typed. Empty if it is not a number or
  /// has no end; `near_exact` is then the same in double.
  std::optional<ExactDecimal> exact{};
  double near_exact = 0.0;
};

/// Computes + - * / ^ (a whole power, by repeated multiplication), sqrt(a), fma(a, b, c) and
/// parentheses with the usual precedence. Stochastic rounding takes its random bits from `seed` and
/// the number of the operation. Empty for other text, with the reason in `problem`.
std::optional<Expression> evaluate(std::string_view text, const FloatFormat& format,
                                   RoundingMode mode, uint64_t seed, std::string& problem);

/// Returns whether the text has an operation or a function: "256*256", but not "1e-5" or "-2".
bool is_expression(std::string_view text);

}  // namespace halfscope::lab
