// SPDX-License-Identifier: MIT
// Decisions that a device makes on its own between the gradients and the update of a step.
#pragma once

#include <cstdint>

#include "core/backend/step_decision.h"
#include "core/lower/step_scalar.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Writes a scalar, rounded to the format of its destination; does nothing without memory.
HS_HD inline void put_scalar(const Destination& to, double value) {
  if (to.memory != nullptr) to.round(0, static_cast<float>(value));
}

/// One item: a scalar from the host. It is an argument of the launch, which needs no copy.
struct StoreScalar {
  Destination to;
  double value;

  HS_HD void operator()(int64_t) const { put_scalar(to, value); }
};

/// One item.
struct BeginStep {
  const StepState* state;
  Destination loss_scale;
  double micro_batches;

  HS_HD void operator()(int64_t) const {
    // The gradients of the micro-batches, each a mean over its samples, add up to that of the whole
    // batch.
    put_scalar(loss_scale, state->scaler.scale / micro_batches);
  }
};

/// Outcome of a decision, as reported to the host.
struct StepNews {
  double sum_sq;
  StepState next;
  int32_t skipped;
};

/// A scalar that an update reads, and where it is stored.
struct StepDestination {
  StepScalar scalar;
  Destination to;
};

/// One item: sets the parameter of a scalar, for this update and those after it.
struct SetParameter {
  StepDestination* scalar;
  double parameter;

  HS_HD void operator()(int64_t) const { scalar->scalar.parameter = parameter; }
};

/// One item: calls decide() and stores everything that depends on it.
struct DecideStep {
  const double* sum_sq;
  StepRules rules;
  StepState* state;
  Destination inverse_scale, clip;
  const StepDestination* scalars;
  int64_t scalar_count;
  int32_t* updates;  ///< whether the update runs
  StepNews* news;

  HS_HD void operator()(int64_t) const {
    const StepDecision decision = decide(*state, rules, *sum_sq);
    *state = decision.next;
    *updates = decision.skipped ? 0 : 1;
    *news = {*sum_sq, decision.next, decision.skipped ? 1 : 0};
    if (decision.skipped) return;
    put_scalar(inverse_scale, static_cast<double>(decision.inverse_scale));
    put_scalar(clip, decision.clip);
    for (int64_t i = 0; i < scalar_count; ++i) {
      put_scalar(scalars[i].to, scalar_value(scalars[i].scalar, decision.next.updates));
    }
  }
};

/// One item.
struct KeepScalar {
  In<float> from;
  double* to;

  HS_HD void operator()(int64_t) const { *to = static_cast<double>(*from); }
};

}  // namespace halfscope::gpu
