// SPDX-License-Identifier: MIT
// Settings of TensorFlow's automatic mixed precision: those of a plan's name, changed by
// TensorFlow's environment variables.
#pragma once

#include <string>

#include "core/policy/grappler/lists.h"

namespace halfscope {

/// Returns whether the plan is "tf-amp" or "tf-amp-bf16".
bool is_tf_amp(const std::string& plan);
/// Returns the settings of one of these. Throws Error (usage) for another plan, and for a variable
/// with a value that TensorFlow refuses.
grappler::AmpOptions amp_options(const std::string& plan);

}  // namespace halfscope
