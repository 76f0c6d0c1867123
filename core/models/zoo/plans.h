// SPDX-License-Identifier: MIT
// Plans of the zoo by a text: a preset or one of the names below, and settings after it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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

/// Plans beside the presets, which the command line takes as "zoo:NAME":
///   naive_float16, naive_bfloat16  every elementary step rounds, and sums do but those of products
///   scatter_float16                fp16 but for ReduceSum; Gather sums in fp16, backward
///   mxfp8_floor                    mxfp8 whose scales are rounded down, as OCP MX 1.0 says
///   nvfp4_nearest                  nvfp4 without stochastic rounding
///   wide_logits_bfloat16           mixed_bfloat16, but one product of F41 is stored in fp32
///   live_buffers_float16           mixed_float16 whose running statistics move in skipped steps
///   tf32_products                  fp32, but products read tf32 as GPUs do by default
std::vector<std::string> zoo_plan_names();
/// Returns the plan of that name, if it is one of these.
std::optional<Plan> zoo_plan(std::string_view name);
/// The path of F41's product that wide_logits_bfloat16 stores in fp32.
inline constexpr std::string_view kWideLogits = "rusik";

/// Reads a preset or one of these names, and settings after it: "bfloat16_stagewise compute=bf16".
/// Settings, each the same as on the command line: accumulate=KIND, compute=FORMAT (of the
/// optimizer), average=FORMAT (moving averages, kept and computed), sum=FORMAT (gradients of
/// micro-batches), state=FORMAT (optimizer), reduce=RECIPE (over ranks) and scale=LOSS_SCALE.
/// Throws std::invalid_argument for anything else.
LaneChoice lane_choice(const std::string& text);

/// The narrowest float format of the weights and operators of the plan, by which starting weights
/// are moved to measure how far correct runs drift apart.
FloatFormat working_format(const LaneChoice& lane);

/// The presets that every control runs under.
std::vector<std::string> six_plans();

}  // namespace halfscope::zoo
