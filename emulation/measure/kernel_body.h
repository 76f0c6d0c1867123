// SPDX-License-Identifier: MIT
// The kernels of kernels.h for vectors V of bytes, written once for AVX2 and AVX-512. Everything
// here has internal linkage: the linker must not merge a function that two sources compile for
// different instruction sets. For the same reason the standard library is not used.
//
// A block is as many floats as a vector has bytes: four vectors of floats, one of exponent bytes.
// The assignment of bytes to floats does not matter, so packing needs no shuffles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulation/measure/general_round.h"
#include "emulation/measure/kernels.h"
#include "emulation/measure/magic_round.h"

namespace halfscope::measure_detail {
namespace {

// ---- rounding: one functor per kind, maps a vector of fp32 bits to another ----

template <class V>
struct RoundCopy {
  static constexpr bool kCountsLanes = false;
  static constexpr bool kCountsBeyond = false;
  using I = typename V::I;
  I quiet_bit = V::set32(0x00400000u);
  RoundCopy(const RoundSpec&, uint64_t) {}
  template <bool kCount>
  I apply(I x) const {
    return V::or_if_nan(x, x, quiet_bit);
  }
};

template <class V>
struct RoundHalf {
  static constexpr bool kCountsLanes = false;
  static constexpr bool kCountsBeyond = false;
  RoundHalf(const RoundSpec&, uint64_t) {}
  template <bool kCount>
  typename V::I apply(typename V::I x) const {
    return V::through_half(x);
  }
};

template <class V>
struct RoundCarry {
  static constexpr bool kCountsLanes = false;
  static constexpr bool kCountsBeyond = false;
  using I = typename V::I;
  I last_bit, below_half, kept, quiet_bit = V::set32(0x00400000u);
  RoundCarry(const RoundSpec& spec, uint64_t)
      : last_bit(V::set32(spec.last_bit)),
        below_half(V::set32(spec.last_bit / 2 - 1)),
        kept(V::set32(spec.kept)) {}
  template <bool kCount>
  I apply(I x) const {
    // Half a step less 1, plus 1 if the kept mantissa is odd: ties go to even.
    const I rounded = V::add_one_if(V::add32(x, below_half), x, last_bit);
    return V::and_(V::replace_if_nan(rounded, x, quiet_bit), kept);
  }
};

template <class V>
struct RoundMagic {
  static constexpr bool kCountsLanes = false;
  static constexpr bool kCountsBeyond = false;
  using I = typename V::I;
  using F = typename V::F;
  I exponent_bits = V::set32(0x7f800000u), sign = V::set32(0x80000000u);
  I low, high, kept, overflow;
  F magic, max_finite;
  RoundMagic(const RoundSpec& spec, uint64_t)
      : low(V::set32(spec.exponent_low)),
        high(V::set32(spec.exponent_high)),
        kept(V::set32(spec.kept & 0x7fffffffu)),
        overflow(V::set32(spec.overflow)),
        magic(V::set_float(spec.magic)),
        max_finite(V::set_float(spec.max_finite)) {}
  template <bool kCount>
  I apply(I x) const {
    const I power = V::min32(V::max32(V::and_(x, exponent_bits), low), high);
    const F shifted = V::fma(V::as_float(power), magic, V::as_float(x));
    const I rounded = V::as_int(V::fnma(V::as_float(power), magic, shifted));
    // Cuts the payload of NaNs; everything else already has zeros there.
    const I magnitude = V::and_(rounded, kept);
    return V::or_masked(V::replace_if_above(magnitude, max_finite, overflow), x, sign);
  }
};

/// Byte counters of the rounded values' classes, and their thresholds on the exponent byte.
template <class V>
struct ClassCounter {
  using I = typename V::I;
  I zero = V::zero(), normal = V::zero(), non_finite = V::zero();
  I smallest_normal, all_ones = V::set8(0xff);
  explicit ClassCounter(const RoundSpec& spec)
      : smallest_normal(V::set8(static_cast<uint8_t>(spec.exponent_low >> 23))) {}
  void add(I exponents) {
    zero = V::count_equal(zero, exponents, V::zero());
    normal = V::count_at_least(normal, exponents, smallest_normal);
    non_finite = V::count_equal(non_finite, exponents, all_ones);
  }
};

template <class V, class Round, bool kStore, bool kCount, bool kStream>
void round_loop(Round round, const float* in, float* out, int64_t n, const RoundSpec& spec,
                RoundCounts* counts) {
  using I = typename V::I;
  [[maybe_unused]] ClassCounter<V> classes(spec);
  const auto block = [&]<bool kBypass>(const float* from, float* to) {
    constexpr int kStep = V::kBytes / 4;
    I r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = round.template apply<kCount>(V::load(from + i * kStep));
      if constexpr (kStore && kBypass) V::stream(to + i * kStep, r[i]);
      if constexpr (kStore && !kBypass) V::store(to + i * kStep, r[i]);
    }
    if constexpr (kCount && !Round::kCountsLanes) {
      classes.add(V::exponent_bytes(r[0], r[1], r[2], r[3]));
    }
  };
  int64_t i = 0;
  for (; i + V::kBytes <= n; i += V::kBytes) {
    block.template operator()<kStream>(in + i, kStore ? out + i : nullptr);
  }
  int64_t padding = 0;
  if (i < n) {
    alignas(64) float tail[V::kBytes] = {};
    const size_t bytes = static_cast<size_t>(n - i) * sizeof(float);
    std::memcpy(tail, in + i, bytes);
    block.template operator()<false>(tail, tail);
    if constexpr (kStore) std::memcpy(out + i, tail, bytes);
    padding = V::kBytes - (n - i);
  }
  if constexpr (kCount && Round::kCountsLanes) {
    counts->zero += n - V::sum_lanes(round.non_zero);
    counts->below_normal += n - V::sum_lanes(round.normal);
  } else if constexpr (kCount) {
    counts->zero += V::sum_bytes(classes.zero) - padding;
    counts->below_normal += n - V::sum_bytes(classes.normal);
  }
  if constexpr (kCount && Round::kCountsBeyond) {
    counts->beyond += V::sum_lanes(round.beyond);
  } else if constexpr (kCount) {
    counts->beyond += V::sum_bytes(classes.non_finite);
  }
}

/// Makes one pass over an array. `make(first)` returns the rounding that starts at element `first`.
template <class V, bool kStore, bool kCount, class Make>
void round_pass(const Make& make, const float* in, float* out, int64_t n, const RoundSpec& spec,
                uint64_t first, bool stream, RoundCounts* counts) {
  using Round = decltype(make(first));
  if constexpr (kStore) {
    // Streaming stores need alignment, other stores benefit from it: a few elements go first.
    if (stream || (!kCount && n >= kChunk)) {
      constexpr int64_t kStep = V::kBytes / 4;
      const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) / 4) % kStep;
      const int64_t front = past == 0 ? 0 : kStep - past < n ? kStep - past : n;
      if (front > 0) {
        round_loop<V, Round, true, kCount, false>(make(first), in, out, front, spec, counts);
      }
      in += front;
      out += front;
      n -= front;
      first += static_cast<uint64_t>(front);
      if (stream)
        return round_loop<V, Round, true, kCount, true>(make(first), in, out, n, spec, counts);
    }
  }
  round_loop<V, Round, kStore, kCount, false>(make(first), in, out, n, spec, counts);
}

