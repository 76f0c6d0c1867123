// SPDX-License-Identifier: MIT
// How the loss of a training ends, by itself and beside a training that saw the same batches. Pure
// functions of recorded steps.
#pragma once

#include <span>
#include <vector>

#include "core/observe/recording.h"

namespace halfscope {

/// The part of a run, from its end, over which losses are compared.
inline constexpr double kComparedShare = 0.2;
/// Losses below this share of the first one are as good as learned: differences between them are
/// not measured against the little that is left, which may be 0.
inline constexpr double kLearnedShare = 0.01;

/// Of an even number of values: half way between the two in the middle. There must be one.
double median(std::vector<double> values);

/// The last fifth of the steps, at least one where there is one.
std::span<const StepRow> compared_steps(std::span<const StepRow> rows);

/// Median of the loss over compared_steps(); NaN without steps or if a loss there is not finite.
double end_loss(std::span<const StepRow> rows);

/// |median over compared_steps() of (loss - reference loss)| / |median of the reference loss
/// there|, or kLearnedShare of the reference's first loss if that is more. Infinity if a loss of
/// either is not finite there or one of them ended earlier than the other.
double loss_gap(std::span<const StepRow> rows, std::span<const StepRow> reference);

/// How far a training is behind the reference, in the units of loss_gap(), if it does nothing else
/// than make `steps` updates fewer: the median of the reference's loss over compared_steps() beside
/// the one over as many steps that end so much earlier. 0 if there are not as many.
double delay_gap(std::span<const StepRow> reference, int64_t steps);

/// How much the loss jumps about over compared_steps(): the median distance from its own median, in
/// the units of loss_gap(). 0 without steps.
double loss_scatter(std::span<const StepRow> rows);

}  // namespace halfscope
