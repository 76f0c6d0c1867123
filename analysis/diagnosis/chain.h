// SPDX-License-Identifier: MIT
// The path of an error through the forward graph.
#pragma once

#include <vector>

#include "analysis/diagnosis/diagnosis.h"

namespace halfscope {

/// Returns the recorded steps in which values stop being finite at one of these nodes: those that
/// rules count. In later ones, tensors also are NaN because the weights are. Empty if values
/// do not stop being finite there. Also empty if the rules counted overflows, because such a share
/// covers the whole run.
std::vector<int64_t> steps_of_cause(const LaneFacts& lane, const std::vector<int>& nodes);

/// Returns how a tensor of the lane differs from the reference. NaN and infinities count in these
/// steps alone, if there are any.
Hop hop_at(const LaneFacts& lane, int site, const std::vector<int64_t>& steps);

/// Returns the path from the output of `node` to a network output or the loss, along the worst
/// tensors.
std::vector<Hop> chain_from(const LaneFacts& lane, int node,
                            const std::vector<int64_t>& steps = {});

/// Returns the first visibly wrong output of a root or downstream of one: the first that is not
/// finite, in the first step with one, else the first with an error of more than a tenth. -1 if
/// there is none.
int first_symptom_site(const LaneFacts& lane, const std::vector<int>& roots);

/// Returns the output that is the first to have a NaN, in the first step with one that the
/// reference does not have; -1 if there is none.
int first_nan_site(const LaneFacts& lane);

}  // namespace halfscope
