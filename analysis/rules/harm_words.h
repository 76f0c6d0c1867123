// SPDX-License-Identifier: MIT
// Words of harm_of() about trainings.
#pragma once

#include <string>
#include <vector>

#include "analysis/rules/harm.h"

namespace halfscope {

/// Returns "NaN", "infinite", or "NaN or infinite" for a loss that is not known.
const char* non_finite_word(double loss);

/// Returns "the weights moved only 12% as far as in float32".
std::string movement_text(const std::string& what, double ratio);

/// Returns one item that stands for all gradients; there is at least one.
HarmItem worst_gradient(const std::vector<HarmItem>& gradients);

}  // namespace halfscope
