// SPDX-License-Identifier: MIT
// The loss scale from which on some gradient overflows, as far as a run shows it. A tensor that was
// recorded while all of its values were finite shows it itself. After the first overflow, gradients
// are NaN and infinity, and the full-precision lane has the magnitudes.
#pragma once

#include <optional>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// Returns that scale; nothing if the magnitudes of some recorded gradient in a narrow format are
/// unknown.
std::optional<double> scale_ceiling(const LaneFacts& lane);
/// Returns the static scale to advise below a ceiling: a power of two, with another one to spare.
double scale_below(double ceiling) noexcept;

}  // namespace halfscope
