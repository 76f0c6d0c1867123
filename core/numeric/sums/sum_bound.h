// SPDX-License-Identifier: MIT
// Bound of the distance of a sum of products from the exact sum, for any summation order.
#pragma once

#include <cstdint>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// Returns a bound of |computed - exact| for the sum of n products of values of a format, with or
/// without a bias; `magnitudes` is the sum of the terms' absolute values. Chains, trees or blocks
/// in fp32 of n terms make n roundings of at most 2^-24 of that (Higham, Accuracy and Stability of
/// Numerical Algorithms, 2nd edition, 4.2). A block of a tensor core drops, for each of its terms
/// and for its sum, what is below 2^-23 of its largest term (at most); 2^-13 for 8-bit operands on
/// Ada and Hopper (core/numeric/sums/fused_dot.h). Doubling the first order covers the rest.
constexpr double sum_error_bound(int64_t n, const FloatFormat& format, double magnitudes) noexcept {
  const double unit = format.bits() <= 8 ? 0x1p-13 : 0x1p-23;
  return 2.0 * static_cast<double>(n + 2) * unit * magnitudes;
}

}  // namespace halfscope
