// SPDX-License-Identifier: MIT
// Named plans: presets, made from the autocast classes of the operators, and JSON files
// (docs/reference/plans.md, "Plan JSON").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/model.h"
#include "core/plan/plan.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// A plan by name, for lists.
struct PresetInfo {
  std::string name;
  std::string group;    ///< whose decisions these are: "PyTorch", "Keras" ...
  std::string summary;  ///< one line without a full stop
  /// Decides node by node, so its plan is made for one network.
  bool needs_network = false;
  /// Loss scale that the framework uses with it where a format needs one, as --loss-scale takes it.
  std::string scaler = "dynamic";
};

/// Returns all presets, by group.
const std::vector<PresetInfo>& presets();

/// Returns the names of all presets that are the same for every network: "float32", "float64",
/// "mixed_float16", "mixed_bfloat16", "float16", "bfloat16", the last two with "_stagewise", and
/// recipes of fp8 and fp4 training (docs/reference/plans.md, "Presets").
std::vector<std::string> preset_names();
std::optional<Plan> preset_plan(std::string_view name);

/// Returns whether the name is that of a preset that is made for one network.
bool needs_network(std::string_view name);
/// Returns the loss scale that belongs to the plan of this name: PresetInfo::scaler, and "dynamic"
/// for plans that are not presets.
std::string usual_scaler(std::string_view name);
/// Returns whether the preset's plan for a network can differ from its plan for any network.
bool depends_on_network(std::string_view name);
/// Returns whether it depends only on what the network's file says about its nodes, not on the
/// batch or the loss.
bool depends_on_file(std::string_view name);
/// Returns any preset's plan for this network, with its loss if it trains. Throws Error (usage) if
/// the preset does not apply to it.
std::optional<Plan> preset_plan(std::string_view name, const Model& network);

/// Loads a preset, or else a JSON file. Throws Error (usage) that lists the presets.
Plan load_plan(const std::string& name_or_file);

/// Parses a plan. Throws Error (usage) naming the key that is unknown, missing or has a bad value.
Plan plan_from_json(std::string_view text);
/// Returns the plan as JSON, indented by two spaces. The same plan always gives the same text.
std::string plan_to_json(const Plan& plan);

/// Returns an edit as a JSON array: [{"kind": "operator_fp32", "path": "conv2"}, ...]. Fields that
/// are 0 or empty are omitted.
std::string edit_to_json(const PlanEdit& edit);
/// Parses an edit; returns nothing if the text is not a valid one.
std::optional<PlanEdit> edit_from_json(std::string_view text);

/// Splits "float32,cuda:mixed_float16,{...}" into its items. Commas inside a plan's JSON do not
/// split.
std::vector<std::string> split_lanes(std::string_view list);

/// Return a hint for a text that is not a valid plan, format, scale or accumulation.
std::string plan_hint(const std::string& text);
std::string format_hint(const std::string& text);
std::string scale_hint(const std::string& text);
std::string accumulation_hint(const std::string& text);

/// Returns whether any format in the plan has fewer than 8 exponent bits, so that gradients can
/// underflow and loss scaling makes sense. Operands with scales of their own do not count.
bool needs_loss_scaling(const Plan& plan);

}  // namespace halfscope
