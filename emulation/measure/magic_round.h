// SPDX-License-Identifier: MIT
// RoundMagic (kernel_body.h) for every mode and option. x + M, to nearest even, has the rounded
// value in its lowest bits, counted in units of the last place. Comparing it with x says on which
// side it fell, so the other modes add or take one unit before M is subtracted. Shared by vectors
// and plain integers, like general_round.h.
#pragma once

#include <cstdint>

#include "emulation/measure/general_round.h"
#include "emulation/measure/kernels.h"

namespace halfscope::measure_detail {
namespace {

/// kOptions: flushing, unsigned zeros, NaNs that lose their payload.
template <class V, RoundWay kWay, bool kOptions>
struct RoundMagicWay {
  using I = typename V::I;
  using F = typename V::F;
  static constexpr bool kCountsLanes = false;
  static constexpr bool kCountsBeyond = true;
  static constexpr bool kStochastic = kWay == RoundWay::stochastic;
  static constexpr bool kNearest =
      kWay == RoundWay::nearest_even || kWay == RoundWay::nearest_away || kStochastic;

  I exponent_bits = V::set32(0x7f800000u), sign_bit = V::set32(0x80000000u);
  I magnitude = V::set32(0x7fffffffu), one = V::set32(1), ones = V::set32(~0u);
  I inverse = V::set32(254u << 23);  // 2^-e has the bits 254 << 23 less those of 2^e
  I low, high, kept, over, over_negative, infinity, flip, flush_limit, nan_kept, nan_set;
  F magic, max_finite, half_step, fraction_scale;
  bool unsigned_zero;
  int random_shift;
  Draws<V> draws;
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
        nan_kept(V::set32(spec.nan_kept)),
        nan_set(V::set32(spec.nan_set)),
        magic(V::set_float(spec.magic)),
        max_finite(V::set_float(spec.max_finite)),
        half_step(V::set_float(spec.half_step)),
        fraction_scale(V::set_float(spec.fraction_scale)),
        unsigned_zero(spec.unsigned_zero),
        random_shift(spec.random_shift),
        draws(spec.key, first) {}

  /// The magnitude rounded; infinities stay, and so do NaNs but for their payload.
  I rounded(I x) {
    const F power = V::as_float(V::min32(V::max32(V::and_(x, exponent_bits), low), high));
    // Rounding down is rounding up the negative value.
    const F value =
        V::as_float(kWay == RoundWay::directed ? V::xor_(x, flip) : V::and_(x, magnitude));
    const F shifted = V::fma(power, magic, value);
    const F nearest = V::fnma(power, magic, shifted);
    I units = V::as_int(shifted);
    if constexpr (kWay == RoundWay::nearest_even) {
      return V::and_(V::as_int(nearest), kept);
    } else if constexpr (kWay == RoundWay::nearest_away) {
      const F half = V::multiply(power, half_step);
      units = V::count(units, V::equal_float(V::subtract(value, nearest), half));
    } else if constexpr (kWay == RoundWay::directed) {
      units = V::count(units, V::less_float(nearest, value));
    } else {
      units = V::count_down(units, V::less_float(value, nearest));
    }
    if constexpr (kWay == RoundWay::odd) {
      units = V::or_if(units, V::differ_float(nearest, value), one);
    }
    if constexpr (kStochastic) {
      const F cut = V::fnma(power, magic, V::as_float(units));
      // Infinity less infinity counts as no fraction.
      const F rest = V::or_zero(V::subtract(value, cut));
      const F unit_inverse = V::as_float(V::sub32(inverse, V::as_int(power)));
      const I fraction =
          V::to_unsigned(V::multiply(V::multiply(rest, unit_inverse), fraction_scale));
      const I random = V::left(draws.next(), V::set32(static_cast<uint32_t>(random_shift)));
      units = V::count(units, V::carries(fraction, random));
    }
    return V::and_(V::as_int(V::fnma(power, magic, V::as_float(units))), kept);
  }

  template <bool kCount>
  I apply(I x) {
    I r = rounded(x);
    if constexpr (kCount) beyond = V::count(beyond, V::not_up_to(r, max_finite));
    if constexpr (kWay == RoundWay::directed) {
      r = V::replace_if_above(r, max_finite, V::choose_by_sign(x, over_negative, over));
    } else {
      r = V::replace_if_above(r, max_finite, over);
    }
    const I given = V::and_(x, magnitude);
    if constexpr (!kNearest) r = V::choose(V::equal(given, exponent_bits), infinity, r);
    if constexpr (!kOptions) return V::or_masked(r, x, sign_bit);
    r = V::keep_if(V::less(flush_limit, r), r);
    I sign = V::and_(x, sign_bit);
    if (unsigned_zero) {
      const I below = V::add32(r, ones);  // negative for zero
      sign = V::keep_if(V::less(below, exponent_bits), V::and_not(sign, below));
    }
    r = V::or_(r, sign);
    return V::choose(V::less(exponent_bits, given), V::or_(V::and_(x, nan_kept), nan_set), r);
  }
};

template <class V, class Work>
void with_magic_way(const RoundSpec& spec, const Work& work) {
  const auto way = [&spec, &work]<RoundWay kWay>() {
    if (spec.options) return work(static_cast<const RoundMagicWay<V, kWay, true>*>(nullptr));
    return work(static_cast<const RoundMagicWay<V, kWay, false>*>(nullptr));
  };
  with_way(spec.way, way);
}

}  // namespace
}  // namespace halfscope::measure_detail
