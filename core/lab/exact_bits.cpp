// SPDX-License-Identifier: MIT
#include "core/lab/exact_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace halfscope::lab {
namespace {

using Magnitude = std::vector<uint8_t>;

/// Compares magnitudes whose bits have the same exponents.
bool is_less(const Magnitude& a, const Magnitude& b) {
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i];
  }
  return false;
}

}  // namespace

ExactBits::ExactBits(double x) {
  if (!std::isfinite(x) || x == 0.0) return;
  negative_ = std::signbit(x);
  int exponent = 0;
  const double part = std::frexp(std::fabs(x), &exponent);
  uint64_t significand = static_cast<uint64_t>(std::ldexp(part, 53));
  low_ = exponent - 53;
  for (; significand != 0; significand >>= 1) bits_.push_back(significand & 1);
  trim();
}

bool ExactBits::bit(int exponent) const noexcept {
  const int place = exponent - low_;
  return place >= 0 && place < static_cast<int>(bits_.size()) &&
         bits_[static_cast<size_t>(place)] != 0;
}

void ExactBits::trim() {
  while (!bits_.empty() && bits_.back() == 0) bits_.pop_back();
  const auto first = std::find(bits_.begin(), bits_.end(), uint8_t{1});
  low_ += static_cast<int>(first - bits_.begin());
  bits_.erase(bits_.begin(), first);
  if (bits_.empty()) {
    low_ = 0;
    negative_ = false;
  }
}

ExactBits ExactBits::truncated(int exponent) const {
  ExactBits result = *this;
  if (zero()) return result;
  for (int place = low_; place < exponent && place <= high(); ++place) {
    result.bits_[static_cast<size_t>(place - low_)] = 0;
  }
  result.trim();
  return result;
}

double ExactBits::approximate() const noexcept {
  double sum = 0.0;
  const size_t kept = std::min<size_t>(bits_.size(), 53);
  for (size_t i = 0; i < kept; ++i) sum = 2.0 * sum + bits_[bits_.size() - 1 - i];
  const double value = std::ldexp(sum, high() - static_cast<int>(kept) + 1);
  return negative_ ? -value : value;
}

ExactBits ExactBits::operator-() const {
  ExactBits result = *this;
  result.negative_ = !negative_ && !zero();
  return result;
}

ExactBits operator+(const ExactBits& a, const ExactBits& b) {
  if (a.zero()) return b;
  if (b.zero()) return a;
  ExactBits result;
  result.low_ = std::min(a.low(), b.low());
  const size_t size = static_cast<size_t>(std::max(a.high(), b.high()) - result.low_ + 2);
  const auto spread = [&](const ExactBits& x) {
    Magnitude bits(size, 0);
    std::copy(x.bits_.begin(), x.bits_.end(), bits.begin() + (x.low_ - result.low_));
    return bits;
  };
  Magnitude more = spread(a), less = spread(b);
  const bool subtracts = a.negative_ != b.negative_;
  result.negative_ = a.negative_;
  if (subtracts && is_less(more, less)) {
    more.swap(less);
    result.negative_ = b.negative_;
  }
  int carry = 0;
  for (size_t i = 0; i < size; ++i) {
    const int sum = more[i] + (subtracts ? -less[i] : less[i]) + carry;
    more[i] = static_cast<uint8_t>(sum & 1);
    carry = sum >> 1;
  }
  result.bits_ = std::move(more);
  result.trim();
  return result;
}

ExactBits operator*(const ExactBits& a, const ExactBits& b) {
  ExactBits result;
  for (size_t i = 0; i < a.bits_.size(); ++i) {
    if (a.bits_[i] == 0) continue;
    ExactBits part = b;
    part.negative_ = false;
    part.low_ += a.low_ + static_cast<int>(i);
    result = result + part;
  }
  result.negative_ = !result.zero() && a.negative_ != b.negative_;
  return result;
}

}  // namespace halfscope::lab
