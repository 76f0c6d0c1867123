// SPDX-License-Identifier: MIT
// Scaled operands (core/ops/quantize.cpp): factors, codes, and the state of delayed scaling. Codes
// are exact here and rounded later like any other value, so they can be measured and rounded in any
// mode.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/bodies/elements.h"
#include "core/host_device.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/scaling/tensor_scale.h"
#include "core/numeric/scaling/tensor_scaling.h"

namespace halfscope {

/// Returns the number by which the elements of a tensor with a single scale are multiplied, or
/// divided (Kind::divided). `amax` is its largest
/// magnitude (used by current scaling), `state` the scale that delayed scaling has stored (0: none
/// yet).
HS_HD inline float tensor_factor(const TensorScale& choice, const FloatFormat& code, float amax,
                                 float state) noexcept {
  switch (choice.kind) {
    case TensorScale::Kind::fixed:
    case TensorScale::Kind::divided:
      return choice.factor;
    case TensorScale::Kind::current:
      if (choice.amax_floor > amax) amax = choice.amax_floor;
      if (choice.unguarded) return unguarded_scale(amax, code, choice.grid);
      return current_scale(amax, code, choice.grid);
    case TensorScale::Kind::delayed:
      return state > 0 ? state : 1;
    default:
      return 1;
  }
}

/// Returns the number by which sums of the codes are multiplied to undo the factor.
HS_HD inline float undone(const TensorScale& choice, float factor) noexcept {
  return choice.kind == TensorScale::Kind::divided ? factor : 1 / factor;
}

/// Returns x over a scale that is a power of two. That is exact unless the quotient underflows
/// fp32, where only its not being zero matters. A NaN scale gives NaN.
template <class T>
HS_HD T code_by_power_of_two(T x, T scale) noexcept {
  const T ratio = x * (1 / scale);
  return ratio == 0 && x != 0 ? std::copysign(std::numeric_limits<T>::denorm_min(), x) : ratio;
}

/// Returns x over a scale in fp32; 0 / 0 for a block of zeros whose scale has no guard.
template <class T>
HS_HD T code_by_quotient(T x, T scale) noexcept {
  return x / scale;
}

/// Returns x over the product of both scales. If that product vanished, so do the codes, and they
/// count as flushed to zero.
HS_HD inline double over_two_scales(double x, double scale, double tensor_scale) noexcept {
  const double by = scale * tensor_scale;
  if (by != 0 || x == 0) return x == 0 ? x : x / by;
  return std::copysign(std::numeric_limits<double>::denorm_min(), x);
}
template <class T>
HS_HD T code_by_two_scales(T x, T scale, T tensor_scale, const FloatFormat& write) noexcept {
  return delivered<T>(over_two_scales(static_cast<double>(x), static_cast<double>(scale),
                                      static_cast<double>(tensor_scale)),
                      write);
}

/// Returns the value that a code represents, saturated; NaN stays NaN.
template <class T>
HS_HD T value_of_code(T code, T scale, T tensor_scale) noexcept {
  constexpr T kLargest = static_cast<T>(detail::kLargestFloat);
  const T value = static_cast<T>(static_cast<double>(code) *
                                 (static_cast<double>(scale) * static_cast<double>(tensor_scale)));
  // A single comparison can be vectorized; the compiler turns two into branches.
  return std::fabs(value) > kLargest ? std::copysign(kLargest, value) : value;
}

/// Layout of the state of delayed scaling: the scale (0: none yet, which means 1), the position of
/// the next history entry, and the history itself.
inline constexpr int64_t kScaleStateHead = 2;

/// Advances the state by one step.
template <class T>
HS_HD void advance_scale_state(T* state, int64_t history, float amax, const FloatFormat& code,
                               AmaxChoice choice, int margin) noexcept {
  T* const ring = state + kScaleStateHead;
  const double place = static_cast<double>(state[1]);
  const bool inside = place >= 0 && place < static_cast<double>(history);
  const int64_t next = inside ? static_cast<int64_t>(place) : 0;
  ring[next] = static_cast<T>(amax);
  state[1] = static_cast<T>((next + 1) % history);
  float chosen = amax;
  if (choice == AmaxChoice::max) {
    chosen = 0;
    for (int64_t i = 0; i < history; ++i) chosen = std::fmax(chosen, static_cast<float>(ring[i]));
  }
  const float before = state[0] > 0 ? static_cast<float>(state[0]) : 1.0f;
  state[0] = static_cast<T>(next_delayed_scale(chosen, before, code, margin));
}

}  // namespace halfscope
