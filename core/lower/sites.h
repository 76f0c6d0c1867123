// SPDX-License-Identifier: MIT
// The last step of lower(): decides which values of the executable graph are sites, and makes the
// table of layers that rules read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/autodiff.h"
#include "core/lower/lower.h"

namespace halfscope {

/// Name of a value that no layer's node computes.
struct SiteName {
  std::string variable;  ///< its path: "fc1.weight"
  std::string suffix;    ///< appended to the tensor's name: "_update"
  Role role;
  Phase phase;
};
using SiteNames = std::map<ValueId, SiteName>;

/// Returns the taps of the step's entries in execution order. A variable that is read without a
/// Cast is tapped itself, at its first reader; a gradient that several tensors share is tapped once
/// for each of them.
std::vector<Tap> find_sites(const Executable& executable, const GradientMap& gradients,
                            const SiteNames& names);

/// Returns the forward nodes that came from the model (the nodes before `count`).
std::vector<LayerInfo> describe_layers(const Graph& graph, NodeId count);

}  // namespace halfscope
