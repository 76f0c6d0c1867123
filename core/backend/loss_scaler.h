// SPDX-License-Identifier: MIT
// LossScaler: the loss scale as a pure state machine with one transition, for host and device.
// Rules of torch.cuda.amp.GradScaler (amp_update_scale): on a non-finite gradient the scale is
// multiplied by `backoff` and the tracker starts anew; after `growth_interval` finite steps in a
// row it is multiplied by `growth`, unless the product is not finite.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/host_device.h"

namespace halfscope {

struct LossScalerConfig {
  enum class Kind : uint8_t {
    none,      ///< scale 1, no step is ever skipped
    constant,  ///< fixed scale; non-finite steps are skipped
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

/// The state after a step whose gradients were all finite or not.
HS_HD constexpr LossScalerState next_state(LossScalerState state, const LossScalerConfig& config,
                                           bool finite) noexcept {
  if (config.kind != LossScalerConfig::Kind::dynamic) return state;
  if (!finite) return {state.scale * config.backoff, 0};
  if (state.tracker + 1 != config.growth_interval) return {state.scale, state.tracker + 1};
  const float grown = state.scale * config.growth;
  const bool representable = grown <= 3.402823466e+38f;
  return {representable ? grown : state.scale, 0};
}

/// Whether the optimizer leaves the step out.
HS_HD constexpr bool skips(const LossScalerConfig& config, bool finite) noexcept {
  return config.kind != LossScalerConfig::Kind::none && !finite;
}

/// "dynamic", "dynamic:INIT", "static:X", "none". Throws Error (usage).
LossScalerConfig parse_loss_scale(std::string_view text);
/// The form that parse_loss_scale reads, with the number always there: "dynamic:65536". What the
/// text has no place for (growth, backoff, interval) is left out.
std::string loss_scale_text(const LossScalerConfig& config);

}  // namespace halfscope
