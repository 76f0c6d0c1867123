// SPDX-License-Identifier: MIT
// Tensor cores, and what chain.h does for everything else.
#include "core/numeric/accumulate.h"

#include "core/numeric/chain.h"
#include "core/numeric/tensor_core.h"

namespace halfscope {
namespace {

struct SpanTerms {
  std::span<const float> a, b;  ///< b is empty for plain values

  float left(int64_t k) const { return a[static_cast<size_t>(k)]; }
  float right(int64_t k) const { return b.empty() ? 1.0f : b[static_cast<size_t>(k)]; }
  bool present(int64_t) const { return true; }
};

}  // namespace

std::optional<TensorCoreProfile> tensor_core_of(const SumSpec& spec) noexcept {
  const Accumulation& how = spec.accumulation;
  if (how.kind != Accumulation::Kind::tensor_core || spec.read == kFp32 ||
      spec.b_format() == kFp32) {
    return std::nullopt;
  }
  return tensor_core_profile(how.arch, spec.read, spec.b_format(),
                             how.half_accumulator ? kFp16 : kFp32);
}

float sum_of_products(const SumSpec& spec, std::span<const float> a, std::span<const float> b,
                      const float* bias) {
  if (const std::optional<TensorCoreProfile> profile = tensor_core_of(spec)) {
    const Accumulation& how = spec.accumulation;
    const float sum = tensor_core_dot(*profile, a, b, 0.0f,
                                      {.slices = how.split_k, .promote_every = how.promote});
    return quiet_nan_of(bias != nullptr ? sum + *bias : sum);
  }
  const ChainSpec how = chain_spec(spec);
  return deliver_sum(how, sum_of_terms(how, SpanTerms{a, b}, static_cast<int64_t>(a.size())), bias);
}

double sum_of_values(const SumSpec& spec, std::span<const float> x) {
  return sum_of_terms(chain_spec(spec), SpanTerms{x, {}}, static_cast<int64_t>(x.size()));
}

}  // namespace halfscope
