// SPDX-License-Identifier: MIT
// The slow, obvious reference of every accumulation: one dot product, or one sum, term by term.
// Fast kernels must agree with it bit for bit, and kernels that do not exist fall back to it.
#pragma once

#include <optional>
#include <span>

#include "core/numeric/accumulation.h"
#include "core/numeric/tensor_core.h"

namespace halfscope {

/// sum of a[k] * b[k], plus *bias if it is not null, as `spec` says; a and b are of one length.
/// The bias comes last: in fp32; under fp64 (without options) in double; under the sums in the
/// write format as one more rounded addition.
/// The result is what the caller rounds to spec.write: under fp64 the double rounded to odd, so
/// that this second rounding is harmless (round_odd.h). A NaN is 0x7fc00000.
float sum_of_products(const SumSpec& spec, std::span<const float> a, std::span<const float> b,
                      const float* bias = nullptr);

/// The same for plain values, as if each were multiplied by one; tensor cores do no plain sums:
/// they are fp32 chains there. Not delivered yet: the double of fp64 is returned as it is.
double sum_of_values(const SumSpec& spec, std::span<const float> x);

/// The tensor core that takes these products; nothing if they are summed in fp32 or otherwise.
std::optional<TensorCoreProfile> tensor_core_of(const SumSpec& spec) noexcept;

}  // namespace halfscope
