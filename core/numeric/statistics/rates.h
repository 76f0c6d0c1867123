// SPDX-License-Identifier: MIT
// Rates: a tensor's counters as shares, each with the same denominator wherever it is shown
// (docs/reference/csv.md, "Rates"). Only nonzero values can underflow, so zeros must not make an
// underflow look small; overflow, NaN and infinities concern the tensor as a whole.
#pragma once

#include <cstdint>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// Returns `part` / `whole`, or 0 if there is nothing to take a share of.
constexpr double share_of(int64_t part, int64_t whole) noexcept {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Returns the number of values before rounding that are finite and not zero: the denominator of
/// underflow, subnormal and lost updates. `Counts` has the counters of TensorStats.
template <class Counts>
constexpr int64_t non_zero_values(const Counts& counts) noexcept {
  return counts.n - counts.zero - counts.pos_inf - counts.neg_inf - counts.nan;
}

struct Rates {
  // Shares of all values.
  double overflow = 0.0;  ///< finite before rounding; infinite, NaN or saturated after it
  double infinite = 0.0;  ///< infinite after rounding: infinite before it, or overflowed
  double nan = 0.0;       ///< NaN after rounding
  double zero = 0.0;      ///< zero before rounding
  // Shares of the nonzero values, see non_zero_values().
  double underflow = 0.0;  ///< zero after rounding
  double subnormal = 0.0;  ///< subnormal after rounding
  double lost = 0.0;       ///< updates that left their variable unchanged

  double non_finite() const noexcept { return infinite + nan; }
};

/// Returns the rates of a tensor with these counters, which refer to `format`; all 0 if nothing was
/// counted. Assumes that overflows were rounded to nearest: to infinity, to NaN if the format has
/// no infinity, or to its largest number if it saturates.
template <class Counts>
constexpr Rates rates_of(const Counts& counts, const FloatFormat& format) noexcept {
  const int64_t non_zero = non_zero_values(counts);
  const int64_t beyond = counts.pos_inf + counts.neg_inf + counts.overflow;
  const bool to_infinity = format.has_infinity() && !format.saturates();
  const bool to_nan = !format.has_infinity() && !format.saturates();
  return {.overflow = share_of(counts.overflow, counts.n),
          .infinite = share_of(to_infinity ? beyond : 0, counts.n),
          .nan = share_of(counts.nan + (to_nan ? beyond : 0), counts.n),
          .zero = share_of(counts.zero, counts.n),
          .underflow = share_of(counts.underflow, non_zero),
          .subnormal = share_of(counts.subnormal, non_zero),
          .lost = share_of(counts.lost, non_zero)};
}

}  // namespace halfscope
