// SPDX-License-Identifier: MIT
// Networks that several cases use.
#pragma once

#include "core/models/zoo/net.h"

namespace halfscope::zoo {

/// Intersection over union of boxes of about `size` pixels, whose coordinates are given in units of
/// so many pixels: areas in pixels exceed 65504 from 256 on.
Setup box_overlap(double size, double unit = 1.0);

/// The focal loss of each score: alpha 0.25, gamma 2, with a guard of FLT_MIN in its logarithms.
struct FocalLoss {
  ValueId p = kNone, q = kNone;            ///< the sigmoid, and 1 - p
  ValueId guarded = kNone, log_q = kNone;  ///< max(q, guard) and its logarithm
  ValueId each = kNone;                    ///< the losses
};
FocalLoss focal(Net& n, ValueId scores, ValueId truth);

/// Says how the case with that id is repaired where no plan can do it.
void repair(std::vector<Case>& cases, const std::string& id, std::function<Setup()> repaired);

}  // namespace halfscope::zoo
