// SPDX-License-Identifier: MIT
// What the losses of the reference say of the training itself, whatever the format.
#pragma once

#include <span>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// Losses of the first and of the last fifth of a run, at least four steps where it has them.
std::vector<double> first_losses(std::span<const StepRow> rows);
std::vector<double> last_losses(std::span<const StepRow> rows);
bool all_losses_finite(const std::vector<double>& losses);

/// How much of the reference's way lies in steps that a lane skipped, 0 to 1. Adam's steps are of
/// one length, others are as long as the gradient; the larger share of both counts.
double skipped_share(std::span<const StepRow> rows, std::span<const StepRow> reference);

/// Whether the loss ends, median of its last fifth, below where it began by more than 2 %.
bool has_learned(std::span<const StepRow> rows);
/// Whether it ends far above where it began, or is not finite.
bool has_diverged(std::span<const StepRow> rows);

}  // namespace halfscope
