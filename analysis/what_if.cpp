// SPDX-License-Identifier: MIT
#include "analysis/what_if.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "analysis/format_limits.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

/// Result of rounding a magnitude, in ascending order of magnitudes.
enum Fate : size_t { kZeroed, kBelowNormal, kNormal, kOverflowed, kFates };

/// Returns the kind of result under rounding to nearest even. A tie goes to the even significand,
/// or away from zero if no significand is even.
class Fates {
 public:
  Fates(const FloatFormat& format, double factor)
      : limits_(range_limits(format)),
        factor_(factor),
        flushes_tie_(!format.flush_out || format.mantissa_bits == 0),
        overflows_tie_(format.max_significand() % 2 == 1) {}

  Fate of(double magnitude) const noexcept {
    const double x = magnitude * factor_;
    if (x < limits_.flush || (x == limits_.flush && flushes_tie_)) return kZeroed;
    if (x > limits_.overflow || (x == limits_.overflow && overflows_tie_)) return kOverflowed;
    return x < limits_.normal ? kBelowNormal : kNormal;
  }

 private:
  RangeLimits limits_;
  double factor_;
  bool flushes_tie_, overflows_tie_;
};

/// Returns whether two formats are equal in everything that the counters of TensorStats depend on.
bool counts_alike(FloatFormat a, FloatFormat b) noexcept {
  a.saturate = b.saturate = false;
  a.flush_in = b.flush_in = false;
  return a == b;
}

/// The values of one bin: between `low` and `high`, both inclusive. Some of them are known to
/// exist.
struct Bin {
  double low, high;
  int64_t count;
  std::array<double, 2> known{};
  size_t known_count = 0;
};

void add_bin(const Bin& bin, const Fates& fates, std::array<CountBounds, kFates>& bounds,
             int64_t& ties) noexcept {
  Fate first = fates.of(bin.low);
  const Fate last = fates.of(bin.high);
  const bool low_is_known = bin.known_count > 0 && bin.known[0] == bin.low;
  if (first == kZeroed && last != kZeroed && !low_is_known) {
    const float next = std::nextafter(static_cast<float>(bin.low), INFINITY);
    const Fate after = fates.of(static_cast<double>(next));
    if (after != kZeroed) {
      first = after;
      ties += bin.count;
    }
  }
  for (size_t fate = first; fate <= static_cast<size_t>(last); ++fate) {
    int64_t here = 0;
    for (size_t i = 0; i < bin.known_count; ++i) here += fates.of(bin.known[i]) == fate;
    const int64_t elsewhere = static_cast<int64_t>(bin.known_count) - here;
    bounds[fate].low += first == last ? bin.count : here;
    bounds[fate].high += first == last ? bin.count : bin.count - elsewhere;
  }
}

}  // namespace

RangeLimits range_limits(const FloatFormat& format) noexcept {
  const double flush = flush_threshold(format);
  // Half a step below the smallest normal number a value is rounded up to it.
  const double normal =
      format.mantissa_bits == 0 ? flush : format.min_normal() - 0.5 * format.min_subnormal();
  return {.flush = flush, .normal = normal, .overflow = overflow_threshold(format)};
}

WhatIf what_if(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
               double shift) noexcept {
  WhatIf result{.n = stats.n,
                .non_zero = non_zero_values(stats),
                .overflow = {},
                .underflow = {},
                .subnormal = {}};
  if (shift == 0.0 && counts_alike(recorded, format)) {
    result.overflow = {stats.overflow, stats.overflow};
    result.underflow = {stats.underflow, stats.underflow};
    result.subnormal = {stats.subnormal, stats.subnormal};
    result.recorded = true;
    return result;
  }
  const Fates fates(format, std::exp2(shift));
  const double smallest = static_cast<double>(stats.min_abs);
  const double largest = static_cast<double>(stats.max_abs);
  std::array<CountBounds, kFates> bounds{};
  for (int i = 0; i < kExponentBins; ++i) {
    const int64_t count = stats.exponents[static_cast<size_t>(i)];
    if (count == 0) continue;
    const int exponent = i + kMinExponentBin;
    const double low = std::ldexp(1.0, exponent);
    // The last fp32 number before the next power of two.
    const double high = 2.0 * low - std::ldexp(1.0, std::max(exponent - 23, kMinExponentBin));
    Bin bin{.low = low, .high = high, .count = count};
    if (low <= smallest && smallest <= high) {
      bin.low = smallest;
      bin.known[bin.known_count++] = smallest;
    }
    if (low <= largest && largest <= high) {
      bin.high = largest;
      if (bin.known_count < static_cast<size_t>(count)) bin.known[bin.known_count++] = largest;
    }
    add_bin(bin, fates, bounds, result.ties);
  }
  result.underflow = bounds[kZeroed];
  result.subnormal = bounds[kBelowNormal];
  result.overflow = bounds[kOverflowed];
  return result;
}

bool loss_scale_reaches(const RunInfo& run, const SiteInfo& site) noexcept {
  const bool gradient = site.role == Role::activation_grad || site.role == Role::weight_grad;
  return gradient && site.phase == Phase::backward && site.scale.empty() && !run.inference;
}

bool plan_sets_format(const LaneInfo& lane, const SiteInfo& site) {
  if (lane.backend == "float64") return false;
  const bool variable =
      site.role == Role::weight || site.role == Role::state || site.phase == Phase::update;
  return variable ||
         std::any_of(lane.layers.begin(), lane.layers.end(), [&](const LayerInfo& layer) {
           const bool reads =
               site.role == Role::input &&
               std::find(layer.inputs.begin(), layer.inputs.end(), site.path) != layer.inputs.end();
           return layer.path == site.path || reads;
         });
}

bool can_keep_in_fp32(const LaneInfo& lane, const LayerInfo* layer) noexcept {
  if (layer == nullptr || lane.backend == "float64") return false;
  return !full_precision(layer->read) || !full_precision(layer->write);
}

int fitting_shift(const TensorStats& stats, const FloatFormat& recorded, const FloatFormat& format,
                  int most) noexcept {
  using Loss = std::pair<int64_t, int64_t>;
  Loss least{std::numeric_limits<int64_t>::max(), 0};
  int first = 0, last = 0;
  for (int shift = -most; shift <= most; ++shift) {
    const WhatIf answer = what_if(stats, recorded, format, shift);
    const Loss loss{answer.overflow.high, answer.underflow.high};
    if (loss > least) continue;
    if (loss < least) first = shift;
    least = loss;
    last = shift;
  }
  return first + (last - first) / 2;
}

}  // namespace halfscope
