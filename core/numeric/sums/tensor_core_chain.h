// SPDX-License-Identifier: MIT
// Dot products of any length on the tensor cores that a SumSpec names, as a function of terms for
// the device: chains of fused_dot, with promotion and split k around them. Written independently of
// tensor_core_dot, with the same bits (tests/gpu), and less general: no block scales, no sliced k.
// `Terms` as in chain.h, but all terms are summed.
#pragma once

#include <bit>
#include <cstdint>

#include "core/numeric/formats/round.h"
#include "core/numeric/sums/fused_dot.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

/// A tensor core, and how the plan divides k for it.
struct CoreSpec {
  TensorCoreProfile core;
  int64_t promote = 0;
  int64_t split_k = 1;
};

namespace detail {

/// Adds two sums, with the NaN that GPUs return.
HS_HD inline float add_sums(float x, float y) noexcept {
  const float sum = x + y;
  return sum == sum ? sum : tensor_core_nan(BlockOutput::rz_fp32);
}

HS_HD inline float to_accumulator(const FusedDot& dot, float x) noexcept {
  constexpr FloatFormat fp16 = kFp16;  // device code cannot take references to host constants
  if (x != x) return tensor_core_nan(dot.output);
  return dot.output == BlockOutput::rne_fp16 ? round_to_format(x, fp16).value : x;
}

/// Returns the operand as hardware reads it: of tf32 only the upper 19 bits.
HS_HD inline float as_core_reads(float x, const FloatFormat& format) noexcept {
  constexpr FloatFormat tf32 = kTf32;
  if (format != tf32) return x;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1FFFu);
}

/// Runs one step of a core that unpacks fp8 to fp16: the products with k mod 4 in {0, 1}, then the
/// others, as a chain from 0, which is added to the sum.
HS_HD inline float split_step(const TensorCoreProfile& core, const float* a, const float* b,
                              float sum) noexcept {
  constexpr FloatFormat fp16 = kFp16;
  const int count = 2 * core.dot.products;
  float partial = 0.0f;
  for (int half = 0; half <= 2; half += 2) {
    float x[kMaxBlockProducts], y[kMaxBlockProducts];
    int n = 0;
    for (int k = 0; k < count; ++k) {
      if ((k & 2) != half) continue;
      x[n] = a[k];
      y[n++] = b[k];
    }
    partial = fused_dot(core.dot, fp16, fp16, x, y, n, partial);
  }
  return to_accumulator(core.dot, add_sums(partial, sum));
}

/// Sums one chain over [begin, end); a short last block is filled with zeros.
template <class Terms>
HS_HD float core_chain(const TensorCoreProfile& core, const Terms& terms, int64_t begin,
                       int64_t end, float sum = 0.0f) noexcept {
  const int step = core.step();
  for (int64_t first = begin; first < end; first += step) {
    float a[kMaxBlockProducts], b[kMaxBlockProducts];
    for (int k = 0; k < step; ++k) {
      const bool exists = first + k < end;
      a[k] = exists ? as_core_reads(terms.left(first + k), core.a_format) : 0.0f;
      b[k] = exists ? as_core_reads(terms.right(first + k), core.b_format) : 0.0f;
    }
    sum = core.path == TensorCorePath::fp16_split
              ? split_step(core, a, b, sum)
              : fused_dot(core.dot, core.a_format, core.b_format, a, b, step, sum);
  }
  return sum;
}

}  // namespace detail

/// Returns the sum of n products.
template <class Terms>
HS_HD float tensor_core_sum(const CoreSpec& how, const Terms& terms, int64_t n) noexcept {
  const int64_t parts = how.split_k < n ? how.split_k : n > 1 ? n : 1;
  if (how.promote == 0 && parts == 1) return detail::core_chain(how.core, terms, 0, n);
  // Slices are whole steps.
  const int64_t step = how.core.step(), steps = (n + step - 1) / step;
  const int64_t most = (steps + parts - 1) / parts;
  const int64_t slice = (most > 1 ? most : 1) * step;
  float total = 0.0f;
  for (int64_t begin = 0; begin < n; begin += slice) {
    const int64_t end = begin + slice < n ? begin + slice : n;
    float partial = 0.0f;
    if (how.promote == 0) {
      partial = detail::core_chain(how.core, terms, begin, end);
    } else {
      for (int64_t first = begin; first < end; first += how.promote) {
        const int64_t last = first + how.promote < end ? first + how.promote : end;
        partial = detail::add_sums(partial, detail::core_chain(how.core, terms, first, last));
      }
    }
    total = parts == 1 ? partial : detail::add_sums(total, partial);
  }
  return detail::to_accumulator(how.core.dot, detail::add_sums(total, 0.0f));
}

}  // namespace halfscope
