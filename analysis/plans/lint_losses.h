// SPDX-License-Identifier: MIT
// The part of lint about losses that a network computes itself.
#pragma once

#include <vector>

#include "analysis/finding.h"
#include "analysis/plans/decisions.h"
#include "core/graph/model.h"

namespace halfscope::lint {

/// Adds findings about binary cross-entropies of probabilities: those that PyTorch's autocast
/// refuses, and those that read rounded probabilities. One that PyTorch computes from logits is
/// fine, however the file writes it.
void check_binary_cross_entropy(const Model& model, const ExplainedPlan& explained,
                                std::vector<Finding>& findings);

}  // namespace halfscope::lint
