// SPDX-License-Identifier: MIT
#include "core/ops/samples.h"

#include <algorithm>

#include "core/ops/ops.h"

namespace halfscope {

bool SampleNode::axis_is_inner(int64_t fallback) const {
  const int64_t axis = int_attribute(node_, "axis", fallback);
  return batched(0) && (axis < 0 ? axis + static_cast<int64_t>(rank(0)) : axis) > 0;
}

bool SampleNode::only_first() const {
  for (size_t i = 1; i < input_count(); ++i) {
    if (batched(i)) return false;
  }
  return batched(0);
}

bool SampleNode::broadcasts_to(size_t rank) const {
  for (size_t i = 0; i < input_count(); ++i) {
    if (node_.inputs[i] == kNone) continue;
    const Shape& of = shape(i);
    if (batched(i) ? of.size() != rank : of.size() >= rank && of[0] != 1) return false;
  }
  return true;
}

bool samples::reduction(const SampleNode& n) {
  const std::vector<int64_t> axes = reduction_axes(n.node(), n.rank(0));
  return std::find(axes.begin(), axes.end(), 0) == axes.end();
}

}  // namespace halfscope
