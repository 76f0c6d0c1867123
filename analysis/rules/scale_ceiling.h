// SPDX-License-Identifier: MIT
// The loss scale from which on some gradient overflows, as far as a run shows it. A tensor that was
// recorded while all of its values were finite shows it itself. After the first overflow, gradients
// are NaN and infinity, and the full-precision lane has the magnitudes. A captured gradient that is
// infinite at some scale shows that this scale is too large.
#pragma once

#include <optional>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// Returns whether a gradient overflowed in a step before it was captured: it is infinite, and
/// every gradient before it is finite. Captured values are already rounded, so none of them counts
/// as an overflow.
bool overflowed_before_capture(const LaneFacts& lane, const RecordedStep& step, int site);
/// Returns that scale; nothing if the magnitudes of some recorded gradient in a narrow format are
/// unknown.
std::optional<double> scale_ceiling(const LaneFacts& lane);
/// Returns the static scale to advise below a ceiling: a power of two, with another one to spare.
double scale_below(double ceiling) noexcept;

}  // namespace halfscope
