// SPDX-License-Identifier: MIT
// Causes that are worth a line of their own below the verdict.
#pragma once

#include <string>
#include <vector>

#include "analysis/report/report.h"

namespace halfscope {

/// Returns whether a text already makes this claim. A claim ends at its first colon; figures and
/// other details follow it.
bool says(const std::string& text, std::string claim);

/// Returns the findings about the lane in trouble that the verdict does not mention: the first of
/// each rule and of each layer, because eight layers with the same trouble are one cause, and a
/// layer with two troubles usually has one. Harm is an effect, so it is left out.
std::vector<const Finding*> further_causes(const Report& report);

}  // namespace halfscope
