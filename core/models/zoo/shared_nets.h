// SPDX-License-Identifier: MIT
// Networks that several cases use.
#pragma once

#include "core/models/zoo/net.h"

namespace halfscope::zoo {

/// Builds the intersection over union of boxes of about `size` pixels. Coordinates are in units of
/// `unit` pixels: areas in pixels exceed 65504 from a size of 256 on.
Setup box_overlap(double size, double unit = 1.0);

/// Values of a focal loss: alpha 0.25, gamma 2, with a guard of FLT_MIN in its logarithms.
struct FocalLoss {
  ValueId p = kNone, q = kNone;            ///< the sigmoid, and 1 - p
  ValueId guarded = kNone, log_q = kNone;  ///< max(q, guard) and its logarithm
  ValueId each = kNone;                    ///< the losses
};
FocalLoss focal(Net& n, ValueId scores, ValueId truth);

/// Sets the repaired network of the case with that id, for fixes that no plan can express.
void repair(std::vector<Case>& cases, const std::string& id, std::function<Setup()> repaired);

}  // namespace halfscope::zoo
