// SPDX-License-Identifier: MIT
// The format that a node takes from its inputs, and a sum of gradients from its terms.
#pragma once

#include <set>

#include "core/graph/model.h"

namespace halfscope {

/// Returns the real inputs of the model that only its loss reads: the targets. `new_of` gives the
/// executable graph's value for each of the model's.
std::set<ValueId> target_inputs(const Model& model, const std::vector<ValueId>& new_of);

/// Returns the widest of two formats; fp32 if neither contains the other.
const FloatFormat& wider(const FloatFormat& a, const FloatFormat& b);

/// Returns the widest format among the inputs that the node reads in its own format. Constants do
/// not count, and neither do `targets`: frameworks cast them to the format of the predictions.
FloatFormat widest_input(const Graph& graph, const Node& node, const std::set<ValueId>& targets);

/// Returns the format of a sum of two gradients of `value`: the widest of them. Nodes that read a
/// weight as it is and nodes that read it transposed have two copies of it, so their gradients meet
/// in the weight's own format.
FloatFormat format_of_sum(const Graph& graph, const Node& sum, ValueId value);

}  // namespace halfscope
