// SPDX-License-Identifier: MIT
// Binary numbers of any length, bit by bit: exact sums and products, and which of their bits a
// rounding drops. Meant for drawing arithmetic, not for computing.
#pragma once

#include <cstdint>
#include <vector>

namespace halfscope::lab {

class ExactBits {
 public:
  ExactBits() = default;  ///< zero
  /// Converts a finite number exactly; any other gives zero.
  explicit ExactBits(double x);

  bool zero() const noexcept { return bits_.empty(); }
  bool negative() const noexcept { return negative_; }
  /// Exponents of the lowest and of the highest bit that is set; 0 for zero.
  int low() const noexcept { return low_; }
  int high() const noexcept { return zero() ? 0 : low_ + static_cast<int>(bits_.size()) - 1; }
  /// Returns the bit worth 2^exponent.
  bool bit(int exponent) const noexcept;
  /// Drops all bits below 2^exponent, towards zero.
  ExactBits truncated(int exponent) const;
  /// Returns the double towards zero, to 60 bits at most.
  double approximate() const noexcept;

  ExactBits operator-() const;
  friend ExactBits operator+(const ExactBits& a, const ExactBits& b);
  friend ExactBits operator-(const ExactBits& a, const ExactBits& b) { return a + -b; }
  friend ExactBits operator*(const ExactBits& a, const ExactBits& b);
  friend bool operator==(const ExactBits&, const ExactBits&) = default;

 private:
  /// Removes zeros at both ends.
  void trim();
  bool negative_ = false;
  int low_ = 0;
  std::vector<uint8_t> bits_{};  ///< 0 or 1, the lowest first; empty for zero
};

}  // namespace halfscope::lab
