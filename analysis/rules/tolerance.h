// SPDX-License-Identifier: MIT
// What the parts of harm_of() share: the formula of every tolerance, and its words.
#pragma once

#include <string>

namespace halfscope {

/// max(floor, min(kHarmFactor x spread, cap)); the floor where no spread was measured.
double tolerance_of(double floor, double spread, double cap);

/// "54% off (1.6% is allowed)".
std::string off_text(double error, double tolerance);

}  // namespace halfscope
