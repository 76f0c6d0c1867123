// SPDX-License-Identifier: MIT
// Words of harm_of() about trainings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/rules/harm.h"

namespace halfscope {

/// Returns the step of the first loss that is not finite, at the latest `compared`.
int64_t lost_from(std::span<const StepRow> rows, int64_t compared);

/// Returns "at step 3", or "from step 3 on" if there are later steps and all lose theirs as well.
std::string since_text(std::span<const StepRow> rows, int64_t step);

/// Returns the loss of a step, 0 if it is not recorded.
double loss_at(std::span<const StepRow> rows, int64_t step);

/// Returns "NaN", "infinite", or "NaN or infinite" for a loss that is not known.
const char* non_finite_word(double loss);

/// Returns "the weights moved only 12% as far as in float32".
std::string movement_text(const std::string& what, double ratio);

/// Returns one item that stands for all gradients; there is at least one.
HarmItem worst_gradient(const std::vector<HarmItem>& gradients);

}  // namespace halfscope
