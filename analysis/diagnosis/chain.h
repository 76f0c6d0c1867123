// SPDX-License-Identifier: MIT
// The path of an error through the forward graph.
#pragma once

#include <vector>

#include "analysis/diagnosis/diagnosis.h"

namespace halfscope {

/// Returns how a tensor of the lane differs from the reference.
Hop hop_at(const LaneFacts& lane, int site);

/// Returns the path from the output of `node` to a network output or the loss, along the worst
/// tensors.
std::vector<Hop> chain_from(const LaneFacts& lane, int node);

/// Returns the first visibly wrong output of a root or downstream of one: it is not finite, else
/// its error is more than a tenth. -1 if there is none.
int first_symptom_site(const LaneFacts& lane, const std::vector<int>& roots);

/// Returns the first output with a NaN that the reference does not have; -1 if there is none.
int first_nan_site(const LaneFacts& lane);

}  // namespace halfscope
