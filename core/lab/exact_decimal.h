// SPDX-License-Identifier: MIT
// Decimals with all their digits: binary numbers, their sums and products have finitely many. Meant
// for showing exact results, not for computing.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace halfscope::lab {

class ExactDecimal {
 public:
  ExactDecimal() = default;  ///< zero
  /// Converts a finite number exactly; any other gives zero.
  explicit ExactDecimal(double x);
  /// Parses [+-]digits[.digits][e[+-]digits] with an exponent within +-400; empty for other text.
  static std::optional<ExactDecimal> parse(std::string_view text);

  bool zero() const noexcept { return digits_.empty(); }
  bool negative() const noexcept { return negative_; }
  /// Returns all digits, without exponent: "-0.0999755859375".
  std::string text() const;
  /// Returns the nearest double, or one of its neighbours.
  double approximate() const;

  ExactDecimal operator-() const;
  friend ExactDecimal operator+(const ExactDecimal& a, const ExactDecimal& b);
  friend ExactDecimal operator-(const ExactDecimal& a, const ExactDecimal& b) { return a + -b; }
  friend ExactDecimal operator*(const ExactDecimal& a, const ExactDecimal& b);
  friend bool operator==(const ExactDecimal&, const ExactDecimal&) = default;

 private:
  /// Removes redundant zeros.
  void trim();
  bool negative_ = false;
  std::string digits_{};  ///< values 0 to 9, the highest first; empty for zero
  size_t decimals_ = 0;   ///< number of digits after the point
};

}  // namespace halfscope::lab
