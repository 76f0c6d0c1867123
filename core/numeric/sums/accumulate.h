// SPDX-License-Identifier: MIT
// The slow, obvious reference of every accumulation: one dot product, or one sum, term by term.
// Fast kernels must agree with it bit for bit, and kernels that do not exist fall back to it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/numeric/formats/tensor_rounding.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

/// Which random bits a stochastic sum takes. Draw d of element e of a tensor of sums is
/// random_draw(key, e * D + d), D being the draws of one element, made even: under `format` the
/// rounding after term k takes draw k; under `format_mul_add` that of product k takes draw 2 k and
/// that of the sum after it draw 2 k + 1. Terms are counted over the whole sum, however promotion
/// and split k cut it, and the bias is the term after the last one, for which there is a draw
/// whether there is a bias or not. The fp32 additions between parts of a sum draw nothing.
struct SumDraws {
  static constexpr int64_t per_term(Accumulation::Kind kind) noexcept {
    return kind == Accumulation::Kind::format_mul_add ? 2 : 1;
  }
  /// D, of a sum of that many terms.
  static constexpr int64_t per_element(Accumulation::Kind kind, int64_t terms) noexcept {
    return ((terms + 1) * per_term(kind) + 1) / 2 * 2;
  }
  /// What rounds the sums of one element; its element(d) has draw d.
  static constexpr TensorRounding of(const SumSpec& spec, int64_t terms, int64_t element) noexcept {
    const RoundingChoice& how = spec.accumulation.rounding;
    const int64_t first = element * per_element(spec.accumulation.kind, terms);
    return {how.mode, spec.key, how.random_bits, static_cast<uint64_t>(first)};
  }
};

/// sum of a[k] * b[k], plus *bias if it is not null, as `spec` says; a and b are of one length.
/// The bias comes last: in fp32; under fp64 (without options) in double; under the sums in the
/// write format as one more rounded addition.
/// The result is what the caller rounds to spec.write: under fp64 the double rounded to odd, so
/// that this second rounding is harmless (round_odd.h). A NaN is 0x7fc00000.
/// `element` is the place of the sum among those with the key of `spec`.
float sum_of_products(const SumSpec& spec, std::span<const float> a, std::span<const float> b,
                      const float* bias = nullptr, int64_t element = 0);

/// The same for plain values, as if each were multiplied by one; tensor cores do no plain sums:
/// they are fp32 chains there. Not delivered yet: the double of fp64 is returned as it is.
double sum_of_values(const SumSpec& spec, std::span<const float> x, int64_t element = 0);

/// The tensor core that takes these products; nothing if they are summed in fp32 or otherwise.
std::optional<TensorCoreProfile> tensor_core_of(const SumSpec& spec) noexcept;

}  // namespace halfscope
