// SPDX-License-Identifier: MIT
// Rounds fp32 bits to any valid format in any mode, written once for vectors V and for plain
// integers (a vector of one). Like kernel_body.h it has internal linkage and does not use the
// standard library.
//
// A magnitude a loses its lowest d bits: add a number below bit d that depends on the mode, then
// cut. In the binade of the smallest value d is 23, and the carry goes into the exponent. Below it
// the result is zero or the smallest value; one comparison decides. No branches: the speed is the
// same for all data.
#pragma once

#include <cstdint>

#include "core/numeric/formats/rng.h"
#include "emulation/measure/kernels.h"

namespace halfscope::measure_detail {
namespace {

/// Inverted draws of consecutive elements, from any start (core/numeric/formats/rng.h). An element
/// with the dropped fraction f * 2^32 is rounded away from zero if that is above its limit.
template <class V>
struct DrawLimits {
  using I = typename V::I;
  I state, mask;
  bool odd;
  DrawLimits(const RoundSpec& spec, uint64_t first)
      : state(V::draw_states(spec.draw_start + (first / 2 + 1) * kDrawStep)),
        mask(V::set32(spec.random_mask)),
        odd(first % 2 != 0) {}
  /// Returns the next limits. Elements 2 k and 2 k + 1 are the halves of word k, as in memory.
  I next() {
    const I now = state;
    state = V::add64(now, V::set64(V::kBytes / 8 * kDrawStep));
    const I result = V::draw_limits(now, mask);
    if (!odd) return result;
    const I after = V::draw_limits(V::add64(now, V::set64(kDrawStep)), mask);
    return V::or_(V::template right64<32>(result), V::template left64<32>(after));
  }
};

template <class V, RoundWay kWay, RoundRange kRange>
struct RoundGeneral {
  using I = typename V::I;
  using M = typename V::M;
  static constexpr bool kCountsLanes = true;
  static constexpr bool kCountsBeyond = true;
  static constexpr bool kFixed = kRange == RoundRange::fixed || kRange == RoundRange::flushed;
  static constexpr bool kAny = kRange == RoundRange::any;
  static constexpr bool kStochastic = kWay == RoundWay::stochastic;
  static constexpr bool kNearest =
      kWay == RoundWay::nearest_even || kWay == RoundWay::nearest_away || kStochastic;

  I magnitude = V::set32(0x7fffffffu), sign_bit = V::set32(0x80000000u);
  I infinity_bits = V::set32(0x7f800000u), implicit_bit = V::set32(0x00800000u);
  I fraction_bits = V::set32(0x007fffffu), ones = V::set32(~0u), one = V::set32(1);
  I largest_bits = V::set32(0x7f7fffffu);
  I drop_sum, drop_min, drop_max, drop_bias, keep, bias;
  I unit, unit_below, threshold, flush_limit, normal_above;
  I max_finite, over, over_negative, infinity, nan_kept, nan_set, away_flip;
  bool deep, unsigned_zero;
  DrawLimits<V> limits;
  I non_zero = V::zero(), normal = V::zero(), beyond = V::zero();

  RoundGeneral(const RoundSpec& spec, uint64_t first)
      : drop_sum(V::set32(static_cast<uint32_t>(spec.drop_sum))),
        drop_min(V::set32(static_cast<uint32_t>(spec.drop_min))),
        drop_max(V::set32(static_cast<uint32_t>(spec.drop_max))),
        drop_bias(V::set32(static_cast<uint32_t>(spec.drop_bias))),
        keep(V::set32(spec.kept | 0x80000000u)),
        bias(V::set32(kWay == RoundWay::nearest_even   ? spec.last_bit / 2 - 1
                      : kWay == RoundWay::nearest_away ? spec.last_bit / 2
                                                       : spec.last_bit - 1)),
        unit(V::set32(spec.unit)),
        unit_below(V::set32(spec.unit - 1)),
        threshold(V::set32(kWay == RoundWay::nearest_even   ? spec.half_unit
                           : kWay == RoundWay::nearest_away ? away_threshold(spec.half_unit)
                           : kWay == RoundWay::odd          ? 0
                                                            : spec.unit - 1)),
        flush_limit(V::set32(spec.flush_limit)),
        normal_above(V::set32(spec.exponent_low - 1)),
        max_finite(V::set_bits(spec.max_finite)),
        over(V::set32(spec.over[0])),
        over_negative(V::set32(spec.over[1])),
        infinity(V::set32(spec.infinity)),
        nan_kept(V::set32(spec.nan_kept)),
        nan_set(V::set32(spec.nan_set)),
        away_flip(V::set32(spec.away_flip)),
        deep(spec.deep),
        unsigned_zero(spec.unsigned_zero),
        limits(spec, first) {}

  static uint32_t away_threshold(uint32_t half) { return half == 0 ? 0 : half - 1; }

  /// Returns how many bits to drop. More than 23 (below the smallest value) only without kLimit.
  template <bool kLimit>
  I drop(I a) const {
    I d;
    if (kAny && deep) {
      d = V::sub32(V::exponent_field(V::from_integer(a)), drop_bias);
      return V::min_signed(V::max_signed(d, drop_min), drop_max);
    }
    d = V::max_signed(V::sub32(drop_sum, V::exponent_field(a)), drop_min);
    return kLimit ? V::min_signed(d, drop_max) : d;
  }

