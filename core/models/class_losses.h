// SPDX-License-Identifier: MIT
// Cross-entropy with smoothed labels and weights of classes, as PyTorch's CrossEntropyLoss.
#pragma once

#include <vector>

#include "core/graph/model.h"

namespace halfscope {

/// Sets model.loss to the cross-entropy of model.logits [n, c] with model.labels [n]. Over rows
/// with a label y >= 0, with smoothing s and weights w of the classes (1 without), it is
///   (1 - s) sum(-w_y log p_y) / sum(w_y) + s / c sum(sum over classes k of -w_k log p_k) /
///   sum(w_y)
/// `weights` is empty or has a number for each class.
void add_class_losses(Model& model, double smoothing, const std::vector<float>& weights);

}  // namespace halfscope
