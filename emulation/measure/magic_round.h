// SPDX-License-Identifier: MIT
// RoundMagic (kernel_body.h) for every mode and option. x + M, rounded to nearest even, contains
// the rounded value in its lowest bits, in units of the last place. Comparing it with x shows to
// which side it was rounded, so the other modes add or subtract one unit before M is subtracted.
// Shared by vectors and plain integers, like general_round.h.
#pragma once

#include <cstdint>

#include "emulation/measure/general_round.h"
#include "emulation/measure/kernels.h"

namespace halfscope::measure_detail {
namespace {

template <class V, RoundWay kWay, RoundOptions kOptions>
struct RoundMagicWay {
  using I = typename V::I;
  using F = typename V::F;
  using M = typename V::M;
  static constexpr bool kCountsLanes = false;
  static constexpr bool kCountsBeyond = true;
  static constexpr bool kStochastic = kWay == RoundWay::stochastic;
  static constexpr bool kNearest =
      kWay == RoundWay::nearest_even || kWay == RoundWay::nearest_away || kStochastic;

  I exponent_bits = V::set32(0x7f800000u), sign_bit = V::set32(0x80000000u);
  I magnitude = V::set32(0x7fffffffu), largest_bits = V::set32(0x7f7fffffu), one = V::set32(1),
    ones = V::set32(~0u);
  I low, high, kept, over, over_negative, infinity, flip, flush_limit, inverse, nan_kept, nan_set;
  F magic, max_finite, half_step;
  bool unsigned_zero;
  DrawLimits<V> limits;
  I beyond = V::zero();

  RoundMagicWay(const RoundSpec& spec, uint64_t first)
      : low(V::set32(spec.exponent_low)),
        high(V::set32(spec.exponent_high)),
        kept(V::set32(spec.kept & 0x7fffffffu)),
        over(V::set32(spec.over[0])),
        over_negative(V::set32(spec.over[1])),
        infinity(V::set32(spec.infinity)),
        flip(V::set32(~spec.away_flip & 0x80000000u)),
        flush_limit(V::set32(spec.flush_limit)),
        inverse(V::set32(spec.inverse)),
        nan_kept(V::set32(spec.nan_kept)),
        nan_set(V::set32(spec.nan_set)),
        magic(V::set_float(spec.magic)),
        max_finite(V::set_float(spec.max_finite)),
        half_step(V::set_float(spec.half_step)),
        unsigned_zero(spec.unsigned_zero),
        limits(spec, first) {}

  /// Returns the rounded magnitude. Infinities stay; NaNs stay except for their payload.
  I rounded(I x) {
    const F power = V::as_float(V::min32(V::max32(V::and_(x, exponent_bits), low), high));
    // Rounding down is rounding the negated value up.
    const F value =
        V::as_float(kWay == RoundWay::directed ? V::xor_(x, flip) : V::and_(x, magnitude));
    // Some instruction sets compute the sum in the required mode directly.
    constexpr bool kAtOnce =
        V::kRoundsAnyWay && kWay != RoundWay::nearest_even && kWay != RoundWay::nearest_away;
    const F shifted = !kAtOnce                     ? V::fma(power, magic, value)
                      : kWay == RoundWay::directed ? V::fma_up(power, magic, value)
                                                   : V::fma_truncate(power, magic, value);
    const F sum = V::fnma(power, magic, shifted);
    if constexpr (kWay == RoundWay::nearest_even || (kAtOnce && !kStochastic && !kOdd)) {
      return V::and_(V::as_int(sum), kept);
    }
    I units = V::as_int(shifted);
    if constexpr (kWay == RoundWay::nearest_away) {
      const F half = V::multiply(power, half_step);
      units = V::count(units, V::equal_float(V::subtract(value, sum), half));
    } else if constexpr (kWay == RoundWay::directed) {
      units = V::count(units, V::less_float(sum, value));
    } else if constexpr (!kAtOnce) {
      units = V::count_down(units, V::less_float(value, sum));
    }
    if constexpr (kOdd) units = V::or_if(units, V::differ_float(sum, value), one);
    if constexpr (kStochastic) {
      const F cut = kAtOnce ? sum : V::fnma(power, magic, V::as_float(units));
      // Infinity minus infinity counts as no fraction.
      const F rest = V::or_zero(V::subtract(value, cut));
      const F scale = V::as_float(V::sub32(inverse, V::as_int(power)));
      const I fraction = V::to_unsigned(V::multiply(rest, scale));
      units = V::count(units, V::above(fraction, limits.next()));
    }
    return V::and_(V::as_int(V::fnma(power, magic, V::as_float(units))), kept);
  }

  template <bool kCount>
  I apply(I x) {
    I r = rounded(x);
    if constexpr (kCount) beyond = V::count(beyond, V::not_up_to(r, max_finite));
    I larger = over;
    if constexpr (kWay == RoundWay::directed) larger = V::choose_by_sign(x, over_negative, over);
    if constexpr (kOptions == RoundOptions::fnuz) return finish_fnuz(r, larger, x);
    r = V::replace_if_above(r, max_finite, larger);
    const I given = V::and_(x, magnitude);
    if constexpr (!kNearest) r = V::choose(V::equal(given, exponent_bits), infinity, r);
    if constexpr (kOptions == RoundOptions::none) return V::or_masked(r, x, sign_bit);
    r = V::keep_if(V::less(flush_limit, r), r);
    I sign = V::and_(x, sign_bit);
    if (unsigned_zero) {
      const I below = V::add32(r, ones);  // negative for zero
      sign = V::keep_if(V::less(below, exponent_bits), V::and_not(sign, below));
    }
    r = V::or_(r, sign);
    return V::choose(V::less(exponent_bits, given), V::or_masked(nan_set, x, nan_kept), r);
  }

 private:
  static constexpr bool kOdd = kWay == RoundWay::odd;

  /// NaN and zero have no sign.
  I finish_fnuz(I r, I larger, I x) const {
    const M beyond_max = V::not_up_to(r, max_finite);  // NaN too
    const I with_sign = V::or_masked(r, x, sign_bit);
    I result = V::keep_if(V::less(V::zero(), r), with_sign);
    if constexpr (kNearest) return V::choose(beyond_max, nan_set, result);
    // For each sign, larger values become NaN or keep their sign; one comparison decides which.
    const I signed_larger =
        V::choose(V::equal(larger, nan_set), larger, V::or_masked(larger, x, sign_bit));
    result = V::choose(beyond_max, signed_larger, result);
    const I given = V::and_(x, magnitude);
    return V::choose(V::less(largest_bits, given), nan_set, result);
  }
};

template <class V, class Work>
void with_magic_way(const RoundSpec& spec, const Work& work) {
  const auto way = [&spec, &work]<RoundWay kWay>() {
    switch (spec.options) {
      case RoundOptions::none:
        return work(static_cast<const RoundMagicWay<V, kWay, RoundOptions::none>*>(nullptr));
      case RoundOptions::fnuz:
        return work(static_cast<const RoundMagicWay<V, kWay, RoundOptions::fnuz>*>(nullptr));
      case RoundOptions::all:
        return work(static_cast<const RoundMagicWay<V, kWay, RoundOptions::all>*>(nullptr));
    }
  };
  with_way(spec.way, way);
}

}  // namespace
}  // namespace halfscope::measure_detail
