// SPDX-License-Identifier: MIT
// Plans of the zoo by a text: a preset or one of the names below, and settings after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/train/lane.h"

namespace halfscope::zoo {

struct LaneChoice {
  Plan plan;
  LossScalerConfig scaler;
  // Of the training, not of the plan.
  std::optional<FloatFormat> sum_format = std::nullopt, state_format = std::nullopt;
};

/// "bfloat16_stagewise accumulate=format". Names beside the presets:
///   float16_stagewise, bfloat16_stagewise  every elementary step rounds; weights in the format
///   naive_float16, naive_bfloat16          the same, sums too, but those of products
///   scatter_float16                        fp16 but for ReduceSum; Gather sums in fp16, backward
///   mxfp8_floor                            mxfp8 whose scales are rounded down, as OCP MX 1.0 says
///   nvfp4_nearest                          nvfp4 without stochastic rounding
/// Settings, each the same as on the command line: accumulate=KIND, compute=FORMAT (of the
/// optimizer), average=FORMAT (moving averages, kept and computed), sum=FORMAT (gradients of
/// micro-batches), state=FORMAT (optimizer), scale=LOSS_SCALE, buffers=always, and
/// wide_result=PATH (that node writes fp32). Throws std::invalid_argument for anything else.
LaneChoice lane_choice(const std::string& text);

/// The narrowest float format of the weights and operators of the plan, by which starting weights
/// are moved to measure how far correct runs drift apart.
FloatFormat working_format(const LaneChoice& lane);

/// The presets that every control runs under.
std::vector<std::string> six_plans();

}  // namespace halfscope::zoo
