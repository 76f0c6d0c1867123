// SPDX-License-Identifier: MIT
// Scaled operands (core/ops/quantize.cpp). Codes are written before they are rounded, which happens
// as for any other value: so they are measured, and rounded in any mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/numeric/scaling/block_format.h"
#include "core/numeric/scaling/tensor_scale.h"
#include "core/numeric/scaling/tensor_scaling.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

template <class T>
HS_HD inline uint32_t magnitude_bits(T x) {
  return std::bit_cast<uint32_t>(static_cast<float>(x)) & ~detail::kSignBit;
}

/// Bits of the largest magnitude of [0, n); infinity and NaN are largest, or count as zero.
template <class T>
struct LargestMagnitude {
  /// Elements of an item, far apart: neighbours read neighbours.
  static constexpr int64_t kPiece = 256;
  In<T> x;
  int64_t n;
  bool only_finite;
  uint32_t* bits;

  HS_HD static int64_t items(int64_t n) { return ceil_div(n, kPiece); }
  HS_HD void operator()(int64_t piece) const {
    uint32_t largest = 0;
    const int64_t step = items(n);
    for (int64_t i = piece; i < n; i += step) {
      const uint32_t magnitude = magnitude_bits(x[i]);
      const bool counts = !only_finite || magnitude < detail::kInfinityBits;
      if (counts && magnitude > largest) largest = magnitude;
    }
    raise_to(bits, largest);
  }
};

/// One item: the number that elements are multiplied with, its inverse, and 1 for the tensor.
template <class T>
struct TensorFactor {
  TensorScale::Kind kind;
  float fixed;
  ScaleGrid grid;
  FloatFormat code;
  const uint32_t* amax;  ///< of current
  In<T> state;           ///< of delayed; may be null
  Out<T> factor;
  Out<T> inverse, tensor_scale;

  HS_HD void operator()(int64_t) const {
    const float number = value();
    *factor = static_cast<T>(number);
    *inverse = static_cast<T>(1 / number);
    *tensor_scale = 1;
  }

 private:
  HS_HD float value() const {
    switch (kind) {
      case TensorScale::Kind::fixed:
        return fixed;
      case TensorScale::Kind::current:
        return current_scale(std::bit_cast<float>(*amax), code, grid);
      case TensorScale::Kind::delayed: {
        const float scale = state != nullptr ? static_cast<float>(*state) : 0.0f;
        return scale > 0 ? scale : 1;
      }
      default:
        return 1;
    }
  }
};

template <class T>
struct Multiply {
  In<T> x, factor;
  Out<T> y;
  HS_HD void operator()(int64_t i) const { y[i] = x[i] * *factor; }
};

/// A tensor cut into blocks, and where each has its scale.
struct Blocks {
  BlockShape shape;
  Divisor block = 1;
  Divisor inner = shape.inner, length = shape.length, outer_block = shape.outer_block;
  Divisor along = ceil_div(shape.length, block);

  /// Of element i.
  HS_HD int64_t scale_of(int64_t i) const {
    const int64_t rest = i / inner, outer = rest / length, at = rest - outer * length;
    return (outer / outer_block * along + at / block) * inner + (i - rest * inner);
  }
};

/// One item: the scale of a tensor whose blocks have theirs.
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
  bool powers_of_two;
  FloatFormat write;

  HS_HD void operator()(int64_t i) const {
    const T scale = scales[of.scale_of(i)];
    y[i] = powers_of_two ? over_power_of_two(x[i], scale) : over_both(x[i], scale);
  }

 private:
  /// Exact but where it leaves fp32 downwards, and there it matters that it is not zero. A NaN
  /// scale makes NaN.
  HS_HD static T over_power_of_two(T value, T scale) {
    const T ratio = value * (1 / scale);
    return ratio == 0 && value != 0 ? std::copysign(std::numeric_limits<T>::denorm_min(), value)
                                    : ratio;
  }
  /// Where the scales vanished codes do, but as what is flushed to zero.
  HS_HD T over_both(T value, T scale) const {
    const double number = static_cast<double>(value);
    if (number == 0) return value;
    const double by = static_cast<double>(scale) * static_cast<double>(*tensor_scale);
    const double tiny = std::copysign(std::numeric_limits<double>::denorm_min(), number);
    return delivered<T>(by == 0 ? tiny : number / by, write);
  }
};

template <class T>
struct Dequantize {
  In<T> codes, scales, tensor_scale;
  Out<T> y;
  Blocks of;

  HS_HD void operator()(int64_t i) const {
    const double largest = static_cast<double>(detail::kLargestFloat);
    const double value =
        static_cast<double>(codes[i]) *
        (static_cast<double>(scales[of.scale_of(i)]) * static_cast<double>(*tensor_scale));
    // NaN stays.
    y[i] = static_cast<T>(value < -largest ? -largest : value > largest ? largest : value);
  }
};

/// One item: the state of delayed scaling [scale, next place, history...] moves on.
template <class T>
struct ScaleUpdate {
  const uint32_t* amax;
  T* state;
  int64_t head, history;
  FloatFormat code;
  AmaxChoice choice;
  int margin;

  HS_HD void operator()(int64_t) const {
    const float latest = std::bit_cast<float>(*amax);
    const double place = static_cast<double>(state[1]);
    const bool inside = place >= 0 && place < static_cast<double>(history);
    const int64_t next = inside ? static_cast<int64_t>(place) : 0;
    state[head + next] = static_cast<T>(latest);
    state[1] = static_cast<T>((next + 1) % history);
    float chosen = latest;
    if (choice == AmaxChoice::max) {
      chosen = 0;
      for (int64_t i = 0; i < history; ++i) {
        chosen = std::fmax(chosen, static_cast<float>(state[head + i]));
      }
    }
    const float before = state[0] > 0 ? static_cast<float>(state[0]) : 1.0f;
    state[0] = static_cast<T>(next_delayed_scale(chosen, before, code, margin));
  }
};

}  // namespace halfscope::gpu
