// SPDX-License-Identifier: MIT
// Finds the operator that causes a lane's error, as far as comparisons with the reference show it.
#pragma once

#include <optional>
#include <span>

#include "analysis/finding.h"
#include "analysis/rules/harm.h"

namespace halfscope {

/// An operator is named if it accounts for at least this part of the harm.
inline constexpr double kExplainingPart = 0.3;

/// Returns whether one of a lane's findings already says why its results are wrong.
bool cause_is_known(std::span<const Finding> findings);

/// Result of comparing one operator with the reference.
struct ErrorSource {
  int site = -1;
  int64_t step = -1;
  double before = 0.0;  ///< the largest error of what it reads
  double after = 0.0;   ///< error of its output; infinite if the output is useless
};

/// Returns the operator whose own arithmetic causes a large part of the harm: from the same
/// operands, its output has a larger error than rounding it explains. `after` is that error.
std::optional<ErrorSource> makes_error(const LaneFacts& lane, const Harm& harm);

/// Returns the operator at which the error grows most: its operands are nearly right, its output is
/// not.
std::optional<ErrorSource> grows_error(const LaneFacts& lane, const Harm& harm);

}  // namespace halfscope
