// SPDX-License-Identifier: MIT
// AUC: the area under the receiver operating characteristic, which is the probability that a sample
// of the class has a higher score than one of another class (Mann and Whitney 1947; ties count
// half).
#pragma once

#include <cstdint>
#include <span>

namespace halfscope {

/// Returns the area for scores of one class, given which samples belong to it. NaN if all do or
/// none does, or if a score is NaN.
double area_under_curve(std::span<const double> scores, std::span<const uint8_t> belongs);

/// Kinds of class scores: a softmax has made probabilities of logits.
enum class ScoreKind : uint8_t { logits, probabilities };

/// Returns the kind that rows of scores seem to have, [samples, classes]: probabilities if every
/// row consists of numbers from 0 to 1 whose sum is 1, with room for rounding to 8 bits.
ScoreKind score_kind(std::span<const float> scores, int64_t classes);

/// Returns the mean area over the classes, each against all others. A class that no sample has, or
/// that every sample has, does not count; NaN if none counts. `scores` are [samples, classes].
/// Logits are ordered by the log-odds of their softmax, z_c - log(sum of exp(z_j) over j != c),
/// which order samples as the exact probabilities do. A single score per sample belongs to label 1.
/// Samples with a negative label do not count.
double mean_area_under_curve(std::span<const float> scores, int64_t classes,
                             std::span<const int32_t> labels, ScoreKind kind);

/// Returns the mean area over outputs that have targets of 0 and 1 each; NaN if none has both.
/// `scores` and `targets` are [samples, outputs].
double mean_area_of_outputs(std::span<const float> scores, int64_t outputs,
                            std::span<const int32_t> targets);

}  // namespace halfscope
