// SPDX-License-Identifier: MIT
// The slow, obvious reference of every accumulation: one dot product, or one sum, term by term.
// Fast kernels must agree with it bit for bit; where there is no kernel, it is used itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

/// Assigns random bits to stochastic sums. Draw d of element e of a tensor of sums is
/// random_draw(key, e * D + d), where D is the number of draws of one element, made even. Under
/// `format` the rounding after term k uses draw k. Under `format_mul_add` the rounding of product k
/// uses draw 2 k and that of the following sum draw 2 k + 1. Terms are counted over the whole sum,
/// however promotion and split k divide it. The bias is the term after the last one, and it has a
/// draw even if there is no bias. The fp32 additions between parts of a sum use no draws.
struct SumDraws {
  static constexpr int64_t per_term(Accumulation::Kind kind) noexcept {
    return kind == Accumulation::Kind::format_mul_add ? 2 : 1;
  }
  /// Returns D for a sum with this many terms.
  static constexpr int64_t per_element(Accumulation::Kind kind, int64_t terms) noexcept {
    return ((terms + 1) * per_term(kind) + 1) / 2 * 2;
  }
  /// Returns the rounding of the sums of one element; its element(d) has draw d.
  static constexpr TensorRounding of(const SumSpec& spec, int64_t terms, int64_t element) noexcept {
    const RoundingChoice& how = spec.accumulation.rounding;
    const int64_t first = element * per_element(spec.accumulation.kind, terms);
    return {how.mode, spec.key, how.random_bits, static_cast<uint64_t>(first)};
  }
};

/// Returns the sum of a[k] * b[k], plus *bias if it is not null, as `spec` says; a and b have the
/// same length. The bias is added last: in fp32; under fp64 (without options) in double; under the
/// sums in the write format as one more rounded addition. The caller rounds the result to
/// spec.write: under fp64 it is the double rounded to odd, so that this second rounding is harmless
/// (round_odd.h). A NaN is 0x7fc00000. `element` is the index of the sum among those with the key
/// of `spec`.
float sum_of_products(const SumSpec& spec, std::span<const float> a, std::span<const float> b,
                      const float* bias = nullptr, int64_t element = 0);

/// Returns the sum of plain values, as if each were multiplied by one. Tensor cores do not compute
/// plain sums, so these are fp32 chains there. Not delivered yet: the double of fp64 is returned
/// unrounded.
double sum_of_values(const SumSpec& spec, std::span<const float> x, int64_t element = 0);

/// Returns whether add_value() supports the accumulation: each sum follows from the one before.
bool adds_one_by_one(const Accumulation& accumulation) noexcept;

/// Adds one more value to a result of sum_of_values(), or to +0 for none.
double add_value(const SumSpec& spec, double sum, float value);

/// Returns the tensor core that computes these products; nothing if they are summed in fp32 or
/// otherwise.
std::optional<TensorCoreProfile> tensor_core_of(const SumSpec& spec) noexcept;

}  // namespace halfscope
