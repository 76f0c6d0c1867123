// SPDX-License-Identifier: MIT
#include "core/numeric/sum_orders/summation_value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace halfscope {

std::optional<TreeSum> TreeSum::of(SummationTree tree,
                                   const std::optional<TensorCoreProfile>& core) {
  TreeSum sum;
  bool has_blocks = false;
  std::vector<int> waiting{tree.root};
  while (!waiting.empty()) {
    const int node = waiting.back();
    waiting.pop_back();
    if (tree.is_leaf(node)) continue;
    std::vector<int>& children = tree.children[static_cast<size_t>(node)];
    std::sort(children.begin(), children.end());  // summands first, in ascending order
    sum.order_.push_back(node);
    waiting.insert(waiting.end(), children.begin(), children.end());
    has_blocks = has_blocks || children.size() > 2;
  }
  std::reverse(sum.order_.begin(), sum.order_.end());
  if (has_blocks) {
    if (!core || core->path != TensorCorePath::native) return std::nullopt;
    for (const int node : sum.order_) {
      const std::vector<int>& children = tree.children[static_cast<size_t>(node)];
      const auto leaves = std::count_if(children.begin(), children.end(),
                                        [&](int child) { return tree.is_leaf(child); });
      const auto sums = static_cast<int64_t>(children.size()) - leaves;
      if (leaves > core->dot.products || sums > (leaves > 0 ? 1 : 2)) return std::nullopt;
    }
    sum.core_ = core;
  }
  sum.tree_ = std::move(tree);
  return sum;
}

TreeSum TreeSum::later_first() const {
  TreeSum other = *this;
  other.later_first_ = true;
  return other;
}

float TreeSum::operator()(std::span<const float> a, std::span<const float> b) const {
  if (tree_.leaves == 0) return 0.0f;
  if (tree_.leaves == 1) return a[0] * b[0];
  std::vector<float> values(tree_.children.size());
  std::array<float, kMaxBlockProducts> left{}, right{};
  for (const int node : order_) {
    const std::vector<int>& children = tree_.children[static_cast<size_t>(node)];
    const auto value = [&](int child) { return values[static_cast<size_t>(child)]; };
    float total = 0.0f;
    int products = 0;
    for (const int child : children) {
      if (!tree_.is_leaf(child)) continue;
      left[static_cast<size_t>(products)] = a[static_cast<size_t>(child)];
      right[static_cast<size_t>(products++)] = b[static_cast<size_t>(child)];
    }
    const bool meets_sum = products < static_cast<int>(children.size());
    if (products == 0) {
      total = value(children[0]) + value(children[1]);
    } else if (core_) {
      total = fused_dot(core_->dot, core_->a_format, core_->b_format, left.data(), right.data(),
                        products, meets_sum ? value(children.back()) : 0.0f);
    } else {
      const size_t first = later_first_ ? 1 : 0, last = meets_sum ? 0 : 1 - first;
      total = meets_sum ? value(children.back()) : left[first] * right[first];
      total = std::fma(left[last], right[last], total);
    }
    values[static_cast<size_t>(node)] = total;
  }
  return values[static_cast<size_t>(tree_.root)];
}

}  // namespace halfscope
