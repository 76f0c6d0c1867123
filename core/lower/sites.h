// SPDX-License-Identifier: MIT
// The last step of lower(): which values of the executable graph are sites, and the table of
// layers that rules read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/autodiff.h"
#include "core/lower/lower.h"

namespace halfscope {

/// What a value that no layer's node makes is called.
struct SiteName {
  std::string variable;  ///< its path: "fc1.weight"
  std::string suffix;    ///< of the tensor's name: "_update"
  Role role;
  Phase phase;
};
using SiteNames = std::map<ValueId, SiteName>;

/// Taps of the step's entries in execution order. A variable that is read without a Cast is tapped
/// itself, at its first reader; a gradient that several tensors share once for each of them.
std::vector<Tap> find_sites(const Executable& executable, const GradientMap& gradients,
                            const SiteNames& names);

/// The forward nodes that came from the model (those before `count`).
std::vector<LayerInfo> describe_layers(const Graph& graph, NodeId count);

}  // namespace halfscope
