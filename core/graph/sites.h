// SPDX-License-Identifier: MIT
// The last step of lower(): which values of the executable graph are sites, and the table of
// layers that rules read.
#pragma once

#include <map>
#include <vector>

#include "core/graph/autodiff.h"
#include "core/graph/lower.h"

namespace halfscope {

/// Taps of the grad and update entries in execution order. A variable that is read without a
/// Cast is tapped itself, at its first reader.
std::vector<Tap> find_sites(const Executable& executable, const GradientMap& gradients,
                            const std::map<ValueId, size_t>& updates);

/// The forward nodes that came from the model (those before `count`).
std::vector<LayerInfo> describe_layers(const Graph& graph, NodeId count);

}  // namespace halfscope
