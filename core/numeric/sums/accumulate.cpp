// SPDX-License-Identifier: MIT
// Chains are functors over a range of k; splitting and promotion are loops around them.
#include "core/numeric/sums/accumulate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/round_odd.h"
#include "core/numeric/sums/sum_diagnostics.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

using Kind = Accumulation::Kind;

/// Returns a + b rounded to odd in double: exact enough for any later rounding to at most 50 bits.
/// TwoSum (Knuth) gives the rest of the sum.
double add_to_odd(double a, double b) {
  const double s = a + b;
  const double t = s - a, rest = (a - (s - t)) + (b - t);
  if (rest == 0.0 || !std::isfinite(s) || (std::bit_cast<uint64_t>(s) & 1) != 0) return s;
  return std::nextafter(s, rest > 0.0 ? INFINITY : -INFINITY);
}

struct Terms {
  std::span<const float> a, b;  ///< b is empty for plain values

  int64_t size() const { return static_cast<int64_t>(a.size()); }
  float left(int64_t k) const { return a[static_cast<size_t>(k)]; }
  float right(int64_t k) const { return b.empty() ? 1.0f : b[static_cast<size_t>(k)]; }
  /// Exact: 24 + 24 bits.
  double product(int64_t k) const {
    return static_cast<double>(left(k)) * static_cast<double>(right(k));
  }
  Terms part(int64_t begin, int64_t end) const {
    const size_t first = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
    return {a.subspan(first, count), b.empty() ? b : b.subspan(first, count)};
  }
};

float pairwise_sum(const Terms& terms) {
  const int64_t n = terms.size();
  if (n == 0) return 0.0f;
  if (n == 1) return terms.left(0) * terms.right(0);
  const int64_t half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) / 2;
  return pairwise_sum(terms.part(0, half)) + pairwise_sum(terms.part(half, n));
}

using PartialSums = std::array<float, kPartialSums>;

