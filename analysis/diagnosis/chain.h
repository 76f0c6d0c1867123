// SPDX-License-Identifier: MIT
// The way of an error through the forward graph.
#pragma once

#include <vector>

#include "analysis/diagnosis/diagnosis.h"

namespace halfscope {

/// What a tensor of the lane shows, beside the reference.
Hop hop_at(const LaneFacts& lane, int site);

/// From the result of `node` to an output or the loss, along the tensors that are worst.
std::vector<Hop> chain_from(const LaneFacts& lane, int node);

/// The first result of a root, or below one, in which anybody would see that something is wrong: it
/// is not finite, else it is more than a tenth off; -1 if there is none.
int first_symptom_site(const LaneFacts& lane, const std::vector<int>& roots);

/// The first result with a NaN that the reference does not have; -1 if there is none.
int first_nan_site(const LaneFacts& lane);

}  // namespace halfscope
