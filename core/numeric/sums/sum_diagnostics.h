// SPDX-License-Identifier: MIT
// Events inside sums of products that no result shows: products that vanish next to the
// accumulator, how large it gets, whether it overflows. Plain counters, merged in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "core/numeric/sums/accumulation.h"

namespace halfscope {

/// Counters over the chains of one or more sums, up to where an accumulator is no longer finite.
/// They exclude the bias and the fp32 additions between the parts of a sum.
struct SumDiagnostics {
  int64_t sums = 0;
  int64_t products = 0;  ///< nonzero products
  /// Products whose addition left the accumulator unchanged. For tensor cores, which add a block of
  /// products at once: products that vanish when they are aligned to the largest term of their
  /// block (including the accumulator) and cut off.
  int64_t swamped = 0;
  double largest = 0.0;         ///< largest finite magnitude of an accumulator after a step
  int64_t overflowed = 0;       ///< sums with an accumulator that overflowed on finite operands
  int64_t first_overflow = -1;  ///< smallest k of an overflow (tensor cores: the block's first k)

  void merge(const SumDiagnostics& other) noexcept {
    sums += other.sums;
    products += other.products;
    swamped += other.swamped;
    largest = std::max(largest, other.largest);
    overflowed += other.overflowed;
    if (first_overflow < 0 ||
        (other.first_overflow >= 0 && other.first_overflow < first_overflow)) {
      first_overflow = other.first_overflow;
    }
  }
  friend bool operator==(const SumDiagnostics&, const SumDiagnostics&) = default;
};

/// Returns whether these counters are meaningful: for chains (fp32, fp64, interleaved16, and those
/// in a format that round to nearest even) and for tensor cores. They are not for pairwise sums,
/// which have no accumulator, for Kahan's, which keep what an addition loses, and for other
/// roundings, which may skip an addition and make up for it.
bool has_diagnostics(const Accumulation& accumulation) noexcept;

/// Diagnoses one sum of a[k] * b[k], term by term: the reference. Returns nothing if
/// has_diagnostics() is false.
std::optional<SumDiagnostics> diagnose_sum(const SumSpec& spec, std::span<const float> a,
                                           std::span<const float> b);

}  // namespace halfscope
