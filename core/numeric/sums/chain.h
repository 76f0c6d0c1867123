// SPDX-License-Identifier: MIT
// Every accumulation except the tensor cores' (tensor_core_chain.h) as functions of terms, for the
// device: the chains, and promotion and split k as loops around them. Written independently of the
// reference in accumulate.cpp, with the same bits (tests/gpu). `Terms` has
//   float left(int64_t k), float right(int64_t k)     the factors; right is 1 for plain values
//   bool present(int64_t k)                           false for a term that is not summed
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/host_device.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/round_odd.h"
#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/sums/accumulate.h"

namespace halfscope {

/// The part of a SumSpec for sums that no tensor core computes, without memory of its own.
struct ChainSpec {
  Accumulation::Kind kind = Accumulation::Kind::fp32;
  FloatFormat write = kFp32;
  int64_t promote = 0;
  int64_t split_k = 1;
  RoundingChoice rounding{};
  uint64_t key = 0;  ///< stochastic sums of this run: sum_key()

  HS_HD constexpr bool is_single_chain() const noexcept { return promote == 0 && split_k == 1; }
  /// Returns whether this is one ascending fp32 chain; operands that tensor cores cannot read are
  /// summed like that, too.
  HS_HD constexpr bool is_fp32_chain() const noexcept {
    return is_single_chain() &&
           (kind == Accumulation::Kind::fp32 || kind == Accumulation::Kind::tensor_core);
  }
  HS_HD constexpr bool is_interleaved() const noexcept {
    return kind == Accumulation::Kind::interleaved16 && is_single_chain();
  }
  HS_HD constexpr bool is_wide() const noexcept {
    return kind == Accumulation::Kind::fp64 && is_single_chain();
  }
  HS_HD constexpr bool sums_in_format() const noexcept {
    return kind == Accumulation::Kind::format || kind == Accumulation::Kind::format_mul_add ||
           kind == Accumulation::Kind::fma32_then_round;
  }
  HS_HD constexpr bool rounds_otherwise() const noexcept {
    return rounding.mode != RoundingMode::nearest_even;
  }
  /// Returns the rounding of the sums of one element; its element(d) has draw d (SumDraws).
  HS_HD constexpr TensorRounding rounding_of(int64_t terms, int64_t element) const noexcept {
    const int64_t first = element * SumDraws::per_element(kind, terms);
    return {rounding.mode, key, rounding.random_bits, static_cast<uint64_t>(first)};
  }
  /// Returns the spec of further sums in the same node (second_sums() in core/lower/execution.h).
  HS_HD constexpr ChainSpec second() const noexcept {
    ChainSpec other = *this;
    other.key = splitmix64(key);
    return other;
  }
};

inline ChainSpec chain_spec(const SumSpec& spec) noexcept {
  return {.kind = spec.accumulation.kind,
          .write = spec.write,
          .promote = spec.accumulation.promote,
          .split_k = spec.accumulation.split_k,
          .rounding = spec.accumulation.rounding,
          .key = spec.key};
}

namespace detail {

HS_HD inline bool is_finite(double x) noexcept {
  return (std::bit_cast<uint64_t>(x) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}
HS_HD inline bool is_finite(float x) noexcept {
  return (std::bit_cast<uint32_t>(x) & kInfinityBits) != kInfinityBits;
}

/// Returns a + b rounded to odd in double: exact enough for any later rounding to at most 50 bits.
/// TwoSum (Knuth) gives the rest of the sum.
HS_HD inline double add_to_odd(double a, double b) noexcept {
  const double s = a + b;
  const double t = s - a, rest = (a - (s - t)) + (b - t);
  if (rest == 0.0 || !is_finite(s) || (std::bit_cast<uint64_t>(s) & 1) != 0) return s;
  // The neighbour on the side of the rest. s is not zero, or there would be no rest.
  const uint64_t bits = std::bit_cast<uint64_t>(s);
  return std::bit_cast<double>((rest > 0.0) == (s > 0.0) ? bits + 1 : bits - 1);
}

/// Exact: 24 + 24 bits.
template <class Terms>
HS_HD double exact_product(const Terms& terms, int64_t k) noexcept {
  return static_cast<double>(terms.left(k)) * static_cast<double>(terms.right(k));
}

/// Adds as a balanced tree whose left part is the largest power of two below n: like the digits of
/// a binary counter, sums of equal length meet.
template <class Terms>
HS_HD float pairwise_sum(const Terms& terms, int64_t begin, int64_t end) noexcept {
  if (begin == end) return 0.0f;
  float waiting[64];
  int count = 0;
  for (int64_t k = begin; k < end; ++k) {
    float sum = terms.left(k) * terms.right(k);
    for (int64_t position = k - begin; (position & 1) != 0; position >>= 1) {
      sum = waiting[--count] + sum;
    }
    waiting[count++] = sum;
  }
  float total = waiting[--count];
  while (count > 0) total = waiting[--count] + total;
  return total;
}

/// Adds term k to partial sum k % kPartialSums, counted from `begin`, and these as a balanced tree.
template <class Terms>
HS_HD float interleaved_sum(const Terms& terms, int64_t begin, int64_t end) noexcept {
  float sums[kPartialSums] = {};
  for (int64_t first = begin; first < end; first += kPartialSums) {
    for (int j = 0; j < kPartialSums; ++j) {
      const int64_t k = first + j;
      if (k < end) sums[j] = std::fma(terms.left(k), terms.right(k), sums[j]);
    }
  }
  for (int width = kPartialSums / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

template <class Terms>
HS_HD float kahan_sum(const Terms& terms, int64_t begin, int64_t end) noexcept {
  float sum = 0.0f, lost = 0.0f;
  for (int64_t k = begin; k < end; ++k) {
    const float y = std::fma(terms.left(k), terms.right(k), -lost);
    const float t = sum + y;
    lost = (t - sum) - y;
    // Once it is infinite the compensation is NaN; the uncompensated sum would not be.
    if (!is_finite(t)) lost = 0.0f;
    sum = t;
  }
  return sum;
}

/// Returns one step of the sums in a reduced format; acc and the result are values of `format`.
HS_HD HS_SELDOM inline double format_step(Accumulation::Kind kind, const FloatFormat& format,
                                          float a, float b, double acc) noexcept {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  if (kind == Accumulation::Kind::format) {
    return round_to_format(add_to_odd(product, acc), format).value;
  }
  if (kind == Accumulation::Kind::fma32_then_round) {
    const float near = std::fma(a, b, static_cast<float>(acc));
    return static_cast<double>(round_to_format(near, format).value);
  }
  const double rounded = round_to_format(product, format).value;
  return round_to_format(add_to_odd(rounded, acc), format).value;
}

/// Returns the same for roundings other than to nearest even, with the draws of term k.
HS_HD HS_SELDOM inline double rounded_step(Accumulation::Kind kind, FloatFormat format,
                                           const TensorRounding& rounding, int64_t k, float a,
                                           float b, double acc) noexcept {
  format.flush_in = false;  // operands were already flushed when they were written
  const float sum = static_cast<float>(acc);
  if (kind == Accumulation::Kind::format) {
    return static_cast<double>(fma(a, b, sum, format, rounding.element(k)).value);
  }
  const float product = mul(a, b, format, rounding.element(2 * k)).value;
  return static_cast<double>(add(product, sum, format, rounding.element(2 * k + 1)).value);
}

template <class Terms>
HS_HD float fp32_chain(const Terms& terms, int64_t begin, int64_t end) noexcept {
  float sum = 0.0f;
  for (int64_t k = begin; k < end; ++k) {
    if (terms.present(k)) sum = std::fma(terms.left(k), terms.right(k), sum);
  }
  return sum;
}

/// Sums one chain from +0 over [begin, end).
template <class Terms>
HS_HD double chain(const ChainSpec& how, const TensorRounding& rounding, const Terms& terms,
                   int64_t begin, int64_t end) noexcept {
  switch (how.kind) {
    case Accumulation::Kind::tensor_core:  // plain values, and operands in fp32
    case Accumulation::Kind::fp32:
      return static_cast<double>(fp32_chain(terms, begin, end));
    case Accumulation::Kind::fp64: {
      double sum = 0.0;
      for (int64_t k = begin; k < end; ++k) {
        if (terms.present(k)) sum += exact_product(terms, k);
      }
      return sum;
    }
    case Accumulation::Kind::pairwise:
      return static_cast<double>(pairwise_sum(terms, begin, end));
    case Accumulation::Kind::interleaved16:
      return static_cast<double>(interleaved_sum(terms, begin, end));
    case Accumulation::Kind::kahan:
      return static_cast<double>(kahan_sum(terms, begin, end));
    case Accumulation::Kind::format:
    case Accumulation::Kind::format_mul_add:
    case Accumulation::Kind::fma32_then_round:
      break;
  }
  double sum = 0.0;
  for (int64_t k = begin; k < end; ++k) {
    if (!terms.present(k)) continue;
    const float a = terms.left(k), b = terms.right(k);
    sum = how.rounds_otherwise() ? rounded_step(how.kind, how.write, rounding, k, a, b, sum)
                                 : format_step(how.kind, how.write, a, b, sum);
  }
  return sum;
}

/// Sums chains of at most `promote` terms, added in fp32.
template <class Terms>
HS_HD double promoted_sum(const ChainSpec& how, const TensorRounding& rounding, const Terms& terms,
                          int64_t begin, int64_t end) noexcept {
  if (how.promote == 0) return chain(how, rounding, terms, begin, end);
  float total = 0.0f;
  for (int64_t first = begin; first < end; first += how.promote) {
    const int64_t last = first + how.promote < end ? first + how.promote : end;
    total += static_cast<float>(chain(how, rounding, terms, first, last));
  }
  return static_cast<double>(total);
}

/// Computes any sum except the single fp32 chain. Parameters are passed by value, so that callers'
/// variables stay in registers.
template <class Terms>
HS_HD HS_SELDOM double named_sum(ChainSpec how, Terms terms, int64_t n, int64_t element) noexcept {
  const TensorRounding rounding = how.rounding_of(n, element);
  if (how.split_k == 1) return promoted_sum(how, rounding, terms, 0, n);
  const int64_t ceiling = (n + how.split_k - 1) / how.split_k;
  const int64_t length = ceiling > 1 ? ceiling : 1;
  float total = 0.0f;
  for (int64_t begin = 0; begin < n; begin += length) {
    const int64_t end = begin + length < n ? begin + length : n;
    total += static_cast<float>(promoted_sum(how, rounding, terms, begin, end));
  }
  return static_cast<double>(total);
}

}  // namespace detail

/// Returns the sum of n terms, for one element of a tensor of sums. Not delivered yet: the double
/// of fp64 is returned unrounded.
template <class Terms>
HS_HD double sum_of_terms(const ChainSpec& how, const Terms& terms, int64_t n,
                          int64_t element) noexcept {
  if (how.is_fp32_chain()) return static_cast<double>(detail::fp32_chain(terms, 0, n));
  return detail::named_sum(how, terms, n, element);
}

/// Replaces any NaN by the quiet NaN of the sums.
HS_HD inline float quiet_nan_of(float x) noexcept {
  return x == x ? x : std::bit_cast<float>(0x7fc00000u);
}

/// Delivers that sum to a caller who rounds it to how.write. The bias, if not null, is added in
/// fp32; under fp64 in double; under sums in the write format as one more rounded addition.
HS_HD inline float deliver_sum(const ChainSpec& how, double sum, const float* bias, int64_t n,
                               int64_t element) noexcept {
  if (bias == nullptr) {
    return quiet_nan_of(how.is_wide() ? deliver(sum, how.write) : static_cast<float>(sum));
  }
  if (how.is_wide()) {
    return quiet_nan_of(deliver(sum + static_cast<double>(*bias), how.write));
  }
  if (how.sums_in_format() && how.is_single_chain()) {
    const double with_bias =
        how.rounds_otherwise()
            ? detail::rounded_step(how.kind, how.write, how.rounding_of(n, element), n, *bias, 1.0f,
                                   sum)
            : detail::format_step(how.kind, how.write, *bias, 1.0f, sum);
    return quiet_nan_of(static_cast<float>(with_bias));
  }
  return quiet_nan_of(static_cast<float>(sum) + *bias);
}

}  // namespace halfscope
