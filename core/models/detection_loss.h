// SPDX-License-Identifier: MIT
#pragma once

#include "core/graph/model.h"

namespace halfscope {

/// Adds the loss of RetinaNet (Lin et al. 2017) for outputs of a detector: `classes` [samples,
/// anchors, labels], logits, and `codes` [samples, anchors, 4] (core/data/boxes.h). New inputs are
/// "class_targets" [samples, anchors], the label of each anchor from 1 (0: background, -1: does not
/// count), and "box_targets" [samples, anchors, 4].
///
///   focal loss     sum over counted anchors and labels of alpha_t (1 - p_t)^2 (-log p_t), with
///                  alpha 0.25 for the label and 0.75 for the others
///   smooth L1      sum over anchors with an object of d^2 / (2 beta) for |d| < beta, else |d| -
///                  beta / 2, with beta = 1/9
///
/// Their sum is divided by the number of anchors with an object, at least 1.
void add_detection_loss(Model& model, ValueId classes, ValueId codes);

}  // namespace halfscope
