// SPDX-License-Identifier: MIT
// Distances between the tensors of two lanes, in one unit for all lanes. The run file counts them
// in ulps of each tensor's own format, which are 8,192 times larger in fp16 than in fp32; here they
// are relative to the value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "analysis/run_view.h"

namespace halfscope {

/// Bars of the histogram of distances, from left to right.
inline constexpr size_t kDistanceBars = 9;
struct DistanceBar {
  enum class Kind : uint8_t { equal, small, large, not_finite };
  const char* label = "";    ///< "equal", "1e-6" ... "0.1", "more", "NaN/Inf"
  const char* meaning = "";  ///< "relative difference up to about 1e-6"
  Kind kind = Kind::small;   ///< large: beyond 1e-2
  int64_t count = 0;
};

/// Returns the bars of `ulps` (as SiteError::ulps) in a tensor of `format`. `not_finite` elements
/// of the last bin are finite in one of the lanes only. A distance of d ulps counts as a relative
/// difference of d 2^-m, within a factor of 2, where m is the number of mantissa bits; among
/// subnormals the difference is larger.
std::array<DistanceBar, kDistanceBars> distance_bars(
    const std::array<int64_t, SiteError::kBins>& ulps, const FloatFormat& format,
    int64_t not_finite) noexcept;

/// Returns the number of elements that are NaN or infinite in one of the two lanes only. In formats
/// of more than 24 bits they share a bin with finite values far apart; there the result is at most
/// the number that the tensor's statistics of that step count, and 0 without statistics.
int64_t not_finite_in_one(const RunView& run, int lane, const SiteError& error);

}  // namespace halfscope
