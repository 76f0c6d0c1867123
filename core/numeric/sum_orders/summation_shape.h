// SPDX-License-Identifier: MIT
// Shared by names and drawings of summation trees: sizes, least leaves, sorted children, and a
// number per shape, which is equal for subtrees that differ only in their summands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/numeric/sum_orders/summation_tree.h"

namespace halfscope {

class SummationShape {
 public:
  explicit SummationShape(const SummationTree& tree);

  const SummationTree& tree() const { return tree_; }
  const std::vector<int>& children(int node) const { return children_[static_cast<size_t>(node)]; }
  int size(int node) const { return size_[static_cast<size_t>(node)]; }
  int height(int node) const { return height_[static_cast<size_t>(node)]; }
  int shape(int node) const { return shape_[static_cast<size_t>(node)]; }
  bool is_leaf(int node) const { return tree_.is_leaf(node); }
  bool all_leaves(const std::vector<int>& nodes) const;
  /// Returns the summands below, ascending.
  std::vector<int> summands(int node) const;
  /// Returns the nodes from the root down, parents first.
  const std::vector<int>& order() const { return order_; }

  /// Returns the child in which a chain continues: the largest; the first of equal ones.
  int spine_child(int node) const;

 private:
  const SummationTree& tree_;
  std::vector<std::vector<int>> children_;
  std::vector<int> size_, least_, height_, shape_, order_;
};

/// Returns "x0..x15", "x0 x1 x4 x5", "x0 x1 ... x29" for summands in ascending order.
std::string summand_list(const std::vector<int>& summands);

}  // namespace halfscope
