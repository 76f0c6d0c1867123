// SPDX-License-Identifier: MIT
// Float<F>: a number of format F as a C++ type, stored as its code. Every operation is one exact
// operation and one rounding to nearest even (arithmetic.h), independent of the machine and its
// rounding mode. float_types.h has the names (half, bfloat16, ...) and everything around them.
//
// Conversions are explicit, even the lossless one to float. If a half converted to float
// implicitly, `h * 2` and std::exp(h) would be computed in fp32, unnoticed by someone who tests a
// kernel in fp16, and sums of two formats would silently pick one. Mixed operations do not compile
// instead.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/host_device.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/types/float_events.h"

namespace halfscope {

template <FloatFormat F>
class Float {
  static_assert(is_valid(F), "fp32 must hold every value of the format");

 public:
  /// The smallest type that fits. Unused bits are zeros: 3 in tf32, 2 in fp6, 4 in fp4.
  using Code = std::conditional_t<F.bits() <= 8, uint8_t,
                                  std::conditional_t<F.bits() <= 16, uint16_t, uint32_t>>;
  static constexpr FloatFormat kFormat = F;

  /// Constructs zero.
  constexpr Float() noexcept = default;

  /// Rounds x to the nearest value, or as `rounding` says. Values that are too large become
  /// infinity, NaN or the largest finite value, see round.h.
  HS_HD constexpr explicit Float(float x, const Rounding& rounding = {}) noexcept
      : Float(observe(FloatOperation::convert, round_to_format(x, F, rounding),
                      static_cast<double>(x))) {}
  HS_HD constexpr explicit Float(double x, const Rounding& rounding = {}) noexcept
      : Float(observe(FloatOperation::convert,
                      detail::round_bits<uint64_t, 52>(std::bit_cast<uint64_t>(x), F, rounding),
                      x)) {}

  /// Converts an integer of any size with a single rounding.
  template <std::integral T>
  HS_HD constexpr explicit Float(T x, const Rounding& rounding = {}) noexcept
      : Float(observe(FloatOperation::convert, rounded_integer(x, rounding),
                      static_cast<double>(x))) {}

  /// Converts from another format.
  template <FloatFormat G>
  HS_HD constexpr explicit Float(Float<G> x, const Rounding& rounding = {}) noexcept
      : Float(observe(FloatOperation::convert, convert(x.value(), G, F, rounding),
                      static_cast<double>(x.value()))) {}

  /// Returns the number with this code; bits above the format's are ignored.
  HS_HD static constexpr Float from_bits(Code code) noexcept {
    Float result;
    result.code_ = static_cast<Code>(code & kAllBits);
    return result;
  }
  HS_HD constexpr Code bits() const noexcept { return code_; }

  /// Returns the exact value.
  HS_HD constexpr float value() const noexcept {
    if constexpr (F.encoding == Encoding::ieee && F.exponent_bits == 8 && F.bias == 127) {
      return std::bit_cast<float>(static_cast<uint32_t>(code_) << (23 - F.mantissa_bits));
    } else {
      return decode(code_, F);
    }
  }
  HS_HD constexpr explicit operator float() const noexcept { return value(); }
  HS_HD constexpr explicit operator double() const noexcept { return static_cast<double>(value()); }
  HS_HD constexpr explicit operator bool() const noexcept { return !is_zero(); }
  /// Converts toward zero. Values out of range become the nearest integer in range, NaN becomes
  /// zero (as in PTX).
  template <std::integral T>
  requires(!std::same_as<T, bool>) HS_HD constexpr explicit operator T() const noexcept {
    const double x = static_cast<double>(value());
    constexpr double kBeyond = FloatFormat::power_of_two(std::numeric_limits<T>::digits);
    if (x != x) return 0;
    if (x >= kBeyond) return std::numeric_limits<T>::max();
    if (x < (std::signed_integral<T> ? -kBeyond : 0.0)) return std::numeric_limits<T>::min();
    return static_cast<T>(x);
  }

  HS_HD friend constexpr Float operator+(Float a, Float b) noexcept {
    return observe(FloatOperation::add, add(a.value(), b.value(), F), a, b);
  }
  HS_HD friend constexpr Float operator-(Float a, Float b) noexcept {
    return observe(FloatOperation::sub, sub(a.value(), b.value(), F), a, b);
  }
  HS_HD friend constexpr Float operator*(Float a, Float b) noexcept {
    return observe(FloatOperation::mul, mul(a.value(), b.value(), F), a, b);
  }
  HS_HD friend constexpr Float operator/(Float a, Float b) noexcept {
    return observe(FloatOperation::div, div(a.value(), b.value(), F), a, b);
  }
  HS_HD constexpr Float& operator+=(Float other) noexcept { return *this = *this + other; }
  HS_HD constexpr Float& operator-=(Float other) noexcept { return *this = *this - other; }
  HS_HD constexpr Float& operator*=(Float other) noexcept { return *this = *this * other; }
  HS_HD constexpr Float& operator/=(Float other) noexcept { return *this = *this / other; }