template <class V, bool kStore, bool kCount>
void round_any(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
               bool stream, RoundCounts* counts) {
  const auto pass = [&]<class Round>(const Round*) {
    const auto make = [&spec](uint64_t from) { return Round(spec, from); };
    round_pass<V, kStore, kCount>(make, in, out, n, spec, first, stream, counts);
  };
  switch (spec.kind) {
    case RoundKind::copy:
      if constexpr (!kCount) pass(static_cast<const RoundCopy<V>*>(nullptr));
      return;
    case RoundKind::half:
      return pass(static_cast<const RoundHalf<V>*>(nullptr));
    case RoundKind::carry:
      if constexpr (!kCount) return pass(static_cast<const RoundCarry<V>*>(nullptr));
      return pass(
          static_cast<const RoundGeneral<V, RoundWay::nearest_even, RoundRange::fixed>*>(nullptr));
    case RoundKind::magic:
      return pass(static_cast<const RoundMagic<V>*>(nullptr));
    case RoundKind::magic_way:
      return with_magic_way<V>(spec, pass);
    case RoundKind::general:
      return with_general<V>(spec, pass);
  }
}

template <class V>
void round(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
           bool stream) {
  round_any<V, true, false>(in, out, n, spec, first, stream, nullptr);
}

template <class V>
void round_count(const float* in, float* out, int64_t n, const RoundSpec& spec, uint64_t first,
                 bool stream, RoundCounts& counts) {
  counts = {.zero = 0, .below_normal = 0, .beyond = 0};
  if (out == nullptr) {
    round_any<V, false, true>(in, out, n, spec, first, false, &counts);
  } else {
    round_any<V, true, true>(in, out, n, spec, first, stream, &counts);
  }
}