float add_tree(PartialSums sums) {
  for (size_t width = sums.size() / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

float interleaved_sum(const Terms& terms) {
  PartialSums sums{};
  for (int64_t k = 0; k < terms.size(); ++k) {
    float& sum = sums[static_cast<size_t>(k % kPartialSums)];
    sum = std::fma(terms.left(k), terms.right(k), sum);
  }
  return add_tree(sums);
}

float kahan_sum(const Terms& terms) {
  float sum = 0.0f, lost = 0.0f;
  for (int64_t k = 0; k < terms.size(); ++k) {
    const float y = std::fma(terms.left(k), terms.right(k), -lost);
    const float t = sum + y;
    lost = (t - sum) - y;
    // Once it is infinite the compensation is NaN; the uncompensated sum would not be.
    if (!std::isfinite(t)) lost = 0.0f;
    sum = t;
  }
  return sum;
}

/// Returns one step of the sums in a reduced format; acc and the result are values of `format`. The
/// flags are those of the last rounding.
Rounded<double> format_step(Kind kind, const FloatFormat& format, float a, float b, double acc) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  if (kind == Kind::format) return round_to_format(add_to_odd(product, acc), format);
  if (kind == Kind::fma32_then_round) {
    const float near = std::fma(a, b, static_cast<float>(acc));
    const Rounded<float> result = round_to_format(near, format);
    return {static_cast<double>(result.value), result.flags};
  }
  const double rounded = round_to_format(product, format).value;
  return round_to_format(add_to_odd(rounded, acc), format);
}

/// Returns the same for roundings other than to nearest even, with the draws of term k.
double rounded_step(Kind kind, FloatFormat format, const TensorRounding& rounding, int64_t k,
                    float a, float b, double acc) {
  format.flush_in = false;  // as above: operands were already flushed when they were written
  const float sum = static_cast<float>(acc);
  if (kind == Kind::format) return fma(a, b, sum, format, rounding.element(k)).value;
  const float product = mul(a, b, format, rounding.element(2 * k)).value;
  return add(product, sum, format, rounding.element(2 * k + 1)).value;
}

/// Sums one chain from +0, over the terms from number `first` on.
double chain(const SumSpec& spec, const TensorRounding& rounding, const Terms& terms,
             int64_t first) {
  const Accumulation& how = spec.accumulation;
  switch (how.kind) {
    case Kind::tensor_core:  // plain values, and operands in fp32
    case Kind::fp32: {
      float sum = 0.0f;
      for (int64_t k = 0; k < terms.size(); ++k) {
        sum = std::fma(terms.left(k), terms.right(k), sum);
      }
      return static_cast<double>(sum);
    }
    case Kind::fp64: {
      double sum = 0.0;
      for (int64_t k = 0; k < terms.size(); ++k) sum += terms.product(k);
      return sum;
    }
    case Kind::pairwise:
      return static_cast<double>(pairwise_sum(terms));
    case Kind::interleaved16:
      return static_cast<double>(interleaved_sum(terms));
    case Kind::kahan:
      return static_cast<double>(kahan_sum(terms));
    case Kind::format:
    case Kind::format_mul_add:
    case Kind::fma32_then_round:
      break;
  }
  double sum = 0.0;
  for (int64_t k = 0; k < terms.size(); ++k) {
    const float a = terms.left(k), b = terms.right(k);
    sum = how.rounds_otherwise()
              ? rounded_step(how.kind, spec.write, rounding, first + k, a, b, sum)
              : format_step(how.kind, spec.write, a, b, sum).value;
  }
  return sum;
}

/// Sums chains of at most `length` terms, added in fp32.
template <class F>
double in_parts(int64_t n, int64_t length, const F& sum_of) {
  float total = 0.0f;
  for (int64_t begin = 0; begin < n; begin += length) {
    total += static_cast<float>(sum_of(begin, std::min(begin + length, n)));
  }
  return static_cast<double>(total);
}

/// Returns the sum of n terms, with chain(begin, end) summing a part.
template <class F>
double sum_of_chains(const Accumulation& how, int64_t n, const F& chain) {
  const auto promoted = [&](int64_t begin, int64_t end) {
    if (how.promote == 0) return chain(begin, end);
    return in_parts(end - begin, how.promote, [&](int64_t first, int64_t last) {
      return chain(begin + first, begin + last);
    });
  };
  if (how.split_k == 1) return promoted(0, n);
  return in_parts(n, std::max<int64_t>(1, (n + how.split_k - 1) / how.split_k), promoted);
}

double sum_of_terms(const SumSpec& spec, const Terms& terms, int64_t element) {
  const int64_t n = terms.size();
  const TensorRounding rounding = SumDraws::of(spec, n, element);
  return sum_of_chains(spec.accumulation, n, [&](int64_t begin, int64_t end) {
    return chain(spec, rounding, terms.part(begin, end), begin);
  });
}

/// Sums every step-th term from +0, beginning with number `begin`, and records what happens; the
/// terms are counted from `first`.
double watched_chain(const SumSpec& spec, const Terms& terms, int64_t first, int64_t begin,
                     int64_t step, SumDiagnostics& seen) {
  const Kind kind = spec.accumulation.kind;
  double sum = 0.0;
  for (int64_t k = begin; k < terms.size() && std::isfinite(sum); k += step) {
    const float a = terms.left(k), b = terms.right(k);
    const double before = sum;
    bool overflow = false;
    if (kind == Kind::fp64) {
      sum += terms.product(k);
    } else if (spec.accumulation.sums_in_format()) {
      const Rounded<double> step = format_step(kind, spec.write, a, b, before);
      sum = step.value;
      overflow = (step.flags & kOverflow) != 0;
    } else {
      sum = static_cast<double>(std::fma(a, b, static_cast<float>(before)));
    }
    const bool finite = std::isfinite(sum);
    if (a != 0.0f && b != 0.0f) {
      ++seen.products;
      seen.swamped += sum == before ? 1 : 0;
    }
    if (finite) seen.largest = std::max(seen.largest, std::fabs(sum));
    if ((overflow || !finite) && std::isfinite(a) && std::isfinite(b)) {
      seen.overflowed = 1;
      const int64_t at = first + k;
      seen.first_overflow = seen.first_overflow < 0 ? at : std::min(seen.first_overflow, at);
    }
  }
  return sum;
}

/// Sums a part of a sum and records what happens; the terms are counted from `first`.
double watched_part(const SumSpec& spec, const Terms& terms, int64_t first, SumDiagnostics& seen) {
  if (spec.accumulation.kind != Kind::interleaved16) {
    return watched_chain(spec, terms, first, 0, 1, seen);
  }
  PartialSums sums;
  for (int64_t j = 0; j < kPartialSums; ++j) {
    const double sum = watched_chain(spec, terms, first, j, kPartialSums, seen);
    sums[static_cast<size_t>(j)] = static_cast<float>(sum);
  }
  return static_cast<double>(add_tree(sums));
}

float quiet(float x) { return std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x; }

TensorCorePlan plan_of(const Accumulation& how) {
  return {.slices = how.split_k, .promote_every = how.promote};
}

}  // namespace