  HS_HD constexpr Float operator+() const noexcept { return *this; }
  /// Flips the sign bit (IEEE 754-2019, 5.5.1), also of NaNs; fnuz has one zero and one NaN.
  HS_HD constexpr Float operator-() const noexcept {
    if (!F.has_negative_zero() && (code_ & kMagnitudeBits) == 0) return *this;
    return from_bits(static_cast<Code>(code_ ^ kSign));
  }

  /// Returns a * b + c, rounded once.
  HS_HD friend constexpr Float fma(Float a, Float b, Float c) noexcept {
    return observe(FloatOperation::fma, halfscope::fma(a.value(), b.value(), c.value(), F), a, b,
                   c);
  }
  HS_HD friend constexpr Float sqrt(Float x) noexcept {
    return observe(FloatOperation::sqrt, halfscope::sqrt(x.value(), F), x);
  }
  HS_HD friend constexpr Float abs(Float x) noexcept { return signbit(x) ? -x : x; }

  HS_HD friend constexpr bool isnan(Float x) noexcept {
    const float value = x.value();
    return value != value;
  }
  HS_HD friend constexpr bool isinf(Float x) noexcept {
    return (std::bit_cast<uint32_t>(x.value()) & ~detail::kSignBit) == detail::kInfinityBits;
  }
  HS_HD friend constexpr bool isfinite(Float x) noexcept { return !isnan(x) && !isinf(x); }
  /// Returns the sign, also of NaNs. The only NaN of fnuz has none.
  HS_HD friend constexpr bool signbit(Float x) noexcept {
    if (!F.has_negative_zero() && (x.code_ & kMagnitudeBits) == 0) return false;
    return (x.code_ & kSign) != 0;
  }

  /// Compares: NaN is unordered, -0 == +0 (IEEE 754-2019, 5.11).
  HS_HD friend constexpr bool operator==(Float a, Float b) noexcept {
    return order(a, b) == Ordering::equal;
  }
  HS_HD friend constexpr bool operator<(Float a, Float b) noexcept {
    return order(a, b) == Ordering::less;
  }
  HS_HD friend constexpr bool operator>(Float a, Float b) noexcept { return b < a; }
  HS_HD friend constexpr bool operator<=(Float a, Float b) noexcept {
    return order(a, b) == Ordering::less || order(a, b) == Ordering::equal;
  }
  HS_HD friend constexpr bool operator>=(Float a, Float b) noexcept { return b <= a; }

 private:
  static constexpr uint32_t kSign = uint32_t{1} << (F.bits() - 1);
  static constexpr uint32_t kMagnitudeBits = kSign - 1;
  static constexpr uint32_t kAllBits = kSign | kMagnitudeBits;

  HS_HD constexpr bool is_zero() const noexcept {
    return F.has_negative_zero() ? (code_ & kMagnitudeBits) == 0 : code_ == 0;
  }
  HS_HD static constexpr Ordering order(Float a, Float b) noexcept {
    return compare(a.value(), b.value(), F).value;
  }

  template <std::integral T>
  HS_HD static constexpr Rounded<float> rounded_integer(T x, const Rounding& rounding) noexcept {
    if (x == 0) return {0.0f, kExact};
    bool negative = false;
    if constexpr (std::signed_integral<T>) negative = x < 0;
    const uint64_t bits = static_cast<uint64_t>(x);  // two's complement
    return detail::round_unpacked({.negative = negative,
                                   .significand = negative ? ~bits + 1 : bits,
                                   .exponent = 0,
                                   .sticky = false},
                                  F, rounding);
  }

  /// Returns the result as a Float and records it in the scopes of this thread, if any.
  template <class... Operands>
  HS_HD static constexpr Float observe([[maybe_unused]] FloatOperation operation,
                                       const Rounded<float>& result,
                                       [[maybe_unused]] Operands... operands) noexcept {
#if !defined(__CUDA_ARCH__)
    if (!std::is_constant_evaluated() && detail::float_event_scope != nullptr) [[unlikely]] {
      detail::record_float_event({.operation = operation,
                                  .format = F,
                                  .operand_count = static_cast<int>(sizeof...(Operands)),
                                  .operands = {static_cast<double>(operands)...},
                                  .result = result.value,
                                  .flags = result.flags});
    }
#endif
    return from_bits(static_cast<Code>(detail::code_of_value(result.value, F)));
  }

  Code code_ = 0;
};

}  // namespace halfscope
