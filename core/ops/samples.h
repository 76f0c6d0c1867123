// SPDX-License-Identifier: MIT
// Which operators keep samples apart: whether a network that a file fixes at one sample may take
// several. OpDef::keeps_samples is one of these rules, or one of its operator's own.
#pragma once

#include <cstdint>
#include <set>

#include "core/graph/graph.h"

namespace halfscope {

/// A node with values that hold several samples, along axis 0.
class SampleNode {
 public:
  /// `batched`: the values that hold several samples.
  SampleNode(const Graph& graph, const Node& node, const std::set<ValueId>& batched)
      : graph_(graph), node_(node), batched_(batched) {}

  const Node& node() const { return node_; }
  size_t input_count() const { return node_.inputs.size(); }
  /// False of inputs left out.
  bool batched(size_t input) const {
    return input < input_count() && node_.inputs[input] != kNone &&
           batched_.contains(node_.inputs[input]);
  }
  const Shape& shape(size_t input) const { return graph_.value(node_.inputs.at(input)).shape; }
  size_t rank(size_t input) const { return shape(input).size(); }
  size_t result_rank() const { return graph_.value(node_.outputs[0]).shape.size(); }

  /// Input 0 holds samples, and attribute axis is not theirs.
  bool axis_is_inner(int64_t fallback) const;
  /// All inputs but the first are the same for all samples.
  bool only_first() const;
  /// Broadcasting to this rank: samples come first in all inputs that have them, and the others
  /// have no axis there, or one of length 1.
  bool broadcasts_to(size_t rank) const;

 private:
  const Graph& graph_;
  const Node& node_;
  const std::set<ValueId>& batched_;
};

namespace samples {

/// Each element, or each plane of pixels, on its own.
inline bool alone(const SampleNode&) { return true; }
inline bool broadcast(const SampleNode& n) { return n.broadcasts_to(n.result_rank()); }
inline bool only_first(const SampleNode& n) { return n.only_first(); }
/// Along an axis, which is Default where the node does not say.
template <int64_t Default>
bool inner_axis(const SampleNode& n) {
  return n.axis_is_inner(Default);
}
/// A reduction that leaves the sample axis alone.
bool reduction(const SampleNode& n);

}  // namespace samples
}  // namespace halfscope
