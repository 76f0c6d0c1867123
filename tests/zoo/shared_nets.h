// SPDX-License-Identifier: MIT
// Networks that several cases use.
#pragma once

#include "tests/zoo/net.h"

namespace halfscope::zoo {

/// Intersection over union of boxes of about `size` pixels: areas exceed 65504 from 256 on.
Setup box_overlap(double size);

/// The focal loss of each score: alpha 0.25, gamma 2, with a guard of FLT_MIN in its logarithms.
ValueId focal(Net& n, ValueId scores, ValueId truth);

}  // namespace halfscope::zoo
