// SPDX-License-Identifier: MIT
// Reverse-mode differentiation: adds the gradient nodes of a scalar to the graph that computes it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"

namespace halfscope {

/// The context of a gradient rule: the graph to which it may add nodes, and the gradients of the
/// node's outputs. Nodes added through add() carry the forward node's path.
class GradientContext {
 public:
  GradientContext(Graph& graph, NodeId node, std::vector<ValueId> output_gradients,
                  std::vector<bool> needed)
      : graph_(graph),
        node_(node),
        output_gradients_(std::move(output_gradients)),
        needed_(std::move(needed)) {}

  Graph& graph() { return graph_; }
  /// Returns the forward node. The reference becomes invalid in add(), because the graph grows.
  const Node& node() const { return graph_.node(node_); }
  ValueId input(size_t i) const { return node().inputs.at(i); }
  ValueId output(size_t i) const { return node().outputs.at(i); }
  Shape input_shape(size_t i) const { return graph_.value(input(i)).shape; }
  /// Returns the gradient of output i, or kNone if the loss does not depend on it.
  ValueId output_gradient(size_t i) const { return output_gradients_.at(i); }
  /// Returns whether the gradient of input i is needed.
  bool needed(size_t i) const { return i < needed_.size() && needed_[i]; }
  /// Adds a node of the backward phase and returns its first output.
  ValueId add(std::string op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// The same, all outputs.
  std::vector<ValueId> add_all(std::string op, std::vector<ValueId> inputs,
                               Attributes attributes = {});
  /// Reshapes `value` to exactly this shape; zeros in it mean size 0.
  ValueId reshape(ValueId value, const Shape& shape);
  /// Sums `gradient` over the axes that broadcasting stretched, back to `shape`.
  ValueId unbroadcast(ValueId gradient, const Shape& shape);

 private:
  Graph& graph_;
  NodeId node_;
  std::vector<ValueId> output_gradients_;
  std::vector<bool> needed_;
};

/// Gradients of all values that the scalar `loss` depends on and that lead to a variable.
using GradientMap = std::map<ValueId, ValueId>;

/// Walks the nodes backwards from `loss`, whose own gradient is `seed` (a scalar value). Each
/// operator's rule adds nodes. If a value has several readers, their contributions are added in the
/// order in which the walk meets them. Throws Error if an operator on the way has no gradient.
GradientMap differentiate(Graph& graph, ValueId loss, ValueId seed);

}  // namespace halfscope
