// SPDX-License-Identifier: MIT
// std::fma of floats for processors without the instruction (WebAssembly, x86 without FMA), where
// it is quicker than the C library's function.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/round_odd.h"

namespace halfscope {
namespace detail {

/// Out of line, because it is seldom called: so the compiler keeps the loops around it in
/// registers.
[[gnu::noinline, gnu::cold]] inline float odd_sum_as_float(double sum, double rest) noexcept {
  return static_cast<float>(to_odd(sum, rest));
}

}  // namespace detail

/// Returns std::fma(a, b, c). The product is exact in double. Rounding the sum twice, to double and
/// to float, does harm only if the double is inexact and looks like a tie: its last 28 bits are
/// zero.
inline float fused_multiply_add(float a, float b, float c) noexcept {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c), sum = product + addend;
  constexpr uint64_t kBelowTies = (uint64_t{1} << 28) - 1;
  if ((std::bit_cast<uint64_t>(sum) & kBelowTies) != 0) return static_cast<float>(sum);
  const double t = sum - product, rest = (product - (sum - t)) + (addend - t);  // TwoSum (Knuth)
  if (!(rest > 0.0 || rest < 0.0)) return static_cast<float>(sum);              // exact, or NaN
  return detail::odd_sum_as_float(sum, rest);
}

}  // namespace halfscope
