// SPDX-License-Identifier: MIT
// Where the numbers that an operator reads were rounded to fewer bits than fp32's.
#pragma once

#include <string>
#include <vector>

#include "analysis/rules/lane_facts.h"

namespace halfscope {

/// Returns whether the node's result is rounded to fewer bits than fp32's.
bool is_rounded(const LaneFacts& lane, int node);

/// Returns whether errors of what the operator reads are errors of its result: of the same size, or
/// relative to it.
bool hands_on(const std::string& op);

/// Returns the nodes whose arithmetic rounds what a node reads, as far as operators hand on errors:
/// the squares, means and differences of a variance.
std::vector<int> rounded_before(const LaneFacts& lane, int node);

}  // namespace halfscope
