// SPDX-License-Identifier: MIT
// A single scale for an fp8 tensor: the stored value is x * scale, rounded to the format with
// saturation. Static (a number), current (from the tensor itself) or delayed (from the tensors of
// earlier steps), as NVIDIA's Transformer Engine defines them: common/recipe/recipe_common.cuh
// (compute_scale_from_amax) and common/recipe/delayed_scaling.cu.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/scaling/block_format.h"
#include "core/numeric/scaling/ue8m0.h"

namespace halfscope {

/// Returns the largest magnitude; NaN if there is a NaN.
float largest_magnitude(std::span<const float> in) noexcept;

enum class ScaleGrid : uint8_t {
  any,
  power_of_two,  ///< the next power of two below: scaling is then exact
};

/// Returns max_finite / amax, so that the largest value becomes the format's. Returns `otherwise`
/// if amax is zero, infinite or NaN, and the largest float if amax is so small that the scale would
/// overflow.
HS_HD inline float current_scale(float amax, const FloatFormat& format,
                                 ScaleGrid grid = ScaleGrid::any, float otherwise = 1) noexcept {
  if (!(amax > 0) || std::bit_cast<uint32_t>(amax) == detail::kInfinityBits) return otherwise;
  float scale = static_cast<float>(format.max_finite()) / amax;
  if (std::bit_cast<uint32_t>(scale) == detail::kInfinityBits) scale = detail::kLargestFloat;
  if (grid == ScaleGrid::power_of_two) {
    scale = decode_ue8m0(encode_ue8m0(scale, Ue8m0Rounding::toward_zero));
  }
  return scale;
}

/// Returns the scale as frameworks computed it before they had a guard: infinite if amax is 0 or
/// too small.
HS_HD inline float unguarded_scale(float amax, const FloatFormat& format, ScaleGrid grid) noexcept {
  const float scale = static_cast<float>(format.max_finite()) / amax;
  const bool finite = (std::bit_cast<uint32_t>(scale) & ~detail::kSignBit) < detail::kInfinityBits;
  if (grid == ScaleGrid::any || !finite) return scale;
  return decode_ue8m0(encode_ue8m0(scale, Ue8m0Rounding::toward_zero));
}

/// Replaces x by the value that represents it: round(x * scale) * (1 / scale), both products and
/// the reciprocal in fp32. The format saturates, NaN stays NaN. `stats` are set: clipped, flushed.
void quantize_scaled(std::span<const float> in, float scale, const FloatFormat& format,
                     std::span<float> out, BlockStats* stats = nullptr);

enum class AmaxChoice : uint8_t {
  max,          ///< over the history
  most_recent,  ///< from the last step
};

/// Returns the scale after a step of delayed scaling, given the amax to use: max_finite * 2^-margin
/// / amax, or `scale` if that is not usable.
HS_HD inline float next_delayed_scale(float amax, float scale, const FloatFormat& format,
                                      int margin) noexcept {
  if (!(amax > 0) || std::bit_cast<uint32_t>(amax) >= detail::kInfinityBits) return scale;
  const double room = format.max_finite() * std::ldexp(1.0, -margin);
  const float next = static_cast<float>(room) / amax;
  return std::bit_cast<uint32_t>(next) == detail::kInfinityBits ? detail::kLargestFloat : next;
}

/// Returns the same, given the amax of all steps in the history, in any order; see DelayedScale.
float delayed_scale(std::span<const float> history, float latest, float scale,
                    const FloatFormat& format, AmaxChoice choice, int margin) noexcept;

/// Delayed scaling: the scale of a step comes from the amax of earlier steps.
///   DelayedScale scale({.format = kE4m3fn});
///   each step: quantize_scaled(x, scale.scale(), ...); scale.update(largest_magnitude(x));
/// The new scale is max_finite * 2^-margin / amax; an amax of zero, infinity or NaN leaves the
/// scale unchanged. As with fmax, a NaN in the history is ignored; an infinity counts until it is
/// `history_length` steps old.
class DelayedScale {
 public:
  struct Options {
    FloatFormat format = kE4m3fn;
    int history_length = 1024;  ///< 1 or more
    AmaxChoice choice = AmaxChoice::max;
    int margin = 0;  ///< binades kept free above the largest value
  };
  /// Throws Error if the history has no steps.
  explicit DelayedScale(const Options& options);

  float scale() const noexcept { return scale_; }
  /// Returns the amax of the steps so far, oldest first.
  std::vector<float> history() const;

  /// Ends a step whose largest magnitude was `amax`.
  void update(float amax);

 private:
  Options options_;
  std::vector<float> ring_;  ///< step s is at s % history_length
  int64_t steps_ = 0;
  float scale_ = 1;
};

}  // namespace halfscope
