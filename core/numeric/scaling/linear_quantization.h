// SPDX-License-Identifier: MIT
// Integers of 8 bits and fewer with a scale and a zero point: x is about scale * (q - zero_point).
// ONNX QuantizeLinear, DequantizeLinear: q = saturate(round half even(x / scale) + zero_point), the
// quotient in fp32. DynamicQuantizeLinear: the asymmetric parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/host_device.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/scaling/block_format.h"

namespace halfscope {

struct IntegerRange {
  int32_t lowest = -128, highest = 127;
};
inline constexpr IntegerRange kInt8{-128, 127};
inline constexpr IntegerRange kInt8Symmetric{-127, 127};  ///< if x has a code, so has -x (TensorRT)
inline constexpr IntegerRange kUint8{0, 255};
inline constexpr IntegerRange kInt4{-8, 7};
inline constexpr IntegerRange kUint4{0, 15};

struct LinearQuantization {
  float scale = 1;         ///< positive
  int32_t zero_point = 0;  ///< the code of 0, in the range
};

namespace detail {

/// Rounds to nearest, ties to even; beyond -2^40 or 2^40 returns that limit, for NaN zero.
HS_HD constexpr int64_t round_half_even(float x) noexcept {
  constexpr int64_t kFar = int64_t{1} << 40;
  if (x != x) return 0;
  if (x >= static_cast<float>(kFar)) return kFar;
  if (x <= -static_cast<float>(kFar)) return -kFar;
  const int64_t whole = static_cast<int64_t>(x);
  const double rest = static_cast<double>(x) - static_cast<double>(whole);  // exact, |rest| < 1
  if (rest > 0.5 || (rest == 0.5 && whole % 2 != 0)) return whole + 1;
  if (rest < -0.5 || (rest == -0.5 && whole % 2 != 0)) return whole - 1;
  return whole;
}

}  // namespace detail

/// Returns the code of x. NaN, which ONNX leaves undefined, becomes the zero point.
HS_HD constexpr int32_t quantize_linear(float x, const LinearQuantization& by,
                                        const IntegerRange& range) noexcept {
  const float ratio = div(x, by.scale, kFp32).value;
  const int64_t code = detail::round_half_even(ratio) + by.zero_point;
  return static_cast<int32_t>(code < range.lowest    ? range.lowest
                              : code > range.highest ? range.highest
                                                     : code);
}

HS_HD constexpr float dequantize_linear(int32_t code, const LinearQuantization& by) noexcept {
  return static_cast<float>(code - by.zero_point) * by.scale;
}

/// Returns parameters with zero point 0 for which amax gets the highest code. Scale 1 if amax is
/// zero or not finite.
LinearQuantization symmetric_quantization(float amax, const IntegerRange& range) noexcept;

/// Returns parameters for the smallest and the largest value. The range is extended to include
/// zero, so zero is exact. Scale 1 if the range is a single point or not finite.
LinearQuantization asymmetric_quantization(float smallest, float largest,
                                           const IntegerRange& range) noexcept;

enum class Symmetry : uint8_t { symmetric, asymmetric };

/// A tensor as [outer][channels][inner], row-major. {1, 1, size}: a single scale for the tensor.
struct ChannelShape {
  int64_t outer = 1, channels = 1, inner = 1;
};

/// Returns the parameters of each channel, from its finite values.
std::vector<LinearQuantization> calibrate(std::span<const float> in, const ChannelShape& shape,
                                          Symmetry symmetry, const IntegerRange& range);

/// Replaces every value by the one that its code represents. Counts like the block formats; NaN
/// counts as flushed. `codes` may be empty. Throws Error if sizes do not match.
void quantize_linear(std::span<const float> in, const ChannelShape& shape,
                     std::span<const LinearQuantization> channels, const IntegerRange& range,
                     std::span<float> out, std::span<int32_t> codes = {},
                     BlockStats* stats = nullptr);

}  // namespace halfscope
