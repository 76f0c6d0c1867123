// SPDX-License-Identifier: MIT
// Lint: mistakes in a plan for a network and in the settings of its training. Nothing runs.
// docs/reference/plan-lint.md lists the findings.
#pragma once

#include <optional>
#include <vector>

#include "analysis/finding.h"
#include "analysis/plans/decisions.h"
#include "core/backend/loss_scaler.h"
#include "core/graph/model.h"
#include "core/plan/plan.h"
#include "core/train/trainer.h"

namespace halfscope {

/// How the network is trained. Without it, only the forward pass is checked.
struct LintedTraining {
  TrainConfig config;
  LossScalerConfig scaler;
};

/// Returns what is wrong or risky, worst first, then in execution order. Finding::rule is the name
/// of the finding; Finding::layer is empty if it concerns the whole training. Throws Error (usage)
/// if the network cannot be planned for another reason than a rule that selects nothing. `flags`
/// are those that added rules.
std::vector<Finding> lint_plan(const Model& model, const Plan& plan,
                               const std::optional<LintedTraining>& training,
                               const RuleFlags& flags = {});

}  // namespace halfscope
