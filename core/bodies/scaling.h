// SPDX-License-Identifier: MIT
// Scaled operands (core/ops/quantize.cpp): factors, codes, and the state of delayed scaling. Codes
// are exact here and rounded later, as any other value: so they are measured, and rounded in any
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

/// The number that the elements of a tensor with one scale are multiplied with, given its largest
/// magnitude (of current) and the state of delayed scaling (0: none yet).
HS_HD inline float tensor_factor(const TensorScale& choice, const FloatFormat& code, float amax,
                                 float state) noexcept {
  switch (choice.kind) {
    case TensorScale::Kind::fixed:
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

/// x over a scale that is a power of two: exact but where it leaves fp32 downwards, and there it
/// matters that it is not zero. A NaN scale makes NaN.
template <class T>
HS_HD T code_by_power_of_two(T x, T scale) noexcept {
  const T ratio = x * (1 / scale);
  return ratio == 0 && x != 0 ? std::copysign(std::numeric_limits<T>::denorm_min(), x) : ratio;
}

/// x over a scale in fp32; 0 / 0 for zeros of a block without a guard.
template <class T>
HS_HD T code_by_quotient(T x, T scale) noexcept {
  return x / scale;
}

/// x over the product of both scales. Where that vanished codes do, but as what is flushed to zero.
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

/// What a code stands for, saturated; NaN stays.
template <class T>
HS_HD T value_of_code(T code, T scale, T tensor_scale) noexcept {
  constexpr T kLargest = static_cast<T>(detail::kLargestFloat);
  const T value = static_cast<T>(static_cast<double>(code) *
                                 (static_cast<double>(scale) * static_cast<double>(tensor_scale)));
  // One comparison, of which vectors can be made: of two the compiler makes branches.
  return std::fabs(value) > kLargest ? std::copysign(kLargest, value) : value;
}

/// The state of delayed scaling holds the scale (0: none yet, which means 1), where in the history
/// the next entry goes, and the history.
inline constexpr int64_t kScaleStateHead = 2;

/// Moves it on by a step.
template <class T>
HS_HD void move_scale_state(T* state, int64_t history, float amax, const FloatFormat& code,
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
