// SPDX-License-Identifier: MIT
// How far from the exact sum a sum of products may be, whatever the order in which it is taken.
#pragma once

#include <cstdint>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// Bound of |computed - exact| for the sum of n products of values of a format, with or without a
/// bias; `magnitudes` is the sum of the terms' absolute values. A chain, a tree or blocks in fp32
/// of n terms make n roundings of at most 2^-24 of that (Higham, Accuracy and Stability of
/// Numerical Algorithms, 2nd edition, 4.2). A block of a tensor core drops what is below 2^-23 of
/// its largest term at the least, of each of its terms, and as much of its sum: 2^-13 for operands
/// of 8 bits on Ada and Hopper (core/numeric/sums/fused_dot.h). Twice the first order leaves room
/// for the rest.
constexpr double sum_error_bound(int64_t n, const FloatFormat& format, double magnitudes) noexcept {
  const double unit = format.bits() <= 8 ? 0x1p-13 : 0x1p-23;
  return 2.0 * static_cast<double>(n + 2) * unit * magnitudes;
}

}  // namespace halfscope