  /// Returns the dropped fraction in units of 2^-32, truncated.
  I fraction(I a) const {
    I d;
    if constexpr (kFixed) {
      return V::left(a, V::sub32(V::set32(32), drop_max));
    } else if (kAny && deep) {
      return V::left(V::template left32<9>(a), V::sub32(V::set32(23), drop<true>(a)));
    } else {
      // An fp32 subnormal has the exponent of the smallest normal number and no implicit bit.
      d = drop<false>(V::max_signed(a, implicit_bit));
      const I bit = V::min_signed(V::and_(a, infinity_bits), implicit_bit);
      const I full = V::template left32<8>(V::or_(V::and_(a, fraction_bits), bit));
      return V::or_(V::left(V::template left32<9>(a), V::sub32(V::set32(23), d)),
                    V::right(full, V::sub32(d, V::set32(24))));
    }
  }

  template <bool kCount>
  I apply(I x) {
    const I given = V::and_(x, magnitude);
    // Treats NaN as infinity for now; without counting, it may stay even larger.
    const I a = kCount ? V::min_signed(given, infinity_bits) : given;
    I cut = keep, d = drop_max;
    if constexpr (!kFixed) {
      d = drop<true>(a);
      cut = V::left(ones, d);
    }
    [[maybe_unused]] I away = a;
    [[maybe_unused]] M up = V::less(a, a);
    I r;
    if constexpr (kWay == RoundWay::truncate) {
      r = V::and_(a, cut);
    } else if constexpr (kWay == RoundWay::directed) {
      away = V::sign_mask(V::xor_(x, away_flip));
      r = V::and_(V::add32(a, V::and_not(away, cut)), cut);
    } else if constexpr (kWay == RoundWay::odd) {
      const I sum = V::add32(V::and_not(a, cut), V::xor_(cut, ones));
      r = V::or_(V::and_(a, cut), V::and_(V::and_(sum, cut), fraction_bits));
    } else if constexpr (kStochastic) {
      up = V::above(fraction(a), limits.next());
      r = V::subtract_if(V::and_(a, cut), up, cut);  // - cut is the last bit kept
    } else if constexpr (kWay == RoundWay::nearest_away) {
      if constexpr (kFixed) {
        r = V::and_(V::add32(a, bias), cut);
      } else {
        const I mask = V::xor_(cut, ones);
        r = V::and_(V::add32(a, V::sub32(mask, V::template right32<1>(mask))), cut);
      }
    } else {
      const I mask = V::xor_(cut, ones);
      // Half a step less 1, plus 1 if the kept significand is odd. At d = 23 only the implicit bit
      // is kept. Nothing at d = 0.
      const I kept = V::right(kFixed ? a : V::or_(a, implicit_bit), d);
      const I parity = V::and_(V::and_(kept, mask), one);
      const I half = kFixed ? bias : V::template right32<1>(mask);
      r = V::and_(V::add32(V::add32(a, half), parity), cut);
    }

    const M beyond_max = V::less(max_finite, r);
    if constexpr (!kFixed) {
      r = V::max_signed(r, unit);
      M there;
      if constexpr (kStochastic) {
        there = V::either(up, V::less(unit_below, a));
      } else if constexpr (kWay == RoundWay::directed) {
        there = V::less(V::and_not(unit_below, away), a);
      } else {
        there = V::less(threshold, a);
      }
      r = V::keep_if(V::both(there, V::less(flush_limit, r)), r);
    } else if constexpr (kRange == RoundRange::flushed) {
      r = V::keep_if(V::less(flush_limit, r), r);
    }
    if constexpr (kCount) {
      non_zero = V::count(non_zero, V::less(V::zero(), r));
      normal = V::count(normal, V::less(normal_above, r));
      beyond = V::count(beyond, beyond_max);
    }
    if constexpr (kWay == RoundWay::directed) {
      r = V::choose(beyond_max, V::choose_by_sign(x, over_negative, over), r);
    } else {
      r = V::choose(beyond_max, over, r);
    }
    if constexpr (!kNearest) r = V::choose(V::less(largest_bits, a), infinity, r);
    if (kAny && unsigned_zero) {
      I sign = V::and_(x, sign_bit);
      const I below = V::add32(r, ones);  // negative for zero
      sign = V::keep_if(V::less(below, infinity_bits), V::and_not(sign, below));
      r = V::or_(r, sign);
    } else {
      r = V::or_masked(r, x, sign_bit);
    }
    return V::choose(V::less(infinity_bits, given), V::or_masked(nan_set, x, nan_kept), r);
  }
};

template <class Work>
void with_way(RoundWay way, const Work& work) {
  switch (way) {
    case RoundWay::nearest_even:
      return work.template operator()<RoundWay::nearest_even>();
    case RoundWay::nearest_away:
      return work.template operator()<RoundWay::nearest_away>();
    case RoundWay::truncate:
      return work.template operator()<RoundWay::truncate>();
    case RoundWay::directed:
      return work.template operator()<RoundWay::directed>();
    case RoundWay::odd:
      return work.template operator()<RoundWay::odd>();
    case RoundWay::stochastic:
      return work.template operator()<RoundWay::stochastic>();
  }
}

/// Calls `work` with a null pointer to the RoundGeneral type for `spec`.
template <class V, class Work>
void with_general(const RoundSpec& spec, const Work& work) {
  const auto way = [&spec, &work]<RoundWay kWay>() {
    switch (spec.range) {
      case RoundRange::fixed:
        return work(static_cast<const RoundGeneral<V, kWay, RoundRange::fixed>*>(nullptr));
      case RoundRange::flushed:
        return work(static_cast<const RoundGeneral<V, kWay, RoundRange::flushed>*>(nullptr));
      case RoundRange::normal:
        return work(static_cast<const RoundGeneral<V, kWay, RoundRange::normal>*>(nullptr));
      case RoundRange::any:
        return work(static_cast<const RoundGeneral<V, kWay, RoundRange::any>*>(nullptr));
    }
  };
  with_way(spec.way, way);
}

}  // namespace
}  // namespace halfscope::measure_detail
