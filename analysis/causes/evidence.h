// SPDX-License-Identifier: MIT
// What a recorded lane shows of its nodes: which make an error themselves, by which mechanism, and
// which changes of the plan would take that error away. Pure functions of a run; nothing is tried
// here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/harm.h"
#include "core/plan/plan_edit.h"

namespace halfscope {

/// A node that makes an error by itself.
struct Suspect {
  int node = -1;  ///< LaneFacts::nodes()
  int site = -1;  ///< where it shows
  Mechanism mechanism = Mechanism::unknown;
  /// How much of the tensor it spoils, from 0 to 1; what is not finite counts 1.
  double weight = 0.0;
  std::string text{};  ///< "conv2 overflows fp16: 22% of its results are larger than 65504"
};

/// Returns what the node does wrong in this run; nothing where its results are as exact as its
/// format allows.
std::optional<Suspect> examine(const LaneFacts& lane, int node);

/// Whether a node, or a step of it, reads a constant that the format it is read in makes 0 or
/// infinite.
bool reads_bad_constant(const LaneFacts& lane, const std::string& path);

/// Whether the results of a node are integers in the reference.
bool counts(const LaneFacts& lane, int node);

/// The nodes of the forward pass whose own arithmetic spoils numbers, those first with which the
/// trouble starts: no other suspect is above them.
std::vector<Suspect> forward_suspects(const LaneFacts& lane);

/// The node whose scaled operands suffer most from their scales: the first with a scale of no
/// value, else the one that loses the largest share.
std::optional<Suspect> scaled_suspect(const LaneFacts& lane);

/// The first result below the node that is 0 in places where the reference's is not, although
/// nothing was flushed there: a difference was rounded away before. -1 if there is none.
int cancelled_site(const LaneFacts& lane, int node);

/// Nodes whose gradients overflow or become 0 although their forward pass is right.
std::vector<Suspect> backward_suspects(const LaneFacts& lane);

/// The node, for a node of the network's input those that read it: what a plan has rules for.
std::vector<int> planned_nodes(const LaneFacts& lane, int node);

}  // namespace halfscope
