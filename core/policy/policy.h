// SPDX-License-Identifier: MIT
// Plans that people name: presets, made from the autocast classes of the operators, and JSON files
// (docs/contracts.md, "Plan JSON").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// "float32", "float64", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16", these two with
/// "_stagewise", and recipes of fp8 and fp4 training (docs/contracts.md, "Presets").
std::vector<std::string> preset_names();
std::optional<Plan> preset_plan(std::string_view name);

/// A preset, or else a JSON file. Throws Error (usage) that lists the presets.
Plan load_plan(const std::string& name_or_file);

/// Throws Error (usage) naming the key that is unknown, missing or has a bad value.
Plan plan_from_json(std::string_view text);
/// Stable: the same plan gives the same text, two-space indented.
std::string plan_to_json(const Plan& plan);

/// An edit as a JSON array: [{"kind": "operator_fp32", "path": "conv2"}, ...]. What is 0 or empty
/// is left out.
std::string edit_to_json(const PlanEdit& edit);
/// The way back; nothing if the text is no such array.
std::optional<PlanEdit> edit_from_json(std::string_view text);

/// The items of "float32,cuda:mixed_float16,{...}": commas inside a plan's JSON separate nothing.
std::vector<std::string> split_lanes(std::string_view list);

/// Return a hint for a text that is not a valid format, scale or accumulation.
std::string format_hint(const std::string& text);
std::string scale_hint(const std::string& text);
std::string accumulation_hint(const std::string& text);

/// True if any format in the plan has fewer than 8 exponent bits, so that gradients can
/// underflow and loss scaling makes sense. Operands with scales of their own do not count.
bool needs_loss_scaling(const Plan& plan);

}  // namespace halfscope
