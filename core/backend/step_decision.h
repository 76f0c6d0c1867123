// SPDX-License-Identifier: MIT
// Turns the norm of a step's gradients into decisions, for host and device: whether the step is
// skipped, what its update reads, and the state in which the next step begins.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/backend/loss_scaler.h"
#include "core/host_device.h"

namespace halfscope {

/// Rules that are the same in every step.
struct StepRules {
  LossScalerConfig scaler;
  double clip_norm = 0.0;  ///< largest 2-norm of all unscaled gradients; 0: no clipping
  /// A mistake of user code: the norm is clipped before the gradients are unscaled.
  bool clips_scaled = false;
};

/// State that a lane carries from step to step besides its variables.
struct StepState {
  LossScalerState scaler;
  int64_t updates = 0;  ///< optimizer steps done so far, for scalar_value()
};

struct StepDecision {
  bool skipped = false;
  // Inputs of the update, if there is one.
  float inverse_scale = 1.0f;  ///< see unscale_factor(): the scale itself for Keras 3
  double clip = 1.0;
  StepState next{};
};

/// Returns the 2-norm of the unscaled gradients; `sum_sq` is the sum of squares of the scaled ones.
HS_HD inline double unscaled_norm(double sum_sq, const LossScalerState& scaler) noexcept {
  return std::sqrt(sum_sq) / scaler.scale;
}

/// A step as a loss scaler decides it.
struct ScaledStep {
  bool skipped = false;
  StepState next{};
};

/// Returns whether the step is skipped and the state of the next one. `finite`: whether the
/// gradients are finite by the scaler's own test. After a stop, every step is skipped.
HS_HD inline ScaledStep scaled_step(const StepState& state, const LossScalerConfig& scaler,
                                    bool finite) noexcept {
  using Kind = LossScalerConfig::Kind;
  // The inverse is infinite if the scale has collapsed below 2^-128. Frameworks go on, and 0 * inf
  // turns every weight into NaN; our own scalers skip the step.
  const bool guarded = scaler.kind == Kind::dynamic || scaler.kind == Kind::constant;
  const double factor = guarded ? static_cast<double>(unscale_factor(scaler, state.scaler)) : 1.0;
  ScaledStep step;
  step.next.scaler = next_state(state.scaler, scaler, finite);
  const bool stops = step.next.scaler.stop != ScalerStop::none;
  step.skipped = stops || skips(scaler, finite && factor - factor == 0.0);
  const bool counts = !step.skipped || (!stops && counts_skipped(scaler));
  step.next.updates = state.updates + (counts ? 1 : 0);
  return step;
}

/// Decides whether the step is skipped and how its update and the next step run.
HS_HD inline StepDecision decide(const StepState& state, const StepRules& rules, double sum_sq,
                                 bool finite) noexcept {
  const ScaledStep step = scaled_step(state, rules.scaler, finite);
  StepDecision decision;
  decision.inverse_scale = unscale_factor(rules.scaler, state.scaler);
  decision.skipped = step.skipped;
  decision.next = step.next;
  if (rules.clip_norm > 0.0) {  // torch.nn.utils.clip_grad_norm_
    constexpr double kEpsilon = 1e-6;
    const double norm =
        rules.clips_scaled ? std::sqrt(sum_sq) : unscaled_norm(sum_sq, state.scaler);
    const double factor = rules.clip_norm / (norm + kEpsilon);
    decision.clip = factor < 1.0 ? factor : 1.0;
  }
  return decision;
}

HS_HD inline StepDecision decide(const StepState& state, const StepRules& rules,
                                 double sum_sq) noexcept {
  return decide(state, rules, sum_sq, sum_sq - sum_sq == 0.0);
}

}  // namespace halfscope
