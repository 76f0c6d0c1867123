// SPDX-License-Identifier: MIT
// The loss at the end of a training, on its own and compared with a training on the same batches.
// Pure functions of recorded steps.
#pragma once

#include <span>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// Losses are compared over this share of the steps, at the end of a run.
inline constexpr double kComparedShare = 0.2;
/// Losses below this share of the first one count as learned. Differences between them are not
/// divided by the small remaining loss, which may be 0.
inline constexpr double kLearnedShare = 0.01;

/// Returns the median; of an even number of values, the middle of the two middle ones. `values`
/// must not be empty.
double median(std::vector<double> values);

/// Returns the last fifth of the steps, at least one if there are any.
std::span<const StepRow> compared_steps(std::span<const StepRow> rows);

/// Returns the median loss over compared_steps(); NaN without steps or if a loss is not finite
/// there.
double end_loss(std::span<const StepRow> rows);

/// Returns |median of (loss - reference loss)| / |median of the reference loss| over
/// compared_steps(). The denominator is at least kLearnedShare of the reference's first loss.
/// Returns infinity if a loss is not finite there or the two have different numbers of steps.
double loss_gap(std::span<const StepRow> rows, std::span<const StepRow> reference);

/// Returns whether a training ends with a better loss than the reference, by end_loss(). `sign` is -1
/// if the loss is maximized, else 1.
bool is_better(std::span<const StepRow> rows, std::span<const StepRow> reference, double sign);

/// Returns how far a training falls behind the reference, in the units of loss_gap(), only because
/// it makes `steps` updates fewer: the median of the reference's loss over compared_steps()
/// compared with the median over as many steps that end `steps` earlier. 0 if there are too few
/// steps.
double delay_gap(std::span<const StepRow> reference, int64_t steps);

/// Returns the scatter of the loss over compared_steps(): the median distance from its own median,
/// in the units of loss_gap(). 0 without steps.
double loss_scatter(std::span<const StepRow> rows);

}  // namespace halfscope