std::optional<TensorCoreProfile> tensor_core_of(const SumSpec& spec) noexcept {
  const Accumulation& how = spec.accumulation;
  if (how.kind != Kind::tensor_core || spec.read == kFp32 || spec.b_format() == kFp32) {
    return std::nullopt;
  }
  return tensor_core_profile(how.arch, spec.read, spec.b_format(),
                             how.half_accumulator ? kFp16 : kFp32);
}

bool has_diagnostics(const Accumulation& accumulation) noexcept {
  return accumulation.kind != Kind::pairwise && accumulation.kind != Kind::kahan &&
         !accumulation.rounds_otherwise();
}

std::optional<SumDiagnostics> diagnose_sum(const SumSpec& spec, std::span<const float> a,
                                           std::span<const float> b) {
  if (!has_diagnostics(spec.accumulation)) return std::nullopt;
  SumDiagnostics seen{.sums = 1};
  if (const std::optional<TensorCoreProfile> profile = tensor_core_of(spec)) {
    tensor_core_dot(*profile, a, b, 0.0f, plan_of(spec.accumulation), {}, {}, &seen);
    return seen;
  }
  const Terms terms{a, b};
  sum_of_chains(spec.accumulation, terms.size(), [&](int64_t begin, int64_t end) {
    return watched_part(spec, terms.part(begin, end), begin, seen);
  });
  return seen;
}

float sum_of_products(const SumSpec& spec, std::span<const float> a, std::span<const float> b,
                      const float* bias, int64_t element) {
  const Accumulation& how = spec.accumulation;
  if (const std::optional<TensorCoreProfile> profile = tensor_core_of(spec)) {
    const float sum = tensor_core_dot(*profile, a, b, 0.0f, plan_of(how));
    return quiet(bias != nullptr ? sum + *bias : sum);
  }
  const double sum = sum_of_terms(spec, {a, b}, element);
  const bool wide = how.kind == Kind::fp64 && how.is_single_chain();
  const bool narrow = how.sums_in_format() && how.is_single_chain();
  if (bias == nullptr) {
    return quiet(wide ? deliver(sum, spec.write) : static_cast<float>(sum));
  }
  if (wide) return quiet(deliver(sum + static_cast<double>(*bias), spec.write));
  if (narrow && how.rounds_otherwise()) {
    const int64_t terms = static_cast<int64_t>(a.size());
    return quiet(static_cast<float>(rounded_step(
        how.kind, spec.write, SumDraws::of(spec, terms, element), terms, *bias, 1.0f, sum)));
  }
  if (narrow) {
    return quiet(static_cast<float>(format_step(how.kind, spec.write, *bias, 1.0f, sum).value));
  }
  return quiet(static_cast<float>(sum) + *bias);
}

double sum_of_values(const SumSpec& spec, std::span<const float> x, int64_t element) {
  return sum_of_terms(spec, {x, {}}, element);
}

bool adds_one_by_one(const Accumulation& how) noexcept {
  return how.is_single_chain() && !how.rounds_otherwise() &&
         (how.kind == Kind::fp32 || how.kind == Kind::fp64 || how.sums_in_format());
}

double add_value(const SumSpec& spec, double sum, float value) {
  const Kind kind = spec.accumulation.kind;
  if (kind == Kind::fp64) return sum + static_cast<double>(value);
  if (kind == Kind::fp32) return static_cast<double>(static_cast<float>(sum) + value);
  return format_step(kind, spec.write, value, 1.0f, sum).value;
}

}  // namespace halfscope
