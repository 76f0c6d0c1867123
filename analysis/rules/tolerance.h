// SPDX-License-Identifier: MIT
// Shared by the parts of harm_of(): the formula of every tolerance, and its words.
#pragma once

#include <string>

namespace halfscope {

/// Returns max(floor, min(kHarmFactor x spread, cap)), or the floor where no spread was measured.
double tolerance_of(double floor, double spread, double cap);

/// Returns "differs from float32's by 54% (1.6% is allowed)".
std::string difference_text(double error, double tolerance);

}  // namespace halfscope
