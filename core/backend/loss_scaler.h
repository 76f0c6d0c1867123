// SPDX-License-Identifier: MIT
// LossScaler: the loss scalers of PyTorch, Keras, apex and DeepSpeed as one pure state machine with
// one transition function, for host and device. Each kind computes as its framework does: PyTorch
// and Keras keep the scale in fp32, apex and DeepSpeed as a Python float (double).
//
// Sources: torch.amp.GradScaler and _amp_update_scale_ (2.15); keras LossScaleOptimizer (3.15);
// tf_keras.mixed_precision.LossScaleOptimizer (2.21); apex.amp.scaler.LossScaler and
// apex.fp16_utils.DynamicLossScaler (6424da3); deepspeed.runtime.fp16 (0.19).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/host_device.h"

namespace halfscope {

struct LossScalerConfig {
  enum class Kind : uint8_t {
    none,             ///< scale 1, no step is ever skipped
    constant,         ///< fixed scale; steps with non-finite gradients are skipped
    dynamic,          ///< torch's rules; also skips steps once the scale has no inverse in fp32
    torch,            ///< torch.amp.GradScaler
    tf_keras,         ///< tf_keras LossScaleOptimizer
    keras3,           ///< keras LossScaleOptimizer
    apex,             ///< apex.amp
    apex_fp16_utils,  ///< apex.fp16_utils.DynamicLossScaler
    deepspeed,        ///< DeepSpeed's DynamicLossScaler, or its fp16 optimizer without ZeRO
    deepspeed_bf16,   ///< DeepSpeed's bf16: no scale, steps with non-finite gradients are skipped
  };
  Kind kind = Kind::none;
  double initial = 1.0;
  double growth = 2.0, backoff = 0.5;  ///< torch; apex_fp16_utils divides by `growth`
  int32_t growth_interval = 2000;
  double minimum = 0.0;      ///< floor after a skipped step (apex, DeepSpeed); 0: none
  double maximum = 0.0;      ///< largest scale (apex); 0: none
  int32_t hysteresis = 1;    ///< skipped steps until the scale falls (DeepSpeed)
  bool consecutive = false;  ///< a good step refills the hysteresis (DeepSpeed)
  bool raises = false;       ///< training ends if a step overflows at the minimum (DeepSpeed)
  bool fixed = false;        ///< the framework's static scale
  bool flushes = false;      ///< the scale's subnormal values are zero (TensorFlow, JAX)
  /// Whether gradients count as finite if the fp32 sum of each tensor is finite.
  bool sums = false;

  friend bool operator==(const LossScalerConfig&, const LossScalerConfig&) = default;
};

/// Why a framework ends the training.
enum class ScalerStop : uint8_t {
  none,
  at_minimum,        ///< DeepSpeed: a step overflowed at the smallest scale
  division_by_zero,  ///< apex: 1 / scale, and the scale is 0
};

struct LossScalerState {
  double scale = 1.0;
  int32_t tracker = 0;     ///< finite steps since the last change (torch, Keras, apex)
  int32_t hysteresis = 0;  ///< DeepSpeed: skipped steps that remain until the scale falls, plus 1
  int64_t iteration = 0;   ///< DeepSpeed, apex_fp16_utils: steps so far
  int64_t last_overflow = -1;  ///< the same: the last skipped one
  ScalerStop stop = ScalerStop::none;

