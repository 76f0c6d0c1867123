// SPDX-License-Identifier: MIT
// Scaled operands (core/bodies/scaling.h).
#pragma once

#include <bit>
#include <cstdint>

#include "core/bodies/scaling.h"
#include "core/numeric/scaling/block_format.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

template <class T>
HS_HD inline uint32_t magnitude_bits(T x) {
  return std::bit_cast<uint32_t>(static_cast<float>(x)) & ~detail::kSignBit;
}

/// Finds the largest magnitude in [0, n) and stores its bits in `bits`, which is zero before.
/// Infinity and NaN are largest, or count as zero.
template <class T>
struct LargestMagnitude {
  static constexpr int kThreads = 256;
  static constexpr int64_t kElements = 4 * kThreads * kSeveral;  ///< per block

  In<T> x;
  int64_t n;
  bool only_finite;
  uint32_t* bits;

  struct Shared {
    uint32_t largest;
  };
  struct State {};

  int64_t blocks() const { return ceil_div(n, kElements); }
  HS_HD int64_t steps() const { return 3; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0 && thread == 0) shared.largest = 0;
    if (s == 1) raise_to(&shared.largest, largest_from(block * kElements + thread * kSeveral));
    if (s == 2 && thread == 0) raise_to(bits, shared.largest);
  }

 private:
  /// Returns the largest of the thread's elements.
  HS_HD uint32_t largest_from(int64_t first) const {
    const int64_t end = smaller(n, (first / kElements + 1) * kElements);
    uint32_t largest = 0;
    for (int64_t i = first; i < end; i += kThreads * kSeveral) {
      T element[kSeveral];
      read(x, Neighbours{i, static_cast<int>(smaller(kSeveral, n - i))}, element);
      for (const T& each : element) {
        const uint32_t magnitude = magnitude_bits(each);
        const bool counts = !only_finite || magnitude < detail::kInfinityBits;
        if (counts && magnitude > largest) largest = magnitude;
      }
    }
    return largest;
  }
};

/// One item: the factor of all elements, its inverse, and a tensor scale of 1.
template <class T>
struct TensorFactor {
  TensorScale choice;
  FloatFormat code;
  const uint32_t* amax;  ///< for current scaling
  In<T> state;           ///< for delayed scaling; may be null
  Out<T> factor;
  Out<T> inverse, tensor_scale;

  HS_HD void operator()(int64_t) const {
    const float number =
        tensor_factor(choice, code, amax != nullptr ? std::bit_cast<float>(*amax) : 0.0f,
                      state != nullptr ? static_cast<float>(*state) : 0.0f);
    *factor = static_cast<T>(number);
    *inverse = static_cast<T>(undone(choice, number));
    *tensor_scale = 1;
  }
};

template <class T>
struct Multiply {
  In<T> x, factor;
  Out<T> y;
  HS_HD void operator()(int64_t i) const { y[i] = x[i] * *factor; }
};

template <class T>
struct Divide {
  In<T> x, by;
  Out<T> y;
  HS_HD void operator()(int64_t i) const { y[i] = code_by_quotient(x[i], *by); }
};

/// A tensor cut into blocks, and the position of each block's scale.
struct Blocks {
  BlockShape shape;
  Divisor block = 1;
  Divisor inner = shape.inner, length = shape.length, outer_block = shape.outer_block;
  Divisor along = ceil_div(shape.length, block);

  /// Returns the position of the scale for element i.
  HS_HD int64_t scale_of(int64_t i) const {
    const int64_t rest = i / inner, outer = rest / length, at = rest - outer * length;
    return (outer / outer_block * along + at / block) * inner + (i - rest * inner);
  }
};

/// One item: the scale of a tensor whose blocks have their own scales.
template <class T>
struct TensorScaleOf {
  const uint32_t* amax;  ///< null: 1
  Out<T> tensor_scale;
  HS_HD void operator()(int64_t) const {
    *tensor_scale =
        amax == nullptr ? T{1} : static_cast<T>(nvfp4_tensor_scale(std::bit_cast<float>(*amax)));
  }
};

/// Item: a block.
template <class T>
struct BlockScale {
  In<T> x, tensor_scale;
  Out<T> scales;
  Blocks of;
  BlockFormat format;

  HS_HD void operator()(int64_t item) const {
    const BlockShape& s = of.shape;
    const int64_t inner = item % of.inner, rest = item / of.inner;
    const int64_t first = rest % of.along * of.block;
    const int64_t outer = rest / of.along * s.outer_block;
    uint32_t largest = 0;
    for (int64_t o = outer; o < smaller(outer + s.outer_block, s.outer); ++o) {
      for (int64_t i = first; i < smaller(first + of.block, s.length); ++i) {
        const uint32_t magnitude = magnitude_bits(x[(o * s.length + i) * s.inner + inner]);
        largest = magnitude > largest ? magnitude : largest;
      }
    }
    scales[item] = static_cast<T>(block_scale(largest, format, static_cast<double>(*tensor_scale)));
  }
};

template <class T>
struct BlockCodes {
  In<T> x, scales, tensor_scale;
  Out<T> y;
  Blocks of;
  ScaleKind kind;
  FloatFormat write;

  HS_HD void operator()(int64_t i) const {
    const T scale = scales[of.scale_of(i)];
    y[i] = kind == ScaleKind::ue8m0  ? code_by_power_of_two(x[i], scale)
           : kind == ScaleKind::fp32 ? code_by_quotient(x[i], scale)
                                     : code_by_two_scales<T>(x[i], scale, *tensor_scale, write);
  }
};

template <class T>
struct Dequantize {
  In<T> codes, scales, tensor_scale;
  Out<T> y;
  Blocks of;

  HS_HD void operator()(int64_t i) const {
    y[i] = value_of_code<T>(codes[i], scales[of.scale_of(i)], *tensor_scale);
  }
};

/// One item: advances the state of delayed scaling.
template <class T>
struct ScaleUpdate {
  const uint32_t* amax;
  T* state;
  int64_t history;
  FloatFormat code;
  AmaxChoice choice;
  int margin;

  HS_HD void operator()(int64_t) const {
    advance_scale_state(state, history, std::bit_cast<float>(*amax), code, choice, margin);
  }
};

}  // namespace halfscope::gpu
