// SPDX-License-Identifier: MIT
// Evidence from a recorded lane about its nodes: which of them cause an error, by which mechanism,
// and which changes of the plan would remove it. Pure functions of a run; nothing is tried here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/harm.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// A node whose own arithmetic causes an error.
struct Suspect {
  int node = -1;  ///< LaneFacts::nodes()
  int site = -1;  ///< where the error shows
  Mechanism mechanism = Mechanism::unknown;
  /// How much of the tensor it corrupts, from 0 to 1; NaN and infinity count 1.
  double weight = 0.0;
  std::string text{};  ///< "conv2 overflows fp16: 22% of its outputs are larger than 65504"
};

/// Returns what the node does wrong in this run; nothing if its outputs are as exact as its format
/// allows.
std::optional<Suspect> examine(const LaneFacts& lane, int node);

/// Returns whether a node, or a primitive that it expands to, reads a constant that becomes 0 or
/// infinite in the format it is read in.
bool reads_bad_constant(const LaneFacts& lane, const std::string& path);

/// Returns whether the outputs of a node are integers in the reference.
bool counts(const LaneFacts& lane, int node);

/// Returns the forward nodes whose own arithmetic corrupts values. The first ones are where the
/// trouble starts: no other suspect is upstream of them.
std::vector<Suspect> forward_suspects(const LaneFacts& lane);

/// Returns the node whose scaled operands suffer most from their scales: the first with an invalid
/// scale, else the one that loses the largest share.
std::optional<Suspect> scaled_suspect(const LaneFacts& lane);

/// Returns the first output downstream of the node that is 0 where the reference's is not, although
/// nothing was flushed there: an earlier rounding removed a difference. Only steps with equal
/// weights count. -1 if there is none.
int cancelled_site(const LaneFacts& lane, int node);

/// Returns the nodes whose gradients overflow or become 0 although their forward pass is right.
std::vector<Suspect> backward_suspects(const LaneFacts& lane);

/// Returns the nodes that a plan has rules for: the node itself, or the readers of the network's
/// input.
std::vector<int> planned_nodes(const LaneFacts& lane, int node);

}  // namespace halfscope