// ---- histogram: one-hot bytes summed bit-sliced with carry-save adders ----
//
// Sixteen bins at a time: a byte shuffle turns `top - exponent` into one bit of two bytes (none
// outside the sixteen). Plane p of a byte position contains bit p of its counters for all eight
// bins, so one full adder counts for 8 * V::kBytes counters at once.

template <class V>
struct BitCounter {
  using I = typename V::I;
  static constexpr int kPlanes = 8;  // a position counts to kChunk / V::kBytes <= 128
  I plane[kPlanes];

  BitCounter() {
    for (I& each : plane) each = V::zero();
  }

  /// Adds v(0) .. v(7); returns the carry out of plane 2, which has weight 8.
  template <class Get>
  __attribute__((always_inline)) I add_eight(const Get& v) {
    const I a = V::full_add(plane[0], v(0), v(1));
    const I b = V::full_add(plane[0], v(2), v(3));
    const I c = V::full_add(plane[1], a, b);
    const I d = V::full_add(plane[0], v(4), v(5));
    const I e = V::full_add(plane[0], v(6), v(7));
    const I f = V::full_add(plane[1], d, e);
    return V::full_add(plane[2], c, f);
  }

  /// Adds the two carries of sixteen vectors.
  __attribute__((always_inline)) void add_carries(I a, I b) {
    I carry = V::full_add(plane[3], a, b);
#pragma GCC unroll 4
    for (int p = 4; p < kPlanes; ++p) {
      const I sum = V::xor_(plane[p], carry);
      carry = V::and_(plane[p], carry);
      plane[p] = sum;
    }
  }

  /// Adds to exponents[top - b] the number of times that bit b was set. Transposes 8 x 8 bits per
  /// byte, which makes plane[b] the byte counters of bit b, then sums the bytes.
  void deliver(int top, int64_t* exponents) {
    const I pairs = V::set8(0x55), quads = V::set8(0x33), nibbles = V::set8(0x0f);
    for (int p = 0; p < 8; p += 2) {
      const I a = plane[p], b = plane[p + 1];
      plane[p] = V::select(pairs, a, V::template left16<1>(b));
      plane[p + 1] = V::select(pairs, V::template right16<1>(a), b);
    }
    for (int i = 0; i < 4; ++i) {
      const int p = i < 2 ? i : i + 2;
      const I a = plane[p], b = plane[p + 2];
      plane[p] = V::select(quads, a, V::template left16<2>(b));
      plane[p + 2] = V::select(quads, V::template right16<2>(a), b);
    }
    for (int p = 0; p < 4; ++p) {
      const I a = plane[p], b = plane[p + 4];
      plane[p] = V::select(nibbles, a, V::template left16<4>(b));
      plane[p + 4] = V::select(nibbles, V::template right16<4>(a), b);
    }
    for (int b = 0; b < 8; b += 4) {  // four sums of at most kChunk, packed into 64 bits
      const uint64_t four =
          V::sum_bytes_of_four(plane[b], plane[b + 1], plane[b + 2], plane[b + 3]);
      for (int i = 0; i < 4; ++i) {
        const int exponent = top - b - i;
        // Exponent 0 contains zeros and padding, which are counted elsewhere.
        if (exponent > 0) exponents[exponent] += static_cast<int64_t>(four >> (16 * i) & 0xffff);
      }
    }
  }
};

