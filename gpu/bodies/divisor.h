// SPDX-License-Identifier: MIT
// Division of positions by a size that is known before a launch, with one multiplication and one
// shift (Granlund and Montgomery 1994): devices have no instruction that divides integers.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "core/host_device.h"

namespace halfscope::gpu {

/// A size to divide by; otherwise it behaves like a number. n / d and n % d equal those of int64_t
/// for all 0 <= n < 2^63, d >= 1. A size of zero is allowed, but not as a divisor.
class Divisor {
 public:
  Divisor() = default;
  HS_HD constexpr Divisor(int64_t d) noexcept : size_(d) {  // NOLINT: as a number
    if (d <= 1) return;
    // multiplier = 2^(63 + shift) / d, rounded up, by long division; 2^shift >= d > 2^(shift - 1).
    const uint64_t divisor = static_cast<uint64_t>(d);
    shift_ = static_cast<uint32_t>(std::bit_width(divisor - 1));
    uint64_t rest = (uint64_t{1} << shift_) - divisor;
    multiplier_ = 1;
    for (int bit = 0; bit < 63; ++bit) {
      rest *= 2;
      multiplier_ = 2 * multiplier_ + (rest >= divisor ? 1 : 0);
      if (rest >= divisor) rest -= divisor;
    }
    if (rest != 0) ++multiplier_;
    // Same for n < 2^31. With a larger shift, the quotient of such n is always zero.
    narrow_ = shift_ < 32 ? static_cast<uint32_t>((multiplier_ + 0xffffffffu) >> 32) : 0;
  }

  HS_HD constexpr operator int64_t() const noexcept { return size_; }  // NOLINT: as a number

  HS_HD friend constexpr int operator/(int n, const Divisor& d) noexcept {
    return static_cast<int>(d.narrow_quotient(static_cast<uint32_t>(n)));
  }
  HS_HD friend constexpr int64_t operator/(int64_t n, const Divisor& d) noexcept {
    if (n >> 31 == 0) return d.narrow_quotient(static_cast<uint32_t>(n));
    return static_cast<int64_t>(high_half(static_cast<uint64_t>(n) << 1, d.multiplier_) >>
                                d.shift_);
  }
  HS_HD friend constexpr int64_t operator%(int64_t n, const Divisor& d) noexcept {
    if (n >> 31 == 0) {
      const uint32_t narrow = static_cast<uint32_t>(n);
      return narrow - d.narrow_quotient(narrow) * static_cast<uint32_t>(d.size_);
    }
    return n - n / d * d.size_;
  }
  HS_HD friend constexpr int64_t& operator/=(int64_t& n, const Divisor& d) noexcept {
    return n = n / d;
  }

 private:
  template <int kCount>
  friend class Divisors;

  HS_HD constexpr Divisor(int64_t size, uint64_t multiplier, uint32_t narrow,
                          uint32_t shift) noexcept
      : size_(size), multiplier_(multiplier), narrow_(narrow), shift_(shift) {}

  /// Returns n / d for n < 2^31.
  HS_HD constexpr uint32_t narrow_quotient(uint32_t n) const noexcept {
#if defined(__CUDA_ARCH__)
    const uint32_t high = __umulhi(n << 1, narrow_);
#else
    const uint32_t high = static_cast<uint32_t>(uint64_t{n << 1} * narrow_ >> 32);
#endif
    return high >> (shift_ & 31);
  }
  /// Returns the upper 64 bits of the product.
  HS_HD static constexpr uint64_t high_half(uint64_t a, uint64_t b) noexcept {
#if defined(__CUDA_ARCH__)
    return __umul64hi(a, b);
#else
    const uint64_t a_low = a & 0xffffffffu, b_low = b & 0xffffffffu;
    const uint64_t one = (a >> 32) * b_low, other = a_low * (b >> 32);
    const uint64_t carry = (one & 0xffffffffu) + (other & 0xffffffffu) + (a_low * b_low >> 32);
    return (a >> 32) * (b >> 32) + (one >> 32) + (other >> 32) + (carry >> 32);
#endif
  }

  int64_t size_ = 1;
  uint64_t multiplier_ = uint64_t{1} << 63;
  uint32_t narrow_ = uint32_t{1} << 31;
  uint32_t shift_ = 0;
};

/// Several divisors, all zero at first. (Stored as numbers: tests look into the arguments of
/// kernels with GCC 12's __builtin_clear_padding(), which loses its position after an array of
/// classes.)
template <int kCount>
class Divisors {
 public:
  Divisors() = default;
  Divisors(std::initializer_list<int64_t> sizes) noexcept {
    int at = 0;
    for (const int64_t size : sizes) set(at++, size);
  }

  void set(int at, const Divisor& d) noexcept {
    size_[at] = d.size_;
    multiplier_[at] = d.multiplier_;
    narrow_[at] = d.narrow_;
    shift_[at] = d.shift_;
  }
  HS_HD Divisor operator[](int at) const noexcept {
    return {size_[at], multiplier_[at], narrow_[at], shift_[at]};
  }

 private:
  int64_t size_[kCount] = {};
  uint64_t multiplier_[kCount] = {};
  uint32_t narrow_[kCount] = {}, shift_[kCount] = {};
};

HS_HD constexpr int64_t ceil_div(int64_t n, const Divisor& d) noexcept {
  return (n + static_cast<int64_t>(d) - 1) / d;
}

}  // namespace halfscope::gpu
