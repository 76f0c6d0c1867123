// SPDX-License-Identifier: MIT
// Sums of products in the order of a summation tree, with the arithmetic of GPU kernels. In a tree
// of additions alone a summand that meets a sum is a fused multiply-add in fp32; where two meet,
// the tree does not tell which of them is rounded first, which is for the caller to say. A node
// with three children or more is a block of a tensor core; then so is every node that takes
// summands, short blocks at the end included, and what only adds sums is an addition in fp32.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/numeric/sum_orders/summation_tree.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope {

class TreeSum {
 public:
  /// `core` is the tensor core whose blocks those of the tree may be. Nothing for a tree that none
  /// sums like: blocks without `core`, with more products than its, or of several sums.
  static std::optional<TreeSum> of(SummationTree tree,
                                   const std::optional<TensorCoreProfile>& core);

  /// Whether it makes a difference which of two summands is rounded first.
  bool has_pairs() const noexcept { return !core_; }
  /// The same with the later one of two first, as in chains that descend.
  TreeSum later_first() const;

  /// The sum of a[k] * b[k] over the summands of the tree.
  float operator()(std::span<const float> a, std::span<const float> b) const;

  const SummationTree& tree() const noexcept { return tree_; }

 private:
  TreeSum() = default;

  SummationTree tree_;
  std::optional<TensorCoreProfile> core_;  ///< of a tree with blocks
  std::vector<int> order_;                 ///< its inner nodes, children before parents
  bool later_first_ = false;
};

}  // namespace halfscope