/// `bytes` contains a multiple of sixteen vectors; the nonzero bytes are in bottom..top.
template <class V>
void histogram(const uint8_t* bytes, int64_t size, int bottom, int top, int64_t* exponents) {
  using I = typename V::I;
  const I upper_table = V::table(0x8040201008040201u, 0);
  const I lower_table = V::table(0, 0x8040201008040201u);
  const I to_bit7 = V::set8(0x70);
  for (; top >= bottom; top -= 16) {
    BitCounter<V> upper, lower;
    const I first = V::set8(static_cast<uint8_t>(top));
    for (int64_t i = 0; i < size; i += 16 * V::kBytes) {
      I carry_upper[2], carry_lower[2];
#pragma GCC unroll 2
      for (int eight = 0; eight < 2; ++eight) {
        I index[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          const I exponent = V::load(bytes + i + (8 * eight + j) * V::kBytes);
          // 0..15 inside; outside, the saturating add sets bit 7, for which a shuffle returns 0.
          index[j] = V::add8_saturating(V::sub8(first, exponent), to_bit7);
        }
        carry_upper[eight] =
            upper.add_eight([&](int j) { return V::shuffle(upper_table, index[j]); });
        carry_lower[eight] =
            lower.add_eight([&](int j) { return V::shuffle(lower_table, index[j]); });
      }
      upper.add_carries(carry_upper[0], carry_upper[1]);
      lower.add_carries(carry_lower[0], carry_lower[1]);
    }
    upper.deliver(top, exponents);
    lower.deliver(top - 8, exponents);
  }
}

// ---- survey: sums, extremes and exponents of the unrounded values ----

template <class V>
struct SurveyState {
  using I = typename V::I;
  using D = typename V::D;
  static constexpr int kParts = 16 / V::kDoubles;  // registers for the 16 partial sums
  D sum[kParts], sum_sq[kParts];
  I max = V::zero(), min_below = V::set8(0xff), exponent_zero = V::zero();
  I magnitude = V::set32(0x7fffffffu), minus_one = V::set8(0xff);

  SurveyState() {
    for (int i = 0; i < kParts; ++i) sum[i] = sum_sq[i] = V::zero_double();
  }

  __attribute__((always_inline)) void add_block(const float* from, uint8_t* bytes) {
    constexpr int kStep = V::kBytes / 4;
    I x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      x[i] = V::load(from + i * kStep);
      const I a = V::and_(x[i], magnitude);
      max = V::max32(max, a);
      min_below = V::min32(min_below, V::add32(a, minus_one));  // zero wraps to the largest
    }
#pragma GCC unroll 4
    for (int i = 0; i < V::kBytes; i += 16) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const D value = V::load_double(from + i + part * V::kDoubles);
        sum[part] = V::add_double(sum[part], value);
        // The square of a float is exact in double, so fusing changes nothing.
        sum_sq[part] = V::fma_double(value, value, sum_sq[part]);
      }
    }
    const I exponents = V::exponent_bytes(x[0], x[1], x[2], x[3]);
    exponent_zero = V::count_equal(exponent_zero, exponents, V::zero());
    V::store(bytes, exponents);
  }
};

/// Adds the 16 partial sums as a balanced tree (core/numeric/statistics/tensor_stats.h).
template <class V>
double add_partials(const typename V::D* parts) {
  alignas(64) double partial[16];
  for (int i = 0; i < 16 / V::kDoubles; ++i) V::store_double(partial + i * V::kDoubles, parts[i]);
  for (int half = 8; half >= 1; half /= 2) {
    for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
  }
  return partial[0];
}

