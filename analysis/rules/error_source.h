// SPDX-License-Identifier: MIT
// Which operator the error of a lane comes from, as far as its comparisons with the reference show.
#pragma once

#include <optional>
#include <span>

#include "analysis/finding.h"
#include "analysis/rules/harm.h"

namespace halfscope {

/// A part of the harm that an operator must account for to be named.
inline constexpr double kExplainingPart = 0.3;

/// Returns whether one of a lane's findings already says why its results are wrong.
bool cause_is_known(std::span<const Finding> findings);

/// What a comparison says of one operator.
struct ErrorSource {
  int site = -1;
  int64_t step = -1;
  double before = 0.0;  ///< the largest error of what it reads
  double after = 0.0;   ///< its result's error; infinite if it is of no use
};

/// The operator whose own arithmetic makes a large part of the harm: from the same operands its
/// result is further off than rounding it explains. `after` is that error.
std::optional<ErrorSource> makes_error(const LaneFacts& lane, const Harm& harm);

/// The operator at which the error grows most: its operands are nearly right, its result is not.
std::optional<ErrorSource> grows_error(const LaneFacts& lane, const Harm& harm);

}  // namespace halfscope
