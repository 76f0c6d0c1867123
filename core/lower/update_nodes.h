// SPDX-License-Identifier: MIT
// The nodes of a training step after the gradients.
#pragma once

#include <vector>

#include "core/lower/lower.h"
#include "core/lower/sites.h"

namespace halfscope {

/// Adds clipping, updates and averages of the variables at `trained`, given their gradients.
/// The new values join `targets`, and the names of what is recorded join `names`.
void add_steps(Executable& out, const Plan& plan, const TrainingSpec& spec, UpdateScalars used,
               const std::vector<size_t>& trained, std::vector<ValueId> gradients, SiteNames& names,
               std::vector<ValueId>& targets);

}  // namespace halfscope
