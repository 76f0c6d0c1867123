// SPDX-License-Identifier: MIT
// Sums of products in the order of a summation tree, with the arithmetic of GPU kernels. In a tree
// of additions only, a summand that meets a sum is a fused multiply-add in fp32. If two summands
// meet, the tree does not show which is rounded first; the caller decides. A node with three or
// more children is a block of a tensor core. Then every node with summands is a block, including
// short blocks at the end, and nodes that only add sums are additions in fp32.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/numeric/sum_orders/summation_tree.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

class TreeSum {
 public:
  /// Returns nothing for a tree that cannot be computed: blocks without `core`, with more products
  /// than the core's, or of several sums. `core` is the tensor core that may compute the tree's
  /// blocks.
  static std::optional<TreeSum> of(SummationTree tree,
                                   const std::optional<TensorCoreProfile>& core);

  /// Returns whether it matters which of two summands is rounded first.
  bool has_pairs() const noexcept { return !core_; }
  /// Returns the same sum with the later one of two summands rounded first, as in descending
  /// chains.
  TreeSum later_first() const;

  /// Returns the sum of a[k] * b[k] over the summands of the tree.
  float operator()(std::span<const float> a, std::span<const float> b) const;

  const SummationTree& tree() const noexcept { return tree_; }

 private:
  TreeSum() = default;

  SummationTree tree_;
  std::optional<TensorCoreProfile> core_;  ///< set for a tree with blocks
  std::vector<int> order_;                 ///< its inner nodes, children before parents
  bool later_first_ = false;
};

}  // namespace halfscope
