// SPDX-License-Identifier: MIT
// Finds nodes that can run in one launch: of the same kind and independent of each other, such as
// the updates of all variables. Nodes move ahead to the first of their group.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/lower/lower.h"
#include "gpu/engine/layout.h"

namespace halfscope::gpu {

/// Returns whether steps of this operator can run several nodes (NodeCall::others).
bool runs_in_groups(std::string_view op);

/// Returns the nodes that run together with another one, by that one, which is the first of them in
/// the entry. kind_of(node) returns what nodes of a group have in common, or "" for nodes that run
/// alone; they must touch no memory except their operands' and outputs'.
std::map<NodeId, std::vector<NodeId>> find_groups(
    const Executable& executable, Entry entry, const Layout& layout,
    const std::function<std::string(NodeId)>& kind_of);

}  // namespace halfscope::gpu
