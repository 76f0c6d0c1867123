// SPDX-License-Identifier: MIT
// Shared by the parts of harm_of(): the formula of every tolerance, and its words.
#pragma once

#include <cstdint>
#include <string>

namespace halfscope {

/// Returns max(floor, min(kHarmFactor x spread, cap)), or the floor where no spread was measured.
double tolerance_of(double floor, double spread, double cap);

/// Returns "differs from float32's by 54% (1.6% is allowed)".
std::string difference_text(double error, double tolerance);

/// Returns how far from 1 the ratio of a variable's lengths may be in two trainings that took
/// different paths, with a chance of one in a thousand. The fewer numbers it has, the likelier it
/// is that one of them hardly moved: less than r times as far with probability r^n.
double chance_of_length(int64_t numbers, bool shorter);

}  // namespace halfscope
