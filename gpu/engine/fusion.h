// SPDX-License-Identifier: MIT
// Nodes that plain steps run in one launch: a core with a kernel, and nodes before or after it that
// work element by element:
//   BatchNormalization, then Add, Relu or both
//   Mul or Div by a number, a mask (Add or Where) or both, then Softmax
//   Softmax or a normalization within samples with an fp32 output, then a Cast
//   SoftmaxGrad, then the gradients of these
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/lower/lower.h"

namespace halfscope::gpu {

/// It runs where its last node is in the entry.
struct Chain {
  std::vector<NodeId> nodes{};  ///< each reads the output of the one before
  size_t core = 0;              ///< the node with the kernel
  /// Outputs of nodes before the last that others read. The rest need not be stored.
  std::vector<ValueId> kept{};

  NodeId last() const { return nodes.back(); }
  bool contains(NodeId node) const {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  }
  bool keeps(ValueId value) const {
    return std::find(kept.begin(), kept.end(), value) != kept.end();
  }
};

/// Returns the chains of an entry. Each node is in one chain at most.
std::vector<Chain> find_chains(const Executable& executable, Entry entry);

/// Returns which input Mul, Div, Add or Where works on element by element: one with as many
/// elements as the output, `preferred` if there are two. Returns nothing for other nodes.
std::optional<size_t> element_input(const Graph& graph, const Node& node,
                                    ValueId preferred = kNone);

}  // namespace halfscope::gpu
