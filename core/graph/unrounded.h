// SPDX-License-Identifier: MIT
// What stays in fp32 on the way through one operator of a file that is several of ours: the squares
// and the sum of a norm. PyTorch's kernel computes it in fp32 and rounds the result once, and so do
// fused plans. Stagewise plans round after each part.
#pragma once

#include "core/graph/graph.h"

namespace halfscope {

/// Attribute of a node whose result is on the way.
inline constexpr const char* kUnrounded = "unrounded";
/// Its values: the file has one operator, or several for what is one in PyTorch.
inline constexpr int64_t kStepOfOne = 1, kStepOfSeveral = 2;

/// Returns whether the value is on the way and its node's plan keeps it in fp32. Sums that round
/// every term to the write format have a result in that format.
bool is_unrounded(const Graph& graph, ValueId value);

/// Returns whether the node makes or reads such a value.
bool works_unrounded(const Graph& graph, const Node& node);

}  // namespace halfscope
