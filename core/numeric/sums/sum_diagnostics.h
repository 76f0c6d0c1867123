// SPDX-License-Identifier: MIT
// What happens inside sums of products, where no result shows it: products that vanish beside the
// accumulator, how large it gets, whether it overflows. Plain counters, merged in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "core/numeric/sums/accumulation.h"

namespace halfscope {

/// Of the chains of one or more sums, up to where an accumulator is no longer finite. The bias and
/// the fp32 additions between the parts of a sum are not counted.
struct SumDiagnostics {
  int64_t sums = 0;
  int64_t products = 0;  ///< that are not zero
  /// Of these, the additions that left the accumulator as it was. Under tensor cores, which add a
  /// block of products at once: products of which nothing is left once they are aligned to the
  /// largest term of their block, the accumulator among them, and cut off.
  int64_t swamped = 0;
  double largest = 0.0;         ///< finite magnitude of an accumulator after a step
  int64_t overflowed = 0;       ///< sums of which an accumulator overflowed on finite operands
  int64_t first_overflow = -1;  ///< smallest k at which one did (of tensor cores the block's first)

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

/// Whether the above means something: of chains (fp32, fp64, and those in a format that round to
/// nearest even) and of tensor cores. Not of pairwise sums, which have no accumulator, of Kahan's,
/// which keep what an addition loses, and of other roundings, which may do without an addition and
/// make up for it.
bool has_diagnostics(const Accumulation& accumulation) noexcept;

/// Of one sum of a[k] * b[k], term by term: the reference. Nothing where has_diagnostics() is
/// false.
std::optional<SumDiagnostics> diagnose_sum(const SumSpec& spec, std::span<const float> a,
                                           std::span<const float> b);

}  // namespace halfscope
