// SPDX-License-Identifier: MIT
// The loss scale from which on some gradient overflows, as far as a run can tell. A tensor that
// was recorded while all of its values were finite tells it itself; behind the first overflow
// gradients are infinities and NaNs, and there the full-precision lane has the magnitudes.
#pragma once

#include <optional>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// Nothing if the magnitudes of a recorded gradient of a narrow format are known from nowhere.
std::optional<double> scale_ceiling(const LaneFacts& lane);
/// The static scale to advise below a ceiling: a power of two with another one of room.
double scale_below(double ceiling) noexcept;

}  // namespace halfscope