  friend bool operator==(const LossScalerState&, const LossScalerState&) = default;
};

/// Returns whether the scale never changes.
HS_HD constexpr bool is_static(const LossScalerConfig& config) noexcept {
  using Kind = LossScalerConfig::Kind;
  return config.fixed || config.kind == Kind::none || config.kind == Kind::constant ||
         config.kind == Kind::deepspeed_bf16;
}

HS_HD constexpr LossScalerState initial_state(const LossScalerConfig& config) noexcept {
  using Kind = LossScalerConfig::Kind;
  LossScalerState state;
  if (config.kind == Kind::none || config.kind == Kind::deepspeed_bf16) return state;
  const bool capped = config.maximum > 0.0 && config.initial > config.maximum && !config.fixed;
  state.scale = capped ? config.maximum : config.initial;
  state.hysteresis = config.kind == Kind::deepspeed ? config.hysteresis : 0;
  return state;
}

namespace scaler {

inline constexpr double kLargest = 0x1.fffffep127, kSmallestNormal = 0x1p-126;
inline constexpr double kFirstInfinite = 0x1.ffffffp127;  ///< rounds to infinity in fp32
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Rounds to fp32.
HS_HD constexpr double single(double x) noexcept {
  return x >= kFirstInfinite ? kInfinity : static_cast<double>(static_cast<float>(x));
}

HS_HD constexpr double larger(double a, double b) noexcept { return a < b ? b : a; }
HS_HD constexpr double smaller(double a, double b) noexcept { return b < a ? b : a; }

/// torch._amp_update_scale_: the product is made in double and rounded; an infinite one is not
/// stored.
HS_HD constexpr LossScalerState torch(LossScalerState state, const LossScalerConfig& config,
                                      bool finite) noexcept {
  if (!finite) {
    state.scale = single(state.scale * config.backoff);
    state.tracker = 0;
  } else if (state.tracker + 1 != config.growth_interval) {
    ++state.tracker;
  } else {
    const double grown = single(state.scale * config.growth);
    if (grown <= kLargest) state.scale = grown;
    state.tracker = 0;
  }
  return state;
}

/// _DynamicLossScaleState.update: floor 1, infinity is not stored.
HS_HD constexpr LossScalerState tf_keras(LossScalerState state, const LossScalerConfig& config,
                                         bool finite) noexcept {
  if (!finite) {
    state.scale = larger(single(state.scale / 2.0), 1.0);
    state.tracker = 0;
  } else if (state.tracker + 1 < config.growth_interval) {
    ++state.tracker;
  } else {
    if (state.scale * 2.0 <= kLargest) state.scale *= 2.0;
    state.tracker = 0;
  }
  return state;
}

/// No floor and no cap: both 0 and infinity are reached.
HS_HD constexpr LossScalerState keras3(LossScalerState state, const LossScalerConfig& config,
                                       bool finite) noexcept {
  if (!finite) {
    state.scale = single(state.scale / 2.0);
    if (config.flushes && state.scale < kSmallestNormal) state.scale = 0.0;
    state.tracker = 0;
  } else if (state.tracker == config.growth_interval - 1) {
    state.scale = single(state.scale * 2.0);
    state.tracker = 0;
  } else {
    ++state.tracker;
  }
  return state;
}

HS_HD constexpr LossScalerState apex(LossScalerState state, const LossScalerConfig& config,
                                     bool finite) noexcept {
  if (state.scale == 0.0) {
    state.stop = ScalerStop::division_by_zero;
  } else if (!finite) {
    state.scale = larger(state.scale / 2.0, config.minimum);
    state.tracker = 0;
  } else if (++state.tracker == config.growth_interval) {
    state.scale *= 2.0;
    if (config.maximum > 0.0) state.scale = smaller(state.scale, config.maximum);
    state.tracker = 0;
  }
  return state;
}

HS_HD constexpr LossScalerState apex_fp16_utils(LossScalerState state,
                                                const LossScalerConfig& config,
                                                bool finite) noexcept {
  if (!finite) {
    state.scale = larger(state.scale / config.growth, 1.0);
    state.last_overflow = state.iteration;
  } else if ((state.iteration - state.last_overflow) % config.growth_interval == 0) {
    state.scale *= config.growth;
  }
  ++state.iteration;
  return state;
}

HS_HD constexpr LossScalerState deepspeed(LossScalerState state, const LossScalerConfig& config,
                                          bool finite) noexcept {
  if (!finite) {
    if (config.hysteresis > 1 && state.hysteresis > 1) {
      --state.hysteresis;
    } else if (config.raises && state.scale == config.minimum) {
      state.stop = ScalerStop::at_minimum;  // before anything is counted
      return state;
    } else {
      state.scale = larger(state.scale / 2.0, config.minimum);
    }
    state.last_overflow = state.iteration;
  } else {
    const int64_t stable = state.iteration - state.last_overflow - 1;
    const bool grows = stable > 0 && stable % config.growth_interval == 0;
    if (grows || config.consecutive) state.hysteresis = config.hysteresis;
    if (grows) state.scale *= 2.0;
  }
  ++state.iteration;
  return state;
}

}  // namespace scaler

/// Returns the state after a step whose gradients the framework found `finite` or not. A state with
/// a stop never changes.
HS_HD constexpr LossScalerState next_state(const LossScalerState& state,
                                           const LossScalerConfig& config, bool finite) noexcept {
  using Kind = LossScalerConfig::Kind;
  if (config.fixed || state.stop != ScalerStop::none) return state;
  switch (config.kind) {
    case Kind::none:
    case Kind::constant:
    case Kind::deepspeed_bf16:
      break;
    case Kind::dynamic:
    case Kind::torch:
      return scaler::torch(state, config, finite);
    case Kind::tf_keras:
      return scaler::tf_keras(state, config, finite);
    case Kind::keras3:
      return scaler::keras3(state, config, finite);
    case Kind::apex:
      return scaler::apex(state, config, finite);
    case Kind::apex_fp16_utils:
      return scaler::apex_fp16_utils(state, config, finite);
    case Kind::deepspeed:
      return scaler::deepspeed(state, config, finite);
  }
  return state;
}

/// Returns whether the optimizer skips the step. Static scales of Keras and apex never skip.
HS_HD constexpr bool skips(const LossScalerConfig& config, bool finite) noexcept {
  using Kind = LossScalerConfig::Kind;
  if (config.kind == Kind::none || (config.fixed && config.kind != Kind::deepspeed)) return false;
  return !finite;
}

/// Returns whether a skipped step counts as a step of the optimizer (its bias correction), as
/// tf_keras's `iterations` do.
HS_HD constexpr bool counts_skipped(const LossScalerConfig& config) noexcept {
  return config.kind == LossScalerConfig::Kind::tf_keras;
}

/// Returns whether gradients are divided by the scale, not multiplied by its inverse.
HS_HD constexpr bool divides_by_scale(const LossScalerConfig& config) noexcept {
  return config.kind == LossScalerConfig::Kind::keras3;
}

/// Returns the number that gradients are multiplied by, rounded to fp32, or that they are divided
/// by. The inverse is infinite below 2^-128: then 0 * inf turns every weight into NaN.
HS_HD inline float unscale_factor(const LossScalerConfig& config,
                                  const LossScalerState& state) noexcept {
  return static_cast<float>(
      scaler::single(divides_by_scale(config) ? state.scale : 1.0 / state.scale));
}

/// Returns whether this framework's test can call finite gradients overflown, so that whoever
/// decides needs the gradients themselves.
constexpr bool needs_gradients(const LossScalerConfig& config) noexcept {
  return config.sums ||
         (config.kind == LossScalerConfig::Kind::tf_keras && !config.fixed && config.initial < 1.0);
}

/// A step of several optimizers that share one torch GradScaler.
struct SharedStep {
  std::vector<bool> skipped;  ///< by optimizer
  LossScalerState next;
};

/// Returns a step of optimizers with a GradScaler in common: `finite` says for each whether its own
/// gradients are. Each is skipped on its own; one update() sees whether any was not finite.
SharedStep shared_step(const LossScalerState& state, const LossScalerConfig& config,
                       const std::vector<bool>& finite);

/// Parses "dynamic", "dynamic:INIT", "static:X", "none", or the scaler of a framework with options,
/// such as "torch:init=65536,growth=2" (docs/reference/loss-scale.md). Throws Error (usage).
LossScalerConfig parse_loss_scale(std::string_view text);
/// Returns the configuration; nothing if the text is not a loss scale of this version.
std::optional<LossScalerConfig> read_loss_scale(std::string_view text) noexcept;
/// Returns the text that parse_loss_scale reads, always with the number: "dynamic:65536",
/// "deepspeed:init=65536,hysteresis=1". Options with their default values are left out.
std::string loss_scale_text(const LossScalerConfig& config);
/// Returns the names of the frameworks' scalers: "torch", "tf-keras" ...
std::span<const std::string> framework_scalers();

/// Returns what a framework says when it ends the training: one line, and what to do.
struct StopText {
  std::string what, hint;
};
StopText stop_text(const LossScalerConfig& config, ScalerStop stop);

}  // namespace halfscope
