// SPDX-License-Identifier: MIT
#include "core/lab/calculation.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/lab/number_text.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope::lab {
namespace {

/// Returns the exact result of the operation; empty if it is not a number. `approximate` is near
/// it.
std::string exact_result(Operation operation, double a, double b, double c,
                         std::optional<ExactDecimal>& decimal, double& approximate) {
  const bool reads_b = operation != Operation::sqrt, reads_c = operation == Operation::fma;
  const bool finite =
      std::isfinite(a) && (!reads_b || std::isfinite(b)) && (!reads_c || std::isfinite(c));
  if (!finite || (operation == Operation::div && b == 0.0)) return "";
  const ExactDecimal x(a), y(b), z(c);
  switch (operation) {
    case Operation::add:
      decimal = x + y;
      break;
    case Operation::sub:
      decimal = x - y;
      break;
    case Operation::mul:
      decimal = x * y;
      break;
    case Operation::fma:
      decimal = x * y + z;
      break;
    case Operation::div: {
      approximate = a / b;
      // Operands have 24 bits, so a quotient that ends has no more.
      if (std::fma(approximate, b, -a) == 0.0) {
        decimal = ExactDecimal(approximate);
        break;
      }
      return fmt::format("{:.17g}...", approximate);
    }
    case Operation::sqrt: {
      if (a < 0.0) return "";
      approximate = std::sqrt(a);
      if (std::fma(approximate, approximate, -a) == 0.0) {
        decimal = ExactDecimal(approximate);
        break;
      }
      return fmt::format("{:.17g}...", approximate);
    }
  }
  approximate = decimal->approximate();
  return decimal->text();
}

Rounded<float> rounded_result(Operation operation, float a, float b, float c,
                              const FloatFormat& format, const Rounding& rounding) {
  switch (operation) {
    case Operation::add:
      return add(a, b, format, rounding);
    case Operation::sub:
      return sub(a, b, format, rounding);
    case Operation::mul:
      return mul(a, b, format, rounding);
    case Operation::div:
      return div(a, b, format, rounding);
    case Operation::fma:
      return fma(a, b, c, format, rounding);
    case Operation::sqrt:
      return sqrt(a, format, rounding);
  }
  return {};
}

}  // namespace

const char* operation_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::add:
      return "a + b";
    case Operation::sub:
      return "a - b";
    case Operation::mul:
      return "a \u00d7 b";
    case Operation::div:
      return "a / b";
    case Operation::fma:
      return "a \u00d7 b + c";
    case Operation::sqrt:
      return "\u221aa";
  }
  return "";
}

Calculation calculate(Operation operation, float a, float b, float c, const FloatFormat& format,
                      const Rounding& rounding) {
  const Rounded<float> rounded = rounded_result(operation, a, b, c, format, rounding);
  Calculation result{.value = rounded.value, .flags = rounded.flags};
  std::optional<ExactDecimal> decimal;
  double approximate = 0.0;
  result.exact = exact_result(operation, static_cast<double>(a), static_cast<double>(b),
                              static_cast<double>(c), decimal, approximate);
  result.error_ulps = std::numeric_limits<double>::quiet_NaN();
  if (!result.exact.empty() && std::isfinite(result.value)) {
    const double value = static_cast<double>(result.value);
    const double difference =
        decimal ? (ExactDecimal(value) - *decimal).approximate() : value - approximate;
    result.error_ulps = difference / ulp_size(approximate, format);
  }
  return result;
}

}  // namespace halfscope::lab
