// SPDX-License-Identifier: MIT
#include "emulation/measure/round_spec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/numeric/formats/round.h"

namespace halfscope::measure_detail {
namespace {

uint32_t power_bits(int exponent) noexcept { return static_cast<uint32_t>(exponent + 127) << 23; }

RoundKind choose_kind(const FloatFormat& format, RoundingMode mode) noexcept {
  const int low = format.min_exponent();
  const int high = format.max_exponent();
  const int m = format.mantissa_bits;
  if (format == kFp32) return RoundKind::copy;  // in every mode
  // The nearest-even kernels do not support saturation, flushing, fnuz (which has no -0), NaN in a
  // finite format, or ties without mantissa bits.
  const bool plain = mode == RoundingMode::nearest_even && format == format.without_options() &&
                     m > 0 && format.encoding != Encoding::fnuz &&
                     format.encoding != Encoding::finite;
  if (plain && format == kFp16) return RoundKind::half;
  if (plain && low == -126 && high == 127 && format.encoding == Encoding::ieee) {
    return RoundKind::carry;
  }
  // Adding M = 1.5 * 2^(e + 23 - m) leaves a multiple of 2^(e - m) as long as |x| < 2^(e + 1) is
  // at most a third of M, hence m <= 21. All results and half of the last place are normal fp32
  // numbers, and M is finite.
  bool fits = m <= 21 && low - m > -126 && high + 1 + 24 - m <= 127 && high > low;
  // The inverse of the last place times 2^32 must be finite, too.
  if (mode == RoundingMode::stochastic) fits = fits && 32 + m - low <= 127;
  return !fits ? RoundKind::general : plain ? RoundKind::magic : RoundKind::magic_way;
}

RoundWay choose_way(RoundingMode mode) noexcept {
  switch (mode) {
    case RoundingMode::nearest_even:
      return RoundWay::nearest_even;
    case RoundingMode::nearest_away:
      return RoundWay::nearest_away;
    case RoundingMode::toward_zero:
      return RoundWay::truncate;
    case RoundingMode::up:
    case RoundingMode::down:
      return RoundWay::directed;
    case RoundingMode::odd:
      return RoundWay::odd;
    case RoundingMode::stochastic:
      return RoundWay::stochastic;
  }
  return RoundWay::nearest_even;
}

RoundRange choose_range(const FloatFormat& format) noexcept {
  const int low = format.min_exponent();
  if (low < -126 || format.encoding == Encoding::fnuz) return RoundRange::any;
  const int m = format.mantissa_bits;
  if (low != -126 || m == 0 || m == 23) return RoundRange::normal;
  return format.flush_out ? RoundRange::flushed : RoundRange::fixed;
}

uint32_t bits(float x) noexcept { return std::bit_cast<uint32_t>(x); }

/// Adds the constants for `magic_way` and `general`.
void add_general(const FloatFormat& format, const TensorRounding& rounding, RoundSpec& spec) {
  const int m = format.mantissa_bits;
  const int low = format.min_exponent();
  spec.deep = low < -126;
  spec.drop_min = spec.deep ? low + 149 - m : 23 - m;
  spec.drop_sum = 23 - m + low + 127;
  spec.drop_max = spec.deep || spec.range == RoundRange::fixed || spec.range == RoundRange::flushed
                      ? 23 - m
                      : std::min(23, spec.drop_sum - 1);
  spec.drop_bias = 127 + m;
  spec.inverse = static_cast<uint32_t>(254 + 32 + m) << 23;
  spec.unit = bits(static_cast<float>(format.min_subnormal()));
  spec.half_unit = bits(static_cast<float>(format.min_subnormal() / 2));
  spec.flush_limit = format.flush_out ? spec.exponent_low - 1 : 0;

  constexpr uint32_t kMagnitude = 0x7fffffffu;
  constexpr float kHuge = std::numeric_limits<float>::infinity();
  constexpr uint32_t kSign = 0x80000000u;
  spec.infinity = bits(round_to_format(kHuge, format).value) & kMagnitude;
  spec.over[0] = spec.over[1] = spec.infinity;
  const uint32_t largest = bits(spec.max_finite);
  switch (rounding.mode) {
    case RoundingMode::toward_zero:
    case RoundingMode::odd:
      spec.over[0] = spec.over[1] = largest;
      break;
    case RoundingMode::up:
      spec.over[1] = largest;
      spec.away_flip = ~0u;
      break;
    case RoundingMode::down:
      spec.over[0] = largest;
      break;
    case RoundingMode::nearest_even:
    case RoundingMode::nearest_away:
    case RoundingMode::stochastic:
      break;
  }
  const bool keeps_payload = format.has_nan() && format.encoding != Encoding::fnuz;
  spec.nan_kept = keeps_payload ? spec.kept | kSign : 0;
  spec.nan_set = keeps_payload ? 0x7fc00000u : bits(round_to_format(std::nanf(""), format).value);
  spec.unsigned_zero = !format.has_negative_zero();
  // Without mantissa bits, the cut would turn NaN into infinity.
  const bool plain = keeps_payload && !format.flush_out && m > 0;
  const bool only_fnuz = spec.unsigned_zero && !format.flush_out && !format.saturate;
  spec.options = plain ? RoundOptions::none : only_fnuz ? RoundOptions::fnuz : RoundOptions::all;
  spec.draw_start = draw_start(rounding.key);
  spec.random_mask = ~0u << (32 - std::clamp(rounding.random_bits, 1, 32));
}

}  // namespace

RoundSpec make_round_spec(const FloatFormat& format, const TensorRounding& rounding) noexcept {
  RoundSpec spec{};
  spec.kind = choose_kind(format, rounding.mode);
  spec.way = choose_way(rounding.mode);
  spec.range = choose_range(format);
  const int m = format.mantissa_bits;
  spec.last_bit = 1u << (23 - m);
  spec.kept = ~(spec.last_bit - 1);
  spec.exponent_low = bits(static_cast<float>(format.min_normal()));
  spec.max_finite = static_cast<float>(format.max_finite());
  spec.overflow = format.has_infinity() ? 0x7f800000u : 0x7fc00000u;
  if (spec.kind != RoundKind::carry && spec.kind != RoundKind::copy &&
      spec.kind != RoundKind::general) {
    spec.exponent_high = power_bits(format.max_exponent() + 1);
    spec.magic = static_cast<float>(1.5 * FloatFormat::power_of_two(23 - m));
    spec.half_step = static_cast<float>(FloatFormat::power_of_two(-1 - m));
  }
  // Half a step above the largest finite value; if that has an even mantissa, a tie goes to it.
  const uint32_t max_bits = bits(spec.max_finite);
  const bool even = (max_bits & spec.last_bit) == 0;
  spec.overflow_from = max_bits + (m == 23 ? 1u : spec.last_bit / 2 + (even ? 1u : 0u));
  if (spec.kind != RoundKind::copy) add_general(format, rounding, spec);
  return spec;
}

}  // namespace halfscope::measure_detail
