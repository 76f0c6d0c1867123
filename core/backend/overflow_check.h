// SPDX-License-Identifier: MIT
// Tests for overflow that look at single gradients. The sum of all squares, in double, is finite
// exactly if every gradient is, and most scalers test just that. Two tests find more:
// - the fp32 sum of a tensor may overflow although all of its elements are finite (apex.fp16_utils,
//   apex without its kernels, DeepSpeed's fp16 optimizer before 0.19);
// - tf_keras tests gradients after multiplying by 1 / scale, which overflows if the scale is small.
// Bounds from the norm rule both out in nearly every step, so that no gradient has to be read.
#pragma once

#include "core/backend/backend.h"

namespace halfscope {

/// Returns whether the scaler's own test finds the step's gradients finite. `sum_sq` is the sum of
/// their squares.
bool finds_finite(const LossScalerConfig& config, const LossScalerState& state,
                  const Executable& executable, const Program& program, double sum_sq);

/// Returns whether that can ever differ from `sum_sq` being finite, given the formats and sizes of
/// the gradients.
bool can_differ(const LossScalerConfig& config, const Executable& executable);

}  // namespace halfscope
