// SPDX-License-Identifier: MIT
// Advice that is no change of a plan, and the words where there is none.
#pragma once

#include <string>
#include <vector>

#include "analysis/report/report.h"

namespace halfscope {

/// Returns the advice of a lane's findings that a plan cannot express, or "".
std::string other_advice(const std::vector<Finding>& findings, int lane);

/// Returns what to do about a lane if no change of its plan is known to help; "" if it needs
/// nothing.
std::string advice_beside_plans(const std::vector<Finding>& findings, int lane);

/// Returns the line that stands for advice on the plan. `untried`: a search may still find a fix.
std::string no_advice_text(const Report& report, int lane, bool untried);

}  // namespace halfscope
