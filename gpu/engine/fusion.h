// SPDX-License-Identifier: MIT
// Nodes that plain steps run in one launch: a normalization, and what is done with its output
// element by element.
#pragma once

#include <vector>

#include "core/lower/lower.h"

namespace halfscope::gpu {

/// BatchNormalization, then Add, Relu or both. It runs where its last node is in the entry.
struct NormalizationChain {
  NodeId normalization = kNone, add = kNone, relu = kNone;
  ValueId other = kNone;  ///< that is added
  /// Whether nodes outside the chain read the output of the normalization, and the sum.
  bool keeps_normal = false, keeps_sum = false;

  NodeId last() const { return relu != kNone ? relu : add; }
  bool contains(NodeId node) const {
    return node != kNone && (node == normalization || node == add || node == relu);
  }
};

/// Returns the chains of an entry. Each node is in one chain at most.
std::vector<NormalizationChain> find_chains(const Executable& executable, Entry entry);

}  // namespace halfscope::gpu