/// Returns the smallest nonzero byte; at least one must exist.
template <class V>
int smallest_byte(const uint8_t* bytes, int64_t size) {
  using I = typename V::I;
  I below = V::set8(0xff);
  const I one = V::set8(1);
  for (int64_t i = 0; i < size; i += V::kBytes) {
    below = V::min8(below, V::sub8(V::load(bytes + i), one));
  }
  alignas(64) uint8_t lane[V::kBytes];
  V::store(lane, below);
  int result = 0xff;
  for (uint8_t each : lane) result = each < result ? each : result;
  return result + 1;
}

template <class V>
bool survey(const float* in, int64_t n, int64_t* exponents, Survey& result) {
  constexpr int64_t kBlock = V::kBytes;
  alignas(64) uint8_t bytes[kChunk];
  SurveyState<V> state;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) state.add_block(in + i, bytes + i);
  int64_t padding = 0;
  if (i < n) {
    alignas(64) float tail[kBlock] = {};
    std::memcpy(tail, in + i, static_cast<size_t>(n - i) * sizeof(float));
    state.add_block(tail, bytes + i);
    padding = kBlock - (n - i);
    i += kBlock;
  }
  result.max_bits = V::max_of_lanes(state.max);
  if (result.max_bits >= 0x7f800000u) return false;
  result.min_below = V::min_of_lanes(state.min_below);
  result.exponent_zero = V::sum_bytes(state.exponent_zero) - padding;
  result.sum = add_partials<V>(state.sum);
  result.sum_sq = add_partials<V>(state.sum_sq);
  const int top = static_cast<int>(result.max_bits >> 23);
  if (top > 0) {
    for (; i % (16 * kBlock) != 0; i += kBlock) V::store(bytes + i, V::zero());
    // min_below + 1 may be an fp32 subnormal; those are not in the histogram.
    const int smallest = static_cast<int>((result.min_below + 1) >> 23);
    histogram<V>(bytes, i, smallest > 0 ? smallest : smallest_byte<V>(bytes, i), top, exponents);
  }
  return true;
}

/// Counts fp32 subnormals by power of two: converts their bits to floats, whose exponents make a
/// histogram.
template <class V>
void subnormals(const float* in, int64_t n, int64_t* powers) {
  using I = typename V::I;
  constexpr int64_t kBlock = V::kBytes;
  alignas(64) uint8_t bytes[kChunk];
  const I magnitude = V::set32(0x7fffffffu), normal = V::set32(0x00800000u);
  const auto block = [&](const float* from, uint8_t* to) {
    I y[4];
    for (int j = 0; j < 4; ++j) {
      const I a = V::and_(V::load(from + j * (kBlock / 4)), magnitude);
      y[j] = V::from_integer(V::keep_if(V::less(a, normal), a));
    }
    V::store(to, V::exponent_bytes(y[0], y[1], y[2], y[3]));
  };
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) block(in + i, bytes + i);
  if (i < n) {
    alignas(64) float tail[kBlock] = {};
    std::memcpy(tail, in + i, static_cast<size_t>(n - i) * sizeof(float));
    block(tail, bytes + i);
    i += kBlock;
  }
  for (; i % (16 * kBlock) != 0; i += kBlock) V::store(bytes + i, V::zero());
  int64_t exponents[256] = {};  // sixteen bins at a time, including bins next to the needed ones
  histogram<V>(bytes, i, 127, 127 + 22, exponents);
  for (int p = 0; p <= 22; ++p) powers[p] += exponents[127 + p];
}

template <class V>
constexpr Kernels make_kernels() {
  return {.round = round<V>,
          .round_count = round_count<V>,
          .survey = survey<V>,
          .subnormals = subnormals<V>};
}

}  // namespace
}  // namespace halfscope::measure_detail
