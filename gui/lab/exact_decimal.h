// SPDX-License-Identifier: MIT
// Decimals with all their digits: every binary number has finitely many, and sums and products of
// them too. For showing exact results, not for computing with.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace halfscope::gui {

class ExactDecimal {
 public:
  ExactDecimal() = default;  ///< zero
  /// Of a finite number; zero for any other.
  explicit ExactDecimal(double x);
  /// [+-]digits[.digits][e[+-]digits] with an exponent within +-400; nothing for anything else.
  static std::optional<ExactDecimal> parse(std::string_view text);

  bool zero() const noexcept { return digits_.empty(); }
  bool negative() const noexcept { return negative_; }
  /// All digits, no exponent: "-0.0999755859375".
  std::string text() const;
  /// The nearest double, or one of its neighbours.
  double approximate() const;

  ExactDecimal operator-() const;
  friend ExactDecimal operator+(const ExactDecimal& a, const ExactDecimal& b);
  friend ExactDecimal operator-(const ExactDecimal& a, const ExactDecimal& b) { return a + -b; }
  friend ExactDecimal operator*(const ExactDecimal& a, const ExactDecimal& b);
  friend bool operator==(const ExactDecimal&, const ExactDecimal&) = default;

 private:
  /// Takes zeros away where they say nothing.
  void trim();
  bool negative_ = false;
  std::string digits_{};  ///< values 0 to 9, the highest first; empty for zero
  size_t decimals_ = 0;   ///< so many of them stand behind the point
};

}  // namespace halfscope::gui
