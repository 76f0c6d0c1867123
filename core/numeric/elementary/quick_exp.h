// SPDX-License-Identifier: MIT
// e^x with 50 correct bits in a third of exp()'s operations, for results that are rounded to fewer
// bits: they are computed with a bound on the error, and if all numbers within that bound round to
// the same one, so does the exact result. Otherwise the caller computes it with exp() after all.
// So these functions never decide a bit of a result, and may use fused multiply-adds.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/host_device.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope::elementary {

/// Relative error of quick_exp(): 2^-51.4 of the polynomial, the rest of the last operations.
inline constexpr double kQuickError = 0x1p-50;
/// Below this, quick_exp() returns e^kQuickLeast, which is less than 2^-1019.
inline constexpr double kQuickLeast = -707.0;

namespace detail {

/// Coefficients of e^r for |r| <= log(2) / 2. mpmath: chebyfit(exp, [-log(2) / 2, log(2) / 2], 11)
struct QuickTerms {
  static constexpr double c[] = {
      0x1.0000000000000p+0,  0x1.000000000001ep+0,  0x1.0000000000005p-1,  0x1.555555554b756p-3,
      0x1.55555555520afp-5,  0x1.1111112dd6872p-7,  0x1.6c16c17f43acbp-10, 0x1.a01978c698b9fp-13,
      0x1.a019a66a5f0b6p-16, 0x1.72faf04859965p-19, 0x1.28a2c0bee04a5p-22};
};
/// Returns c[First] + c[First + 1] r + ...; a loop would keep callers' loops from vectorizing.
template <size_t First>
HS_HD inline double quick_terms(double r) noexcept {
  constexpr double kTerm = QuickTerms::c[First];  // devices cannot read the table itself
  if constexpr (First + 1 == sizeof(QuickTerms::c) / sizeof(double)) {
    return kTerm;
  } else {
    return std::fma(quick_terms<First + 1>(r), r, kTerm);
  }
}

}  // namespace detail

/// Returns e^x for x <= 0 with a relative error below kQuickError; below kQuickLeast, a positive
/// number of no more than 2^-1019. NaN counts as such an x.
HS_HD inline double quick_exp(double x) noexcept {
  constexpr double kWhole = 0x1.8p52;
  const double within = x > kQuickLeast ? x : kQuickLeast;
  const double shifted = std::fma(within, kLog2E, kWhole);  // the low bits are the integer k
  const double k = shifted - kWhole;
  const double r = std::fma(k, -kLn2Low, std::fma(k, -kLn2High, within));
  const double power = detail::quick_terms<0>(r);
  return from_bits(bits_of(power) + (bits_of(shifted) << 52));  // times 2^k
}

/// Returns whether all numbers within `margin` units in the last place of x round to the same fp32
/// number as x does. False if that is not a normal number, or close to the largest one.
HS_HD inline bool rounds_surely(double x, uint32_t margin) noexcept {
  constexpr uint64_t kFirstNormal = 0x3810000000000000, kAlmostLast = 0x47e0000000000000;
  const uint64_t bits = bits_of(x) & ~(1ull << 63);
  const uint32_t rest = static_cast<uint32_t>(bits) & 0x1fffffffu;  // 2^28: between two neighbours
  const uint32_t distance = rest > 0x10000000u ? rest - 0x10000000u : 0x10000000u - rest;
  return distance > margin && bits - kFirstNormal < kAlmostLast - kFirstNormal;
}

/// An approximation, and a bound on its distance from a double that need not be known.
struct Bounded {
  double value, error;
};

/// 1 / (1 + e^-x) and 1 / (1 + e^x), with relative errors below 4 * kQuickError.
struct QuickLogistic {
  double of_x, of_minus_x;
  double unknown;  ///< NaN where products of the smaller one may underflow (x < -500), else 0
};
HS_HD inline QuickLogistic quick_logistic(double x) noexcept {
  const double power = quick_exp(-magnitude(x));
  const double large = 1.0 / (1.0 + power), small = power * large;
  return {x < 0.0 ? small : large, x < 0.0 ? large : small, x > -500.0 ? 0.0 : kNaN};
}

/// Two numbers in fp32 with all numbers between them that a result may be.
struct Interval {
  float low, high;
};
/// Returns an interval that contains all numbers within `error` of `value`, and is at most 2^-20 of
/// the value wide. `low` is NaN if there is none: the error is larger, or the value is tiny or
/// infinite in fp32.
HS_HD inline Interval narrow_interval(double value, double error) noexcept {
  const float near = static_cast<float>(value);
  const float size = near < 0.0f ? -near : near;
  const bool fits = error <= static_cast<double>(size) * 0x1p-24 && size >= 0x1p-100f;
  const float around = fits ? size * 0x1p-22f : static_cast<float>(kNaN);
  return {near - around, near + around};
}

}  // namespace halfscope::elementary
