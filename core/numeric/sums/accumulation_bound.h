// SPDX-License-Identifier: MIT
// Bounds of the rounding error of a sum of products, for each accumulation. Unlike sum_bound.h,
// which covers any order of fp32 sums, this one knows how the terms are added.
#pragma once

#include <span>

#include "core/numeric/sums/accumulation.h"

namespace halfscope {

/// How far a sum that rounds as its accumulation says can be from the exact sum.
struct AccumulationBound {
  double exact = 0.0;       ///< the sum in double
  double magnitudes = 0.0;  ///< sum of |a[k] * b[k]|
  /// Largest error of the accumulation as a share of `magnitudes`. From 1 on the bound says
  /// nothing: even a result of 0 is within it.
  double share = 0.0;
  /// Bound of |computed - exact|, with the final rounding to SumSpec::write and with underflow.
  double error = 0.0;
};

/// Returns a bound for the sum of a[k] * b[k] under `spec`, for operands that are values of the
/// formats it reads and if nothing overflows.
///
/// Each term passes a number of roundings r with unit roundoff u, so its relative error is at most
/// gamma_r = r u / (1 - r u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
/// 2002, lemma 3.1 and section 3.1). r is n for a chain, 1 + ceil(log2 n) for pairwise sums (4.6),
/// ceil(n / 16) + 4 for 16 chains; compensated sums have 2 u + O(n u^2) (4.8). Parts of a sum add
/// the roundings of their total. A block of a tensor core cuts every term to multiples of 2^-F of
/// the largest one and rounds once (fused_dot.h). Values below the smallest normal one get an
/// absolute term.
///
/// With `lambda` > 0 the bound holds with probability of at least 1 - 2 n exp(-lambda^2 / 2)
/// (about) if rounding errors are independent and have mean zero: gamma_r becomes exp(lambda
/// sqrt(r) u + r u^2 / (1 - u)) - 1 (Higham and Mary, A New Approach to Probabilistic Rounding
/// Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4). Truncation is biased, so tensor
/// cores and directed roundings keep the first bound.
AccumulationBound accumulation_bound(const SumSpec& spec, std::span<const float> a,
                                     std::span<const float> b, double lambda = 0.0);

}  // namespace halfscope
