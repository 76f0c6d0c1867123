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
  /// Parses [+-]digits[.digits][e[+-]digits]; empty for other text, and for numbers that only
  /// parse_far() reads.
  static std::optional<ExactDecimal> parse(std::string_view text);
  /// Parses a number whose exponent puts it beyond 10^400, or closer to 0 than 10^-400. Returns
  /// that power of ten with its sign, which every format rounds as it does the number. Empty for
  /// others.
  static std::optional<ExactDecimal> parse_far(std::string_view text);

  bool zero() const noexcept { return digits_.empty(); }
  bool negative() const noexcept { return negative_; }
  /// Returns all digits, without exponent: "-0.0999755859375".
  std::string text() const;
  /// Returns the nearest double, or one of its neighbours.
  double approximate() const;
  /// Returns approximate(), or the largest or smallest double where that is infinite or 0 and the
  /// number is not. All formats round the result as they do the number.
  double rounding_input() const;

  ExactDecimal operator-() const;
  friend ExactDecimal operator+(const ExactDecimal& a, const ExactDecimal& b);
  friend ExactDecimal operator-(const ExactDecimal& a, const ExactDecimal& b) { return a + -b; }
  friend ExactDecimal operator*(const ExactDecimal& a, const ExactDecimal& b);
  friend bool operator==(const ExactDecimal&, const ExactDecimal&) = default;

 private:
  struct Scanned;
  static std::optional<Scanned> scan(std::string_view text);
  /// Removes redundant zeros.
  void trim();
  bool negative_ = false;
  std::string digits_{};  ///< values 0 to 9, the highest first; empty for zero
  size_t decimals_ = 0;   ///< number of digits after the point
};

}  // namespace halfscope::lab
