// SPDX-License-Identifier: MIT
// LossScaler: the loss scale as a pure state machine with one transition function, for host and
// device. Follows torch.cuda.amp.GradScaler (amp_update_scale): a non-finite gradient multiplies
// the scale by `backoff` and resets the tracker. After `growth_interval` finite steps in a row the
// scale is multiplied by `growth`, unless the product is not finite.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/host_device.h"

namespace halfscope {

struct LossScalerConfig {
  enum class Kind : uint8_t {
    none,      ///< scale 1, no step is ever skipped
    constant,  ///< fixed scale; steps with non-finite gradients are skipped
    dynamic,   ///< torch's rules
  };
  Kind kind = Kind::none;
  float initial = 1.0f;
  float growth = 2.0f, backoff = 0.5f;
  int32_t growth_interval = 2000;
};

struct LossScalerState {
  float scale = 1.0f;
  int32_t tracker = 0;  ///< finite steps since the last change
};

HS_HD constexpr LossScalerState initial_state(const LossScalerConfig& config) noexcept {
  return {config.kind == LossScalerConfig::Kind::none ? 1.0f : config.initial, 0};
}

/// Returns the state after a step whose gradients were all `finite` or not.
HS_HD constexpr LossScalerState next_state(LossScalerState state, const LossScalerConfig& config,
                                           bool finite) noexcept {
  if (config.kind != LossScalerConfig::Kind::dynamic) return state;
  if (!finite) return {state.scale * config.backoff, 0};
  if (state.tracker + 1 != config.growth_interval) return {state.scale, state.tracker + 1};
  const float grown = state.scale * config.growth;
  const bool representable = grown <= 3.402823466e+38f;
  return {representable ? grown : state.scale, 0};
}

/// Returns whether the optimizer skips the step.
HS_HD constexpr bool skips(const LossScalerConfig& config, bool finite) noexcept {
  return config.kind != LossScalerConfig::Kind::none && !finite;
}

/// Parses "dynamic", "dynamic:INIT", "static:X" or "none". Throws Error (usage).
LossScalerConfig parse_loss_scale(std::string_view text);
/// Returns the text that parse_loss_scale reads, always with the number: "dynamic:65536". Growth,
/// backoff and interval have no place in that text and are left out.
std::string loss_scale_text(const LossScalerConfig& config);

}  // namespace halfscope
