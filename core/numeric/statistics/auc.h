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
double area_under_curve(std::span<const float> scores, std::span<const uint8_t> belongs);

/// Returns the mean area over the classes, each against all others. A class that no sample has, or
/// that every sample has, does not count; NaN if none counts. `scores` are [samples, classes]; rows
/// that are not probabilities go through a softmax first. A single score per sample belongs to label
/// 1.
double mean_area_under_curve(std::span<const float> scores, int64_t classes,
                             std::span<const int32_t> labels);

}  // namespace halfscope
