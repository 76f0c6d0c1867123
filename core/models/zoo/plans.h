// SPDX-License-Identifier: MIT
// Plans of the zoo, written as text: a preset or one of the names below, then settings.
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
  // Settings of the training that are not part of the plan.
  std::optional<FloatFormat> sum_format = std::nullopt, state_format = std::nullopt;
};

/// Returns the names of the plans beside the presets. The command line takes them as "zoo:NAME":
///   naive_float16, naive_bfloat16  every elementary step rounds, as do all sums except in products
///   scatter_float16                fp16 except ReduceSum; the gradient of Gather sums in fp16
///   mxfp8_floor                    mxfp8 with scales rounded down, as OCP MX 1.0 says
///   nvfp4_nearest                  nvfp4 without stochastic rounding
///   wide_logits_bfloat16           mixed_bfloat16 with one product of F41 stored in fp32
///   live_buffers_float16           mixed_float16 that updates running statistics in skipped steps
///   tf32_products                  fp32 with products that read tf32, as GPUs do by default
///   fp8_rows_unguarded             fp8_current with one fp32 scale per row and no lower limit
std::vector<std::string> zoo_plan_names();
/// Returns the plan of that name, if it is one of these.
std::optional<Plan> zoo_plan(std::string_view name);
/// Path of F41's product that wide_logits_bfloat16 stores in fp32.
inline constexpr std::string_view kWideLogits = "rusik";

/// Reads a preset or one of these names, then settings: "bfloat16_stagewise compute=bf16".
/// Settings mean the same as on the command line: accumulate=KIND, compute=FORMAT (optimizer
/// arithmetic), average=FORMAT (storage and arithmetic of moving averages), schedule=FORMAT
/// (learning rates), sum=FORMAT (gradients of micro-batches), state=FORMAT (optimizer),
/// reduce=RECIPE (over ranks) and scale=LOSS_SCALE.
/// Throws std::invalid_argument for anything else.
LaneChoice lane_choice(const std::string& text);

/// Returns the format whose ulp moves starting weights to measure how far correct runs drift apart:
/// bf16 for plans with fewer mantissa bits than fp16, else fp16.
FloatFormat working_format(const LaneChoice& lane);

/// Returns the presets that every control runs under.
std::vector<std::string> six_plans();

}  // namespace halfscope::zoo
