// SPDX-License-Identifier: MIT
// The presets of each framework, one source file each. For presets.cpp, which lists them all.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/policy/policy.h"

namespace halfscope {

/// A row of the table of presets. Each rule of the plan says why it is there and what would change
/// it, in the words of the framework's users (PlanRule::why, PlanRule::change).
struct Preset {
  PresetInfo info;
  // One of them, or both; the caller sets the plan's name.
  std::function<Plan()> make{};
  std::function<Plan(const Model&)> make_for{};  ///< for one network, PresetInfo::needs_network
  /// make_for looks only at nodes that the network's file names, whatever the batch and the loss.
  bool reads_file = false;
};

/// Returns whether the plan has a preset's default and begins with its rules about formats,
/// whatever their texts: a preset with rules of the user, under any name.
bool extends(const Plan& plan, const Plan& preset);

std::vector<Preset> our_presets();    ///< references, formats everywhere, recipes
std::vector<Preset> torch_presets();  ///< PyTorch's autocast
std::vector<Preset> apex_presets();   ///< apex's levels, model.half() and similar, TF32
/// Throws Error (usage) for the name of a preset that would combine options which apex refuses.
void check_apex_options(std::string_view name);
std::vector<Preset> tensorflow_presets();  ///< grappler's auto_mixed_precision
std::vector<Preset> keras_presets();       ///< tf.keras and Keras 3

}  // namespace halfscope
