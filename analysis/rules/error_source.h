// SPDX-License-Identifier: MIT
// Finds the operator that causes a lane's error, as far as comparisons with the reference show it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "analysis/finding.h"
#include "analysis/rules/harm.h"

namespace halfscope {

/// An operator is named if it accounts for at least this part of the harm.
inline constexpr double kExplainingPart = 0.3;

/// Returns whether a finding may say why the results of a lane are wrong. Lost updates do not
/// explain results that are wrong for equal weights, unless weights are further off than these. No
/// update explains results that are wrong before the first one.
bool may_explain(const LaneFacts& lane, const Harm& harm, const Finding& finding);

/// Returns whether one of a lane's findings already says why its results are wrong.
bool cause_is_known(const LaneFacts& lane, const Harm& harm, std::span<const Finding> findings);

/// Result of comparing one operator with the reference.
struct ErrorSource {
  int site = -1;
  int64_t step = -1;
  double before = 0.0;  ///< the largest error of what it reads
  double after = 0.0;   ///< error of its output; infinite if the output is useless
};

/// Says which format of an operator causes its error: the first narrow one of sums, operands and
/// outputs. `name` stands for what is wrong by `error`; `sums_narrow`: the operator sums in the
/// format of `site`.
std::string own_error_text(const LaneFacts& lane, const SiteInfo& site, const std::string& name,
                           double error, bool sums_narrow);

/// Returns the operator whose own arithmetic causes a large part of the harm: from the same
/// operands, its output has a larger error than rounding it explains. `after` is that error.
std::optional<ErrorSource> makes_error(const LaneFacts& lane, const Harm& harm);

/// Returns the operator at which the error grows most: its operands are nearly right, its output is
/// not.
std::optional<ErrorSource> grows_error(const LaneFacts& lane, const Harm& harm);

}  // namespace halfscope
