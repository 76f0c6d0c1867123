// SPDX-License-Identifier: MIT
// `halfscope plan lint`: mistakes in a plan for a network and its training, found without a run.
#pragma once

#include <string>

#include "cli/args/settings.h"

namespace halfscope {

/// Prints what is wrong or risky about training (or running, without a loss) the settings' network
/// under the plan. The loss scale is that of the settings, else the one `train` would use. Returns
/// 1 if there is an error, else 0. Throws Error (usage).
int plan_lint(const std::string& plan, const Settings& settings);

}  // namespace halfscope
