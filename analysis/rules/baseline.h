// SPDX-License-Identifier: MIT
// Facts about the training itself, whatever the format, from the losses of the reference.
#pragma once

#include <span>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// Return the losses of the first or last fifth of a run, but at least four where it has as many.
std::vector<double> first_losses(std::span<const StepRow> rows);
std::vector<double> last_losses(std::span<const StepRow> rows);
bool all_losses_finite(const std::vector<double>& losses);

/// Returns how much of the reference's progress falls in steps that a lane skipped, 0 to 1. Adam's
/// steps have equal lengths, other optimizers' are as long as the gradient; the larger share
/// counts.
double skipped_share(std::span<const StepRow> rows, std::span<const StepRow> reference);

/// Returns -1 for a run whose optimizer maximizes the loss, else 1. The functions below take it as
/// `sign` and look at the losses times this number.
double loss_sign(const RunInfo& info);

/// A loss that falls by a smaller share than this has not learned.
inline constexpr double kLearnedPart = 0.02;

/// Returns whether the loss (median of its last fifth) ends more than 2% below its start: the first
/// loss or, up to a tenth above that, the median of the first fifth. A loss that was a hundred
/// times as large on the way must end a tenth lower.
bool has_learned(std::span<const StepRow> rows, double sign = 1.0);
/// Returns whether the loss ends more than a tenth above the first one, was a hundred times as
/// large, or ends NaN or infinite.
bool has_risen(std::span<const StepRow> rows, double sign = 1.0);
/// Returns whether the loss ends far above its start, or is not finite.
bool has_diverged(std::span<const StepRow> rows, double sign = 1.0);

}  // namespace halfscope
