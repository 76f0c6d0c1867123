// SPDX-License-Identifier: MIT
// Costs of built-in networks for the tests.
#pragma once

#include "analysis/cost/cost.h"
#include "core/models/models.h"
#include "core/policy/policy.h"

namespace halfscope {

inline PlanCost cost_of_training(const std::string& model, const std::string& plan, int64_t batch,
                                 const Shape& sample, int64_t classes,
                                 const std::string& optimizer = "sgd") {
  return {plan, lower(build_model(model, batch, sample, classes), preset_plan(plan).value(),
                      {parse_optimizer(optimizer)})};
}

}  // namespace halfscope
