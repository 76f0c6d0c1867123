// SPDX-License-Identifier: MIT
#include "analysis/distances.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

using Kind = DistanceBar::Kind;

constexpr std::array<DistanceBar, kDistanceBars> kBars{{
    {.label = "equal", .meaning = "equal", .kind = Kind::equal},
    {.label = "1e-6", .meaning = "relative difference up to about 1e-6"},
    {.label = "1e-5", .meaning = "relative difference up to about 1e-5"},
    {.label = "1e-4", .meaning = "relative difference up to about 1e-4"},
    {.label = "1e-3", .meaning = "relative difference up to about 1e-3"},
    {.label = "1e-2", .meaning = "relative difference up to about 1e-2"},
    {.label = "0.1", .meaning = "relative difference up to about 0.1", .kind = Kind::large},
    {.label = "more", .meaning = "relative difference of more than 0.1", .kind = Kind::large},
    {.label = "NaN/Inf",
     .meaning = "NaN or infinite in one of the lanes only",
     .kind = Kind::not_finite},
}};
constexpr size_t kLeastBar = 1, kMostBar = 7;

/// Bin k counts d in [2^(k-1), 2^k) ulps; the middle of both ranges is a difference of 2^(k-1-m).
size_t bar_of(size_t bin, const FloatFormat& format) noexcept {
  if (bin == 0) return 0;
  const double difference = std::ldexp(1.0, static_cast<int>(bin) - 1 - format.mantissa_bits);
  const int decade = static_cast<int>(std::ceil(std::log10(difference)));  // -6: up to 1e-6
  return static_cast<size_t>(
      std::clamp(decade + 7, static_cast<int>(kLeastBar), static_cast<int>(kMostBar)));
}

}  // namespace

std::array<DistanceBar, kDistanceBars> distance_bars(
    const std::array<int64_t, SiteError::kBins>& ulps, const FloatFormat& format,
    int64_t not_finite) noexcept {
  std::array<DistanceBar, kDistanceBars> bars = kBars;
  for (size_t bin = 0; bin < ulps.size(); ++bin) {
    int64_t count = ulps[bin];
    if (bin + 1 == ulps.size()) {
      const int64_t gone = std::clamp<int64_t>(not_finite, 0, count);
      bars.back().count = gone;
      count -= gone;
    }
    bars[bar_of(bin, format)].count += count;
  }
  return bars;
}

int64_t not_finite_in_one(const RunView& run, int lane, const SiteError& error) {
  const FloatFormat& format = run.lane(lane).sites[static_cast<size_t>(error.site)].format;
  const int64_t beyond = error.ulps.back();
  // 2^24 ulps are more than such a format has.
  if (beyond == 0 || format.bits() <= 24) return beyond;
  const auto counted = [&error](const RunView& view, int of, int site) -> int64_t {
    if (of < 0 || of >= view.lane_count() || site < 0 ||
        static_cast<size_t>(site) >= view.lane(of).sites.size()) {
      return 0;
    }
    const std::optional<PackedWindow> window = view.windows(of, site).find(error.step);
    if (!window || window->step_count != 1) return 0;
    const TensorCounts counts = window->counts();
    return counts.non_finite() + counts.overflow;
  };
  return std::min(
      beyond, counted(run, lane, error.site) + counted(run, error.other_lane, error.other_site));
}

}  // namespace halfscope
